from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from geoblanket._display import silent
from geoblanket._tables import scan_table, write_table
from geoblanket.cli.main import app
from geoblanket.errors import InputError, MismatchError, ParameterError, PolicyError, RandomnessError
from geoblanket.mechanism import Bundle, load_bundle
from geoblanket.mechanism.bundle.policy import Policy
from geoblanket.mechanism.bundle.storage import LatticeBundle
from geoblanket.release import Budget, Device, bulk, perturb_traces, perturb_walks
from geoblanket.release.bulk import RELEASED_CELLS_SCHEMA, _PointRun, _Vehicle, perturb_points, perturb_walk_points
from geoblanket.release.fence import NO_FENCES, Fences
from geoblanket.traces.table import TRACES_SCHEMA
from tests.release.lattices import LAT, LON, START, deviation, save_small
from tests.release.worlds import GRAPH, PLACES, save_walks


def save_traces(path: Path, **columns: Any) -> Path:
    """Traces of seconds since START."""
    columns["time"] = (np.asarray(columns["time"], np.float64) * 1e6).astype(np.int64) + START * 10**6
    count = len(columns["time"])
    columns.setdefault("lat", np.full(count, LAT))
    columns.setdefault("lon", np.full(count, LON))
    frame = pl.DataFrame(columns).select(list(TRACES_SCHEMA)).cast(pl.Schema(TRACES_SCHEMA))
    write_table(frame, path, kind="traces", about={})
    return path


def released(path: Path) -> pl.DataFrame:
    frame, _ = scan_table(path, kind="released cells", schema=RELEASED_CELLS_SCHEMA)
    return frame.collect()


@pytest.mark.parametrize("rows", [3, 1_000_000])
def test_each_vehicle_has_one_report_in_a_slot(
    lattice_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Two trips of one vehicle meet in a slot; a third one lies within the first; another vehicle is on its own."""
    monkeypatch.setattr(bulk, "_ROWS_AT_A_TIME", rows)
    trips = [
        ("a", [0, 10, 29, 30, 61, 100, 3590, 3599, 3600]),
        ("a", [3605, 3629, 3631, 3700]),
        ("b", [5, 20, 40]),
        ("a", [95, 119, 3639, 3661, 9000]),
    ]
    traces = save_traces(
        tmp_path / "t.parquet",
        vehicle=[name for name, times in trips for _ in times],
        trip=[number for number, (_, times) in enumerate(trips) for _ in times],
        time=[time for _, times in trips for time in times],
    )
    summary = perturb_points(traces, tmp_path / "out.parquet", bundle=lattice_bundle)
    reports = released(tmp_path / "out.parquet")
    slots = (reports["slot"] - START // 30).to_list()
    expected = [0, 1, 2, 3, 119, 120, 121, 123, 0, 1, 300]
    # Where the table is read row by row, trips that overlap are known to do so only as far as they were read.
    assert slots == expected or (rows == 3 and set(expected) <= set(slots))
    assert reports.select("vehicle", "slot").is_unique().all()
    assert reports["time"].to_physical().to_list() == [30_000_000 * slot for slot in reports["slot"].to_list()]
    assert (summary.points, summary.reports, summary.vehicles) == (21, len(slots), 2)
    assert (summary.epsilon_per_report, summary.epsilon_per_hour) == (2.0, 240.0)
    assert summary.draws == summary.reports  # nothing is held
    assert summary.epsilon_spent == 2.0 * summary.most_draws == 2.0 * (len(slots) - 2)
    assert summary.points_outside == 0


def test_any_stretches_of_slots_are_reported_once() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        vehicle, seen = _Vehicle(), set()
        for _ in range(8):
            first = int(rng.integers(0, 60))
            slots = np.arange(first, first + int(rng.integers(1, 12)))
            free = vehicle.free(slots)
            assert free.tolist() == [slot not in seen for slot in slots.tolist()]
            seen |= set(slots.tolist())
        assert vehicle.reports == len(seen)
        stretches = vehicle._stretches.tolist()
        assert stretches == sorted(stretches)


@pytest.mark.usefixtures("fixed_randomness")
def test_reports_follow_the_weights(lattice_bundle: Bundle, tmp_path: Path) -> None:
    assert isinstance(lattice_bundle, LatticeBundle)
    count = 12_000
    traces = save_traces(
        tmp_path / "t.parquet",
        vehicle=[f"v{number % 40}" for number in range(count)],
        trip=np.arange(count),
        time=3600.0 * (np.arange(count) // 40),
    )
    perturb_points(traces, tmp_path / "out.parquet", bundle=lattice_bundle)
    cells = released(tmp_path / "out.parquet")
    assert abs(deviation(cells["cell"], lattice_bundle.lattice.weights(LAT, LON) / 2**62)) < 4
    lat, lon = lattice_bundle.lattice.centers(cells["cell"].to_numpy())
    assert np.abs(cells["lat"].to_numpy() - lat).max() < 1e-7 > np.abs(cells["lon"].to_numpy() - lon).max()


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(save_small(tmp_path_factory.mktemp("held") / "a.bundle", cells=41, hold_m=50.0))


@pytest.mark.parametrize("rows", [7, 1_000_000])
def test_reports_at_rest_are_held_as_by_a_device(
    held: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Random walks of two vehicles in a fence and outside: which reports are new draws, in bulk and by devices."""
    monkeypatch.setattr(bulk, "_ROWS_AT_A_TIME", rows)
    rng = np.random.default_rng(2)
    steps = 400
    still = rng.random((2, steps, 1)) < 0.7
    moves = np.where(still, rng.normal(0, 10, (2, steps, 2)), rng.normal(0, 150, (2, steps, 2)))
    lat, lon = (np.array([LAT, LON])[:, None, None] + np.moveaxis(np.cumsum(moves, axis=1) / 111_195, 2, 0)).tolist()
    fences, _ = Fences().with_place(LAT, LON, radius_km=0.3)
    traces = save_traces(
        tmp_path / "t.parquet",
        vehicle=["a"] * steps + ["b"] * steps,
        trip=[step // 100 for step in range(2 * steps)],  # a stay goes on from trip to trip
        time=[30.0 * step for step in range(steps)] * 2,
        lat=lat[0] + lat[1],
        lon=lon[0] + lon[1],
    )
    summary = perturb_points(traces, tmp_path / "out.parquet", bundle=held, fences=fences)
    cells = released(tmp_path / "out.parquet")["cell"].to_numpy().reshape(2, steps)
    draws = []
    for vehicle in range(2):
        with Device.open(held, ledger=None, budget=Budget(1e8, 86_400), replay=True, fences=fences) as device:
            left = [
                device.report(lat[vehicle][step], lon[vehicle][step], START + 30 * step).left_micro
                for step in range(steps)
            ]
        fresh = np.diff([10**14, *left]) < 0
        assert (cells[vehicle, 1:] == cells[vehicle, :-1])[~fresh[1:]].all()
        assert (cells[vehicle, 1:] != cells[vehicle, :-1])[fresh[1:]].mean() > 0.9
        draws.append(int(fresh.sum()))
    assert (summary.reports, summary.draws, summary.most_draws) == (2 * steps, sum(draws), max(draws))
    assert summary.epsilon_spent == 2.0 * max(draws)
    assert 50 < sum(draws) < steps


def test_the_fenced_position_is_all_that_bulk_reports_depend_on(
    held: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lives that differ inside the fence alone have the same reports for the same random words."""
    fences, _ = Fences().with_place(LAT, LON, radius_km=0.5)
    rng = np.random.default_rng(4)
    outside = (np.arange(60) // 10 % 2).astype(bool)
    reports = []
    for _ in range(2):
        inside = rng.uniform(-200, 200, (2, 60)) / 111_195
        lat, lon = np.where(outside, [[LAT + 0.02], [LON]], np.array([[LAT], [LON]]) + inside)
        traces = save_traces(
            tmp_path / "t.parquet", vehicle=["a"] * 60, trip=[0] * 60, time=30 * np.arange(60), lat=lat, lon=lon
        )
        monkeypatch.setattr(os, "urandom", np.random.default_rng(9).bytes)
        perturb_points(traces, tmp_path / "out.parquet", bundle=held, fences=fences)
        reports.append(released(tmp_path / "out.parquet"))
    assert reports[0].equals(reports[1])
    perturb_points(traces, tmp_path / "out.parquet", bundle=held)
    assert not reports[0].equals(released(tmp_path / "out.parquet"))


def test_walks_are_reported_from_their_places(tmp_path: Path) -> None:
    bundle = load_bundle(save_small(tmp_path / "a.bundle", cells=41, epsilon=4.0))
    GRAPH.save(tmp_path / "a.roads")
    walks = save_walks(tmp_path / "w.parquet", [[0, 1, 2, 8], [9, 10]])
    summary = perturb_walk_points(walks, tmp_path / "a.roads", tmp_path / "out.parquet", bundle=bundle)
    assert (summary.reports, summary.draws) == (6, 6)
    assert summary.points_outside == sum(
        not bundle.lattice.spec.plane.holds(PLACES.lat[place], PLACES.lon[place])  # type: ignore[union-attr]
        for place in (0, 1, 2, 8, 9, 10)
    )
    with pytest.raises(MismatchError, match="other roads"):
        save_walks(tmp_path / "w.parquet", [[0]], roads="0" * 64)
        perturb_walk_points(walks, tmp_path / "a.roads", tmp_path / "out.parquet", bundle=bundle)


def test_what_cannot_be_perturbed_is_refused_and_nothing_is_written(
    lattice_bundle: Bundle, spread: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.parquet"
    traces = save_traces(tmp_path / "t.parquet", vehicle=["a"] * 3, trip=[0, 0, 0], time=[0, 30, 60])
    with pytest.raises(MismatchError, match="no lattice"):
        perturb_points(traces, out, bundle=spread)
    for zones_only in (perturb_traces, perturb_walks):
        with pytest.raises(MismatchError, match="The bundle has a lattice, no zones"):
            zones_only(traces, tmp_path / "absent.roads", out, bundle=lattice_bundle)
    with pytest.raises(PolicyError, match="more than 1"):
        perturb_points(traces, out, bundle=lattice_bundle, policy=Policy(largest_epsilon=1.0))
    with pytest.raises(ParameterError, match="both read and written"):
        perturb_points(traces, traces, bundle=lattice_bundle)
    for trips, times in (([0, 0], [30, 0]), ([1, 0], [0, 30])):
        wrong = save_traces(tmp_path / "wrong.parquet", vehicle=["a"] * 2, trip=trips, time=times)
        with pytest.raises(InputError, match="not in order of trips and times"):
            perturb_points(wrong, out, bundle=lattice_bundle)
    nowhere = save_traces(tmp_path / "wrong.parquet", vehicle=["a"], trip=[0], time=[0], lat=[91.0])
    with pytest.raises(InputError, match="place on Earth"):
        perturb_points(nowhere, out, bundle=lattice_bundle)
    with pytest.raises(InputError, match="has no points"):
        perturb_points(
            save_traces(tmp_path / "wrong.parquet", vehicle=[], trip=[], time=[]), out, bundle=lattice_bundle
        )

    def fail(_: int) -> bytes:
        raise OSError("no entropy")

    monkeypatch.setattr("geoblanket.mechanism.sampling.os.urandom", fail)
    with pytest.raises(RandomnessError):
        perturb_points(traces, out, bundle=lattice_bundle)
    assert not out.exists()


def test_memory_is_bounded(held: Bundle) -> None:
    """Ten times as many points take but a little more memory: 16 bytes for each trip of a vehicle."""

    def batches(count: int) -> Iterator[pl.DataFrame]:
        rows = np.arange(1_000)
        for batch in range(count):
            trip = 10 * batch + rows // 100
            seconds = START + 3000 * trip + 30 * (rows % 100)
            columns = {"trip": trip, "time": seconds * 10**6, "lat": np.full(1_000, LAT), "lon": np.full(1_000, LON)}
            yield pl.DataFrame({"vehicle": ["a"] * 1_000} | columns).cast(pl.Schema(TRACES_SCHEMA))

    peaks = []
    for count in (2, 6, 60):
        run = _PointRun(held, Path("t.parquet"), NO_FENCES, silent)
        run._batches = batches(count)
        tracemalloc.start()
        reports = sum(part.height for part in run.reports())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert reports == run.summary().reports == 1_000 * count
    assert peaks[2] < peaks[1] + 200_000  # kept as a whole, 54,000 more points would take megabytes


def test_the_command_needs_no_roads_and_says_what_it_costs(lattice_path: Path, tmp_path: Path) -> None:
    traces = save_traces(tmp_path / "t.parquet", vehicle=["a"] * 300, trip=[0] * 300, time=10.0 * np.arange(300))
    command = ["perturb", str(lattice_path), "--out", str(tmp_path / "out.parquet"), "--overwrite"]
    done = CliRunner().invoke(app, [*command, "--traces", str(traces)])
    assert done.exit_code == 0, done.output
    told = " ".join(done.stderr.split())
    assert "Every draw spent 2 per km of the budget." in told
    assert "An hour on the road, one report every 30 s, adds up to 240 per km at most." in told
    assert "The vehicle with the most draws (100) spent 200 per km" in told
    done = CliRunner().invoke(app, [*command, "--traces", str(traces), "--json"])
    assert json.loads(done.stdout)["reports"] == 100
    assert "--walks needs --roads" in str(CliRunner().invoke(app, [*command, "--walks", str(traces)]).exception)
