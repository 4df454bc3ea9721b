from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket.errors import InputError, OutputError, ParameterError
from geoblanket.mobility import matching
from geoblanket.mobility.map_matcher import MatchOptions, Method
from geoblanket.mobility.matching import match_once, match_traces
from geoblanket.mobility.walks import WALKS_SCHEMA, scan_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places
from tests.mobility.simulator import START_US, drive, town, write_traces

TOWN = town()
DRIVES = drive(TOWN, 30, noise_m=6.0, seed=1)


@pytest.fixture
def roads(tmp_path: Path) -> Path:
    path = tmp_path / "town.roads"
    TOWN.save(path)
    return path


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return write_traces(tmp_path / "traces.parquet", DRIVES)


@pytest.mark.parametrize("method", ["hmm", "nearest"])
def test_walks_hold_together(traces: Path, roads: Path, tmp_path: Path, method: Method) -> None:
    summary = match_traces(traces, roads, tmp_path / "walks.parquet", options=MatchOptions(method=method, snap_m=300.0))
    frame, about = scan_walks(tmp_path / "walks.parquet")
    walks = frame.collect()
    assert dict(walks.schema) == WALKS_SCHEMA
    assert summary.walks == walks["walk"].n_unique() == walks["walk"].max() + 1  # type: ignore[operator]
    assert (summary.steps, summary.trips, summary.points) == (walks.height, 30, len(DRIVES.trip))
    assert summary.matched_share > 0.99
    assert about["roads"] == TOWN.identity
    assert (about["interval_s"], about["method"], about["spacing_m"]) == (30.0, method, 0.0)
    assert about["counts"]["walks"] == summary.walks
    by_walk = walks.group_by("walk", maintain_order=True).agg(
        pl.len(),
        in_order=(pl.col("step") == pl.int_range(pl.len())).all(),
        on_clock=(pl.col("time").diff().drop_nulls() == pl.duration(seconds=30)).all(),
        first_has_no_speed=pl.col("speed_m_s").first().is_null(),
        others_have=pl.col("speed_m_s").slice(1).is_not_null().all(),
        trips=pl.col("trip").n_unique(),
    )
    assert by_walk["len"].min() >= 2  # type: ignore[operator]
    assert (
        by_walk.select(pl.col("in_order", "on_clock", "first_has_no_speed", "others_have").all()).row(0) == (True,) * 4
    )
    assert by_walk["trips"].max() == 1
    assert walks.filter(pl.col("vehicle") != pl.format("taxi {}", pl.col("trip") % 3)).is_empty()
    assert walks["place"].is_between(0, TOWN.node_count - 1).all()
    assert walks["speed_m_s"].drop_nulls().is_between(0, 25).all()


@pytest.mark.parametrize("method", ["hmm", "nearest"])
def test_a_step_is_the_place_nearest_to_the_true_position(roads: Path, tmp_path: Path, method: Method) -> None:
    exact = drive(TOWN, 30, seed=1)
    traces = write_traces(tmp_path / "exact.parquet", exact)
    match_traces(traces, roads, tmp_path / "walks.parquet", options=MatchOptions(method=method, snap_m=300.0))
    walks = scan_walks(tmp_path / "walks.parquet")[0].collect()
    # The clock of 30 s hits every second of the points of 15 s.
    truth = {
        (trip, time): row
        for row, (trip, time) in enumerate(zip(exact.trip.tolist(), exact.time_us.tolist(), strict=True))
    }
    row = [truth[key] for key in zip(walks["trip"], walks["time"].to_physical(), strict=True)]
    place, _ = choose_places(TOWN).nearest(exact.lat[row], exact.lon[row])
    assert (walks["place"].to_numpy() == place).mean() > 0.995


def test_thinned_places(traces: Path, roads: Path, tmp_path: Path) -> None:
    summary = match_traces(traces, roads, tmp_path / "walks.parquet", spacing_m=500.0)
    places = choose_places(TOWN, spacing_m=500.0)
    assert summary.places == len(places) < TOWN.node_count
    frame, about = scan_walks(tmp_path / "walks.parquet")
    assert about["spacing_m"] == 500.0
    assert frame.select(pl.col("place").max()).collect().item() < len(places)


def test_one_matching_writes_the_same_tables_as_one_for_each_spacing(
    traces: Path, roads: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "_CHUNK_POINTS", 150)
    outs = {spacing_m: tmp_path / f"{spacing_m:g}.parquet" for spacing_m in (500.0, 0.0)}
    summary = match_once(traces, roads, outs)
    for spacing_m, out in outs.items():
        alone = match_traces(traces, roads, tmp_path / "alone.parquet", spacing_m=spacing_m)
        assert summary == alone or spacing_m != 500.0
        assert out.read_bytes() == (tmp_path / "alone.parquet").read_bytes()
    with pytest.raises(ParameterError, match="one spacing at a time"):
        match_once(traces, roads, outs, options=MatchOptions(method="nearest"))


def test_neither_chunks_nor_workers_change_the_result(
    traces: Path, roads: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = match_traces(traces, roads, tmp_path / "whole.parquet")
    monkeypatch.setattr(matching, "_CHUNK_POINTS", 150)
    cut = match_traces(traces, roads, tmp_path / "cut.parquet")
    shared = match_traces(traces, roads, tmp_path / "shared.parquet", workers=2)
    assert cut == shared == whole
    expected = scan_walks(tmp_path / "whole.parquet")[0].collect()
    for name in ("cut", "shared"):
        assert scan_walks(tmp_path / f"{name}.parquet")[0].collect().equals(expected)
    assert not list(tmp_path.glob(".*"))


def test_chunks_hold_whole_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_CHUNK_POINTS", 10)
    assert matching._cut(np.array([4, 6, 1, 25, 3, 3])) == [(0, 10), (10, 1), (11, 25), (36, 6)]
    assert matching._cut(np.array([], np.int64)) == []


def test_every_unmatched_point_and_break_is_counted(roads: Path, tmp_path: Path) -> None:
    drives = drive(TOWN, 3, interval_s=10.0, seed=5)
    point = np.arange(len(drives.trip))
    second, third = point[drives.trip == 1], point[drives.trip == 2]
    lat, time_us = drives.lat.copy(), drives.time_us.copy()
    time_us[second[6] : second[-1] + 1] += 400_000_000
    lat[third[4]] += 1.0
    time_us[third[4]] += 1
    time_us[third[5] :] += 400_000_000
    traces = write_traces(tmp_path / "t.parquet", drives, lat=lat, time_us=time_us)
    summary = match_traces(traces, roads, tmp_path / "w.parquet", interval_s=10.0)
    assert summary.points - summary.matched_points == 1
    assert summary.breaks == {"gap": 1, "off_road": 1, "no_route": 0}
    assert summary.walks == 5
    assert summary.short_stretches == 0


def test_one_point_trips_give_no_walk_and_are_counted(roads: Path, tmp_path: Path) -> None:
    drives = drive(TOWN, 1, seed=1)
    count = len(drives.trip)
    traces = write_traces(tmp_path / "t.parquet", drives, trip=np.arange(count))
    summary = match_traces(traces, roads, tmp_path / "w.parquet")
    assert (summary.walks, summary.steps, summary.short_stretches) == (0, 0, count)
    assert summary.matched_share == 1.0
    assert scan_walks(tmp_path / "w.parquet")[0].collect().is_empty()


@pytest.mark.parametrize("method", ["hmm", "nearest"])
def test_standing_still_with_repeated_times(roads: Path, tmp_path: Path, method: Method) -> None:
    seconds = np.repeat(np.arange(0, 120, 20), 2)
    count = len(seconds)
    traces = write_traces(
        tmp_path / "t.parquet",
        trip=np.zeros(count),
        time_us=START_US + seconds * 1_000_000,
        lat=np.full(count, TOWN.lat[40]),
        lon=np.full(count, TOWN.lon[40]),
    )
    match_traces(traces, roads, tmp_path / "w.parquet", options=MatchOptions(method=method))
    walks = scan_walks(tmp_path / "w.parquet")[0].collect()
    assert walks["place"].to_list() == [40] * 4
    assert walks["speed_m_s"].to_list() == [None, 0.0, 0.0, 0.0]


def test_speed_of_a_step_does_not_depend_on_later_points(roads: Path, tmp_path: Path) -> None:
    exact = drive(TOWN, 1, interval_s=30.0, seed=2)
    match_traces(
        write_traces(tmp_path / "t.parquet", exact),
        roads,
        tmp_path / "w.parquet",
        options=MatchOptions(method="nearest", snap_m=300.0),
    )
    speed = scan_walks(tmp_path / "w.parquet")[0].collect()["speed_m_s"].to_numpy()
    straight = haversine_m(exact.lat[:-1], exact.lon[:-1], exact.lat[1:], exact.lon[1:])
    np.testing.assert_allclose(speed[1:], straight / 30, rtol=1e-5)


class TestBadInput:
    @pytest.mark.parametrize("method", ["hmm", "nearest"])
    def test_traces_of_another_city(self, roads: Path, tmp_path: Path, method: Method) -> None:
        traces = write_traces(tmp_path / "t.parquet", DRIVES, lat=DRIVES.lat + 5.0)
        with pytest.raises(InputError, match=r"t\.parquet: none of its \d+ points lies within .* same area") as caught:
            match_traces(traces, roads, tmp_path / "w.parquet", options=MatchOptions(method=method))
        assert f"{DRIVES.lat[0] + 5:.3f}" not in str(caught.value)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["t.parquet", "town.roads"]

    def test_no_points(self, roads: Path, tmp_path: Path) -> None:
        empty = write_traces(tmp_path / "t.parquet", trip=[], time_us=[], lat=[], lon=[])
        with pytest.raises(InputError, match="has no points"):
            match_traces(empty, roads, tmp_path / "w.parquet")

    def test_traces_and_roads_swapped(self, traces: Path, roads: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="not a table of traces"):
            match_traces(roads, traces, tmp_path / "w.parquet")

    def test_roads_that_are_traces(self, traces: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="not a road graph"):
            match_traces(traces, traces, tmp_path / "w.parquet")

    def test_walks_instead_of_traces(self, traces: Path, roads: Path, tmp_path: Path) -> None:
        match_traces(traces, roads, tmp_path / "w.parquet")
        with pytest.raises(InputError, match="not a table of traces"):
            match_traces(tmp_path / "w.parquet", roads, tmp_path / "v.parquet")

    def test_roads_without_edges(self, traces: Path, tmp_path: Path) -> None:
        TOWN.keep_nodes(np.arange(TOWN.node_count) == 0).save(tmp_path / "r")
        with pytest.raises(InputError, match="no edges"):
            match_traces(traces, tmp_path / "r", tmp_path / "w.parquet")

    @pytest.mark.parametrize(
        ("option", "value"),
        [("interval_s", 0.0), ("interval_s", np.nan), ("workers", 0)],
    )
    def test_options(self, traces: Path, roads: Path, tmp_path: Path, option: str, value: float | str) -> None:
        with pytest.raises(ParameterError, match=option.removesuffix("_s")):
            match_traces(traces, roads, tmp_path / "w.parquet", **{option: value})  # type: ignore[arg-type]

    @pytest.mark.parametrize(("option", "value"), [("method", "magic"), ("snap_m", 0.0), ("candidates", 101)])
    def test_options_of_the_method(self, option: str, value: Any) -> None:
        with pytest.raises(ParameterError, match=option):
            MatchOptions(**{option: value})

    def test_the_folder_is_missing(self, traces: Path, roads: Path, tmp_path: Path) -> None:
        with pytest.raises(OutputError, match="does not exist"):
            match_traces(traces, roads, tmp_path / "no" / "w.parquet")

    def test_an_interrupt_leaves_nothing_behind(self, traces: Path, roads: Path, tmp_path: Path) -> None:
        def interrupt(phase: str, done: float, total: float | None) -> None:
            if done == total:
                raise KeyboardInterrupt(phase)

        with pytest.raises(KeyboardInterrupt):
            match_traces(traces, roads, tmp_path / "w.parquet", progress=interrupt)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["town.roads", "traces.parquet"]


def test_a_matcher_is_not_kept_for_changed_roads(traces: Path, roads: Path, tmp_path: Path) -> None:
    first = match_traces(traces, roads, tmp_path / "w.parquet")
    town(6, 6).save(roads)
    second = match_traces(traces, roads, tmp_path / "w.parquet")
    assert second.matched_points < first.matched_points
    assert RoadGraph.load(roads).identity == scan_walks(tmp_path / "w.parquet")[1]["roads"]


def test_max_gap_holds_for_both_methods(roads: Path, tmp_path: Path) -> None:
    traces = write_traces(tmp_path / "t.parquet", drive(TOWN, 2, interval_s=40.0, seed=3))
    for method in ("hmm", "nearest"):
        summary = match_traces(
            traces, roads, tmp_path / "w.parquet", options=MatchOptions(method=method, snap_m=300.0, max_gap_s=39.0)
        )
        assert summary.walks == 0
        assert summary.breaks["gap"] == summary.points - 2
