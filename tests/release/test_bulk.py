from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from geoblanket._geodesy import haversine_m
from geoblanket._tables import scan_table, write_table
from geoblanket.cli.main import app
from geoblanket.errors import InputError, MismatchError, OutputError, ParameterError, PolicyError, RandomnessError
from geoblanket.mechanism import Bundle, load_bundle
from geoblanket.mechanism.bundle.policy import ANYTHING
from geoblanket.mobility import walks as walk_tables
from geoblanket.release.bulk import RELEASED_SCHEMA, perturb_traces, perturb_walks
from geoblanket.release.fence import Fence, Fences
from geoblanket.traces.table import TRACES_SCHEMA
from tests.release.worlds import CLOCK, GRAPH, PLACES, STEP_DEG, report, save_certain, save_walks
from tests.roads.graphs import grid_graph

NO_ZONE = {5: 4, 11: 10, 17: 16, 23: 22}
"""Places in no zone, and the nearest in one."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(save_certain(tmp_path_factory.mktemp("bundle") / "a.bundle"))


@pytest.fixture
def roads(tmp_path: Path) -> Path:
    GRAPH.save(tmp_path / "a.roads")
    return tmp_path / "a.roads"


def some_walks(count: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 24, rng.integers(1, 9)).tolist() for _ in range(count)]


def expected_reports(walks: list[list[int]]) -> list[int]:
    """What is reported, by a plain loop."""
    result = []
    for walk, places in enumerate(walks):
        regime = CLOCK.regime((walk % 24 + 9) % 24)
        for step, place in enumerate(places):
            now = NO_ZONE.get(place, place)
            result.append(report("start", now, 0) if step == 0 else report(regime, now, places[step - 1]))
    return result


@pytest.mark.parametrize("rows", [5, 1_000_000])
def test_each_step_is_reported_by_its_own_history(
    tmp_path: Path, roads: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(walk_tables, "_ROWS_AT_A_TIME", rows)
    walks = some_walks(200)
    summary = perturb_walks(save_walks(tmp_path / "w.parquet", walks), roads, tmp_path / "out.parquet", bundle=bundle)
    frame, about = scan_table(tmp_path / "out.parquet", kind="released locations", schema=RELEASED_SCHEMA)
    reports = frame.collect()
    assert reports["place"].to_list() == expected_reports(walks)
    assert np.allclose(reports["lat"], PLACES.lat[reports["place"]], atol=1e-7)
    assert reports["lat"].to_list() == [round(lat, 7) for lat in reports["lat"]], "as a device would report it"
    assert np.allclose(reports["lon"], PLACES.lon[reports["place"]], atol=1e-7)
    assert about["bundle"] == bundle.sha256
    places = [place for walk in walks for place in walk]
    assert summary.reports == len(places)
    assert summary.reports_without_history == len(walks)
    assert summary.places_outside == sum(place in NO_ZONE for place in places)


def test_what_is_public_stays_and_what_is_measured_on_the_true_way_goes(
    tmp_path: Path, roads: Path, bundle: Bundle
) -> None:
    walks = save_walks(tmp_path / "w.parquet", some_walks(30))
    perturb_walks(walks, roads, tmp_path / "out.parquet", bundle=bundle)
    before, after = pl.read_parquet(walks), pl.read_parquet(tmp_path / "out.parquet")
    public = ["walk", "vehicle", "trip", "step", "time"]
    assert after.columns == [*public, "place", "lat", "lon", "geometry"]
    assert after.select(public).equals(before.select(public))


def test_walks_that_differ_inside_a_fence_only_are_reported_alike(tmp_path: Path, roads: Path, bundle: Bundle) -> None:
    """These mechanisms draw with certainty, so that any difference in places or histories would show."""
    fence = Fence.draw(float(PLACES.lat[8]), float(PLACES.lon[8]), radius_km=1)
    inside = [place for place in range(24) if fence.holds(float(PLACES.lat[place]), float(PLACES.lon[place]))]
    away_m = haversine_m(PLACES.lat, PLACES.lon, fence.lat_e7 / 1e7, fence.lon_e7 / 1e7)
    assert 8 in inside
    way = [0, 1, 2, 8, 3, 4]
    expected = [int(away_m.argmin()) if place in inside else place for place in way]
    for number, home in enumerate(inside):
        walks = save_walks(tmp_path / "w.parquet", [[home if place == 8 else place for place in way]])
        out = tmp_path / f"{number}.parquet"
        perturb_walks(walks, roads, out, bundle=bundle, fences=Fences([fence]))
        assert pl.read_parquet(out)["place"].to_list() == expected_reports([expected])


def test_traces_are_fenced_before_they_are_matched(
    tmp_path: Path, roads: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = Fence.draw(float(PLACES.lat[8]), float(PLACES.lon[8]), radius_km=1)
    matched = []

    def match(traces: Path, *_: object, **__: object) -> None:
        matched.append(scan_table(traces, kind="traces", schema=TRACES_SCHEMA)[0].collect())
        raise InputError("enough", path=traces)

    monkeypatch.setattr("geoblanket.release.bulk.match_traces", match)
    time = pl.datetime_range(pl.datetime(2024, 7, 1), pl.datetime(2024, 7, 1, 0, 0, 30), "30s", eager=True)
    lat, lon = ([float(degrees[8]), float(degrees[23])] for degrees in (PLACES.lat, PLACES.lon))
    traces = pl.DataFrame({"vehicle": ["a"] * 2, "trip": [0] * 2, "time": time, "lat": lat, "lon": lon})
    table = traces.with_columns(pl.col("time").dt.replace_time_zone("UTC")).cast(pl.Schema(TRACES_SCHEMA))
    write_table(table, tmp_path / "t.parquet", kind="traces", about={})
    with pytest.raises(InputError, match="enough"):
        perturb_traces(
            tmp_path / "t.parquet", roads, tmp_path / "out.parquet", bundle=bundle, workers=1, fences=Fences([fence])
        )
    (seen,) = matched
    assert seen["lat"].to_list() == pytest.approx([fence.lat_e7 / 1e7, lat[1]], abs=1e-7)
    assert seen["lon"].to_list() == pytest.approx([fence.lon_e7 / 1e7, lon[1]], abs=1e-7)


def test_the_cost_is_that_of_all_reports(tmp_path: Path, roads: Path, bundle: Bundle) -> None:
    walks = save_walks(tmp_path / "w.parquet", [[0] * 10, [1] * 3, *[[2]] * 5, [3] * 4])
    summary = perturb_walks(walks, roads, tmp_path / "out.parquet", bundle=bundle)
    assert summary.epsilon_per_location == 40  # ε = 20, and the place before counts once more
    assert summary.epsilon_per_hour == 40 * 120
    assert (summary.vehicles, summary.most_reports) == (7, 14)  # vehicle 0 has walks 0 and 7
    assert summary.epsilon_spent == 14 * 40


def test_another_city_spacing_or_clock_is_refused(tmp_path: Path, roads: Path, bundle: Bundle) -> None:
    out = tmp_path / "out.parquet"
    for problem, about in (
        ("was matched to other roads", {"roads": "0" * 64}),
        ("24 others", {"spacing_m": 1500.0}),
        ("every 15 s", {"interval_s": 15.0}),
    ):
        walks = save_walks(tmp_path / "w.parquet", some_walks(3), **about)
        with pytest.raises(MismatchError, match=problem):
            perturb_walks(walks, roads, out, bundle=bundle)
    other = grid_graph(4, 6, lat=42.0)
    other.save(tmp_path / "b.roads")
    walks = save_walks(tmp_path / "w.parquet", some_walks(3), roads=other.identity)
    with pytest.raises(MismatchError, match="24 others"):
        perturb_walks(walks, tmp_path / "b.roads", out, bundle=bundle)
    assert not out.exists()


def test_a_bundle_that_does_not_say_when_or_where_is_refused(tmp_path: Path, roads: Path) -> None:
    bundle = load_bundle(save_certain(tmp_path / "a.bundle", clock=None))
    walks = save_walks(tmp_path / "w.parquet", some_walks(3))
    with pytest.raises(MismatchError, match="no clock"):
        perturb_walks(walks, roads, tmp_path / "out.parquet", bundle=bundle)
    with pytest.raises(MismatchError, match="no clock"):
        perturb_traces(walks, roads, tmp_path / "out.parquet", bundle=bundle)


def test_a_bundle_that_promises_too_little_is_refused(tmp_path: Path, roads: Path) -> None:
    bundle = load_bundle(save_certain(tmp_path / "a.bundle", epsilon=21.0))
    walks, out = save_walks(tmp_path / "w.parquet", some_walks(3)), tmp_path / "out.parquet"
    for perturb in (perturb_walks, perturb_traces):
        with pytest.raises(PolicyError, match="its ε is 21 per km, more than 20"):
            perturb(walks, roads, out, bundle=bundle)
    assert not out.exists()
    perturb_walks(walks, roads, out, bundle=bundle, policy=ANYTHING)
    assert out.exists()


def test_damaged_walks_are_refused_and_nothing_is_written(tmp_path: Path, roads: Path, bundle: Bundle) -> None:
    out = tmp_path / "out.parquet"
    walks = save_walks(tmp_path / "w.parquet", [[0, 24]])
    with pytest.raises(InputError, match="step 2 of the table has a place that the roads do not have"):
        perturb_walks(walks, roads, out, bundle=bundle)
    with pytest.raises(InputError, match="has no steps"):
        perturb_walks(save_walks(tmp_path / "w.parquet", []), roads, out, bundle=bundle)
    with pytest.raises(ParameterError, match="both read and written"):
        perturb_walks(save_walks(out, [[0]]), roads, out, bundle=bundle)
    with pytest.raises(OutputError, match="does not exist"):
        perturb_walks(walks, roads, tmp_path / "absent" / "out.parquet", bundle=bundle)
    assert {path.name for path in tmp_path.iterdir()} == {"a.roads", "w.parquet", "out.parquet"}


def test_without_randomness_nothing_is_written(
    tmp_path: Path, roads: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> bytes:
        raise OSError("no entropy")

    walks = save_walks(tmp_path / "w.parquet", some_walks(3))
    monkeypatch.setattr("geoblanket.mechanism.sampling.os.urandom", fail)
    with pytest.raises(RandomnessError):
        perturb_walks(walks, roads, tmp_path / "out.parquet", bundle=bundle)
    assert not (tmp_path / "out.parquet").exists()


def test_traces_are_matched_by_the_clock_of_the_bundle(tmp_path: Path, roads: Path, bundle: Bundle) -> None:
    """A vehicle along the southern street, a kilometre in 30 s, seen every 15 s."""
    position = np.arange(9) / 2
    traces = pl.DataFrame(
        {
            "vehicle": ["a"] * 9,
            "trip": [0] * 9,
            "time": 15_000_000 * np.arange(9),
            "lat": np.full(9, 41.0),
            "lon": -8.6 + STEP_DEG * position,
        }
    ).cast(pl.Schema(TRACES_SCHEMA))
    write_table(traces, tmp_path / "t.parquet", kind="traces", about={})
    summary = perturb_traces(tmp_path / "t.parquet", roads, tmp_path / "out.parquet", bundle=bundle, workers=1)
    assert summary.reports == 5
    reported = pl.read_parquet(tmp_path / "out.parquet")["place"].to_list()
    # Nine o'clock in Tokyo is day.
    assert reported == [report("start", 0, 0), *(report("day", now, now - 1) for now in range(1, 5))]
    assert {path.name for path in tmp_path.iterdir()} == {"a.roads", "t.parquet", "out.parquet"}


def test_the_command_says_that_every_report_spends_budget(tmp_path: Path, roads: Path) -> None:
    save_certain(tmp_path / "a.bundle")
    save_walks(tmp_path / "w.parquet", some_walks(5))
    command = ["perturb", str(tmp_path / "a.bundle"), "--roads", str(roads), "--out", str(tmp_path / "out.parquet")]
    done = CliRunner().invoke(app, [*command, "--walks", str(tmp_path / "w.parquet")])
    assert done.exit_code == 0, done.output
    assert "Every report spent budget: up to 40 per km for each location" in done.stderr
    assert "4,800 per km" in done.stdout
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert "either --walks or --traces" in str(done.exception)
