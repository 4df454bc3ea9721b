"""Discovery finds the orders by which the city truly moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from benchmarks.true_blankets import compare_blankets, district_regions, write_true_walks
from geoblanket._arrays import Indices
from geoblanket.blanket.discovery import DiscoveryOptions, discover
from geoblanket.errors import InputError, MismatchError
from geoblanket.lab.city.folder import write_city
from geoblanket.lab.city.model import City
from geoblanket.lab.city.moves import BANDS, ORDERS
from geoblanket.lab.city.plan import DISTRICTS
from geoblanket.mobility.walks import scan_walks
from geoblanket.roads.graph import RoadGraph
from tests.blanket.quick_test import use_quick_test
from tests.roads.graphs import grid_graph

BY = ("speed", "region")


@pytest.fixture(scope="module")
def folder(small_city: City, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("city")
    write_city(small_city, folder, trips=6_000, formats=[])
    small_city.graph.save(folder / "roads")
    write_true_walks(folder, folder / "roads", folder / "walks.parquet")
    return folder


@pytest.fixture(scope="module")
def compared(folder: Path) -> pl.DataFrame:
    """By a quick test: the truth does not depend on what is discovered."""
    with pytest.MonkeyPatch.context() as patch:
        use_quick_test(patch)
        return comparison(folder, district_regions(folder, folder / "roads"), test="quick")


def comparison(folder: Path, regions: Indices, **options: Any) -> pl.DataFrame:
    walks, roads = folder / "walks.parquet", folder / "roads"
    found = discover(walks, roads, DiscoveryOptions(by=BY, regions=regions, largest=4, **options), workers=1)
    return compare_blankets(found.findings, walks=walks, roads=roads, city=folder, by=BY, regions=regions)


def test_true_walks_are_walks(folder: Path) -> None:
    walks = scan_walks(folder / "walks.parquet")[0].collect()
    truth = pl.read_parquet(folder / "true_walks.parquet")
    graph = RoadGraph.load(folder / "roads")
    assert np.array_equal(graph.node_ids[walks["place"]], truth["node"])
    assert walks["walk"].equals(truth["trip"].rename("walk"))


def test_the_truth_of_a_group_is_the_city_s_own_table(compared: pl.DataFrame) -> None:
    """At order 1 the speed is that of the very step, so shares are those of `ORDERS` but for border crossings."""
    seen = 0
    for row in compared.filter(pl.col("available").list.first() >= 1000).iter_rows(named=True):
        band = BANDS[1 + sum(row["speed_mph"] >= edge for edge in (20, 30))]
        order = ORDERS.get((DISTRICTS[row["region"]], band))
        if order is None:  # only steps that cross a border come with this speed into this district
            assert row["share_above"][0] == 0
        else:
            assert (row["share_above"][0] > 0) == (order > 1)
            seen += 1
    assert seen >= 12


def test_shares_are_counted_among_the_samples_of_each_order(folder: Path, compared: pl.DataFrame) -> None:
    """Against a plain query: fast steps out of the middle of the outskirts, after another step as fast on average."""
    graph = RoadGraph.load(folder / "roads")
    at = pl.DataFrame({"node": graph.node_ids, "lat": graph.lat, "lon": graph.lon})
    steps = pl.read_parquet(folder / "true_walks.parquet").join(at, on="node", maintain_order="left")
    radian, half = np.pi / 180, np.pi / 360
    lat, lon = pl.col("lat"), pl.col("lon")
    chord = (
        ((lat - lat.shift()) * half).sin() ** 2
        + (lat * radian).cos() * (lat.shift() * radian).cos() * ((lon - lon.shift()) * half).sin() ** 2
    ).sqrt()
    steps = steps.with_columns((2 * 6_371_008.8 * chord.arcsin() / 30 / 0.44704).over("trip").alias("mph"))
    mean = (pl.col("mph") + pl.col("mph").shift().over("trip")) / 2
    chosen = steps.filter((mean >= 35) & (mean < 40) & (pl.col("step") >= 3) & (pl.col("district") == "outskirts"))
    row = compared.filter(speed_mph=35, region=DISTRICTS.index("outskirts")).row(0, named=True)
    assert row["share_above"][1] == pytest.approx((chosen["order"] > 2).mean())
    assert row["true_order"] == 3


def test_regions_lie_in_one_district(folder: Path) -> None:
    district, region = (district_regions(folder, folder / "roads", max_places=size) for size in (None, 60))
    assert all(len(set(district[region == number])) == 1 for number in range(region.max() + 1))
    assert np.bincount(region).max() <= 60


def test_discovered_orders_agree_with_the_truth(folder: Path) -> None:
    """In small regions, where 2,000 samples tell one junction from the next."""
    compared = comparison(folder, district_regions(folder, folder / "roads", max_places=200))
    large = compared.filter(pl.col("available").list.head(pl.col("true_order")).list.min() >= 1000)
    assert large.height >= 30
    agree = large.filter(pl.col("order") == pl.col("true_order"))
    assert agree.height >= 0.8 * large.height  # the figure for a larger city is measured by a benchmark
    assert set(agree["true_order"]) == {1, 2, 3}


def test_roads_of_another_city_are_refused(folder: Path, tmp_path: Path) -> None:
    grid_graph(3, 3).save(tmp_path / "roads")
    with pytest.raises(InputError, match="the city does not have"):
        district_regions(folder, tmp_path / "roads")
    with pytest.raises(InputError, match="no such file"):
        write_true_walks(tmp_path, tmp_path / "roads", tmp_path / "walks.parquet")


def test_findings_of_another_grouping_are_refused(folder: Path) -> None:
    options = DiscoveryOptions(by=(), largest=1, largest_sample=300)
    found = discover(folder / "walks.parquet", folder / "roads", options, workers=1)
    with pytest.raises(MismatchError, match="another grouping or other regions"):
        compare_blankets(
            found.findings, walks=folder / "walks.parquet", roads=folder / "roads", city=folder, by=("hour",)
        )
