"""How well discovered Markov blankets agree with the orders by which the city's taxis truly moved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from geoblanket._arrays import Floats, Indices, Octets
from geoblanket._tables import reading_parquet, write_table
from geoblanket._untrusted import check_parquet
from geoblanket.blanket.findings import blanket_sizes
from geoblanket.blanket.groups import (
    Grouping,
    LaggedWalks,
    Regions,
    check_features,
    find_regions,
    find_samples,
    load_walks,
)
from geoblanket.errors import InputError, MismatchError
from geoblanket.lab.city.moves import TICK_S
from geoblanket.lab.city.plan import DISTRICTS
from geoblanket.mobility.walks import WALKS_SCHEMA, scan_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places
from geoblanket.roads.zones import partition_zones

__all__ = ["compare_blankets", "district_regions", "write_true_walks"]


def write_true_walks(city: str | Path, roads: str | Path, out: str | Path) -> None:
    """Write the city's true walks as a table of walks, as if they had been matched without error.

    Parameters
    ----------
    city
        The folder written by `geoblanket city`.
    roads
        Its roads, imported.
    out
        The table to write (`WALKS_SCHEMA`).
    """
    graph = RoadGraph.load(roads)
    place = pl.LazyFrame({"node": graph.node_ids, "place": np.arange(graph.node_count, dtype=np.int32)})
    steps = _true_steps(city).join(place, on="node", how="left", maintain_order="left")
    walks = steps.select(
        walk="trip",
        vehicle="vehicle",
        trip="trip",
        step="step",
        time="time",
        place="place",
        speed_m_s=pl.lit(None, pl.Float32),
    ).cast(pl.Schema(WALKS_SCHEMA))
    about = {"roads": graph.identity, "spacing_m": 0.0, "interval_s": float(TICK_S), "method": "truth"}
    write_table(walks, out, kind="walks", about=about)


def district_regions(city: str | Path, roads: str | Path, *, max_places: int | None = None) -> Indices:
    """Return a region for each node of the city's roads that lies in one district.

    Parameters
    ----------
    city
        The folder written by `geoblanket city`.
    roads
        Its roads, imported.
    max_places
        Cut the districts into zones of at most this many places; if None, the region is the district's index in
        `DISTRICTS`.
    """
    graph = RoadGraph.load(roads)
    districts = pl.read_csv(Path(city) / "districts.csv", columns=["node", "district"])
    joined = pl.DataFrame({"node": graph.node_ids}).join(districts, on="node", how="left", maintain_order="left")
    if joined["district"].null_count():
        raise InputError("has nodes that the city does not have", path=roads, hint="Import the city's own roads")
    number = joined["district"].replace_strict(DISTRICTS, range(len(DISTRICTS)), return_dtype=pl.Int32).to_numpy()
    if max_places is None:
        return number
    zones = partition_zones(graph, choose_places(graph), max_places=max_places)
    _, region = np.unique(number * len(zones) + zones.zone, return_inverse=True)
    return np.asarray(region, np.int32)


def compare_blankets(
    findings: pl.DataFrame,
    *,
    walks: str | Path,
    roads: str | Path,
    city: str | Path,
    by: tuple[str, ...],
    regions: Regions | None = None,
    negligible: float = 0.1,
) -> pl.DataFrame:
    """Return the true order of each group that was tested, beside what was found.

    Every step of the city was drawn by an order of its own. The hypothesis of order m is false in a group if a share of
    its samples that is not negligible was drawn by an order above m; the group's true order is the first m for which
    it is true. Samples differ between orders, because the speed is that of the last m steps; so shares are counted
    among the samples of each hypothesis itself.

    Parameters
    ----------
    findings
        Found with this grouping, these walks and regions, in UTC.
    walks
        True walks, or walks matched from the city's Porto file.
    by, regions
        As given to `discover`.
    negligible
        The share of samples of a higher order that does not count.

    Returns
    -------
    frame
        A row for each group of `by` that was tested or left unresolved (its `order` is null then, if that was at order
        1): `blanket_sizes` and `true_order`; and lists with a number for each m:
        `available` samples, `p_values`, and `share_above`, the share of samples drawn by an order above m.
    """
    loaded = load_walks(walks, roads)
    grouping = Grouping(check_features([by])[0], find_regions(regions, loaded.places))
    mine = findings.filter(pl.col("by") == grouping.name).sort("group", "m")
    groups, orders = mine["group"].unique(maintain_order=True), mine["m"].n_unique()
    if len(groups) != len(grouping):
        raise MismatchError("The findings were made with another grouping or other regions. Give the same here.")
    step_order = _step_orders(walks, city)
    shares = np.stack([_share_above(step_order, loaded, grouping, m) for m in range(1, orders + 1)], axis=1)
    truth = pl.DataFrame(
        {
            "group": groups,
            "true_order": 1 + np.argmin(np.column_stack([shares, np.zeros(len(shares))]) > negligible, axis=1),
            "share_above": shares.tolist(),
        }
    )
    by_order = mine.group_by("group").agg("available", pl.col("p_value").alias("p_values"))
    # A refusal at order 1 is an answer, and not the true one: without it, agreement would look better than it is.
    refused = mine.filter(pl.col("m") == 1, pl.col("status") == "unresolved")["group"]
    tested = blanket_sizes(mine).filter(pl.col("order").is_not_null() | pl.col("group").is_in(refused.implode()))
    return tested.join(truth, on="group").join(by_order, on="group").sort("group")


def _true_steps(city: str | Path) -> pl.LazyFrame:
    path = Path(city) / "true_walks.parquet"
    if not path.is_file():
        raise InputError("no such file", path=path, hint="Make the city with `geoblanket city`")
    check_parquet(path)
    return pl.scan_parquet(path)


def _step_orders(walks: str | Path, city: str | Path) -> Octets:
    """Return the order by which each step of the walks was drawn, 0 where it is not known."""
    truth = _true_steps(city).select("vehicle", "time", "order")
    steps = scan_walks(walks)[0].select("vehicle", "time")
    with reading_parquet(Path(city) / "true_walks.parquet"):
        joined = steps.join(truth, on=["vehicle", "time"], how="left", maintain_order="left").collect()
    return joined["order"].fill_null(0).to_numpy().astype(np.uint8)


def _share_above(step_order: Octets, walks: LaggedWalks, grouping: Grouping, m: int) -> Floats:
    """Return for each group the share of the samples of order m that were drawn by a higher order; 0 if it is empty."""
    samples = find_samples(walks, grouping, m=m, length=m + 2)
    above = np.append(0, np.cumsum(step_order[samples.steps] > m))
    share: Floats = np.diff(above[samples.offsets]) / np.maximum(samples.available, 1)
    return share
