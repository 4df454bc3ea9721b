from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket.errors import InputError, MismatchError, OutputError, ParameterError
from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.release.bulk import RELEASED_CELLS_SCHEMA, perturb_walks
from geoblanket.tracking import released as released_module
from geoblanket.tracking import table as table_module
from geoblanket.tracking.released import ReleasedTable
from geoblanket.tracking.table import TRACKED_CELLS_SCHEMA, TRACKED_SCHEMA, track_table
from geoblanket.tracking.tracker import Tracker
from tests.release.worlds import GRAPH, save_certain, save_walks
from tests.tracking.lattice_reports import SLOT, cells_near, near_model, save_cells


def many(bundle: Bundle, *, vehicles: int = 5, reports: int = 12) -> list[tuple[str | None, int, int | None]]:
    """Vehicles at rest, their reports in no order."""
    rows: list[tuple[str | None, int, int | None]] = []
    for vehicle in range(vehicles):
        cells = cells_near(bundle, near_model(), [20 + vehicle] * reports)
        rows += [(f"v{vehicle}", SLOT + 2 * slot, cell) for slot, cell in enumerate(cells)]
    np.random.default_rng(0).shuffle(rows)
    return rows


def test_estimates_are_those_of_a_tracker_and_everything_else_stays(city: Bundle, tmp_path: Path) -> None:
    rows = many(city)
    path = save_cells(tmp_path / "released.parquet", city, rows)
    summary = track_table(path, tmp_path / "tracked.parquet", bundle=city, model=near_model())
    before, after = pl.read_parquet(path), pl.read_parquet(tmp_path / "tracked.parquet")
    assert dict(after.schema) == TRACKED_CELLS_SCHEMA | {"geometry": pl.Binary()}
    kept = [name for name in RELEASED_CELLS_SCHEMA if name not in ("lat", "lon")]
    assert after.select(kept).equals(before.select(kept))
    assert after["reported_lat"].equals(before["lat"], check_names=False)
    assert after["reported_lon"].equals(before["lon"], check_names=False)
    tracker = Tracker(city, near_model())
    for index in np.argsort([slot for _, slot, _ in rows], kind="stable").tolist():
        vehicle, slot, cell = rows[index]
        tracked = tracker.see(vehicle, slot, int(cell or 0))
        found = after.row(index, named=True)
        assert haversine_m(tracked.lat, tracked.lon, found["lat"], found["lon"]) < 0.5
        assert found["radius_m"] == pytest.approx(tracked.radius_m, abs=20)
    assert (summary.reports, summary.vehicles, summary.repeated, summary.impossible) == (60, 5, 0, 0)
    assert summary.median_radius_m == pytest.approx(after["radius_m"].median(), abs=20)
    assert summary.model == "from distances between places alone"


def test_it_says_how_it_was_made(city: Bundle, tmp_path: Path) -> None:
    path = save_cells(tmp_path / "released.parquet", city, many(city))
    model = near_model()
    track_table(path, tmp_path / "tracked.parquet", bundle=city, model=model, ahead_s=60)
    about = pl.read_parquet_metadata(tmp_path / "tracked.parquet")["geoblanket"]
    for part in ('"kind": "tracked cells"', city.sha256, model.identity, '"ahead_s": 60', '"smoothed": false'):
        assert part in about


def test_zones_keep_their_columns(tmp_path: Path) -> None:
    GRAPH.save(tmp_path / "town.roads")
    walks = save_walks(tmp_path / "walks.parquet", [[0, 1, 2, 8], [3, 9, 10], [14, 8, 7, 6, 0]])
    bundle = load_bundle(save_certain(tmp_path / "town.bundle", epsilon=1.0))
    perturb_walks(walks, tmp_path / "town.roads", tmp_path / "released.parquet", bundle=bundle)
    track_table(tmp_path / "released.parquet", tmp_path / "tracked.parquet", bundle=bundle)
    tracked = pl.read_parquet(tmp_path / "tracked.parquet")
    assert dict(tracked.schema) == TRACKED_SCHEMA | {"geometry": pl.Binary()}
    assert tracked.height == 12


def test_a_vehicle_at_rest_is_found_and_later_reports_help(city: Bundle, tmp_path: Path) -> None:
    """Radii are means over twenty vehicles: reports are drawn by the system's randomness, and single radii scatter."""
    model, vehicles, slots = near_model(), 20, 60
    cells = iter(cells_near(city, model, [24] * vehicles * slots))
    reports = [(f"vehicle {name}", SLOT + slot, next(cells)) for name in range(vehicles) for slot in range(slots)]
    path = save_cells(tmp_path / "released.parquet", city, reports)

    def radius_m(**options: Any) -> np.ndarray:
        track_table(path, tmp_path / "tracked.parquet", bundle=city, model=model, **options)
        radii = pl.read_parquet(tmp_path / "tracked.parquet")["radius_m"].to_numpy()
        return np.asarray(radii.reshape(vehicles, slots))

    filtered, smoothed, later = radius_m(), radius_m(smoothed=True), radius_m(ahead_s=600)
    assert filtered[:, 0].mean() > filtered[:, -1].mean()
    assert smoothed[:, :20].mean() < filtered[:, :20].mean()
    assert (smoothed[:, -1] == filtered[:, -1]).all()
    assert later.mean() > filtered.mean()


@pytest.mark.parametrize("smoothed", [False, True])
def test_a_vehicle_at_rest_that_repeats_its_report_is_not_found(
    holding: Bundle, tmp_path: Path, *, smoothed: bool
) -> None:
    model = near_model()
    cells = [3920, 4010, *[4100] * 60]
    path = save_cells(tmp_path / "released.parquet", holding, [("a", SLOT + t, cell) for t, cell in enumerate(cells)])
    track_table(path, tmp_path / "tracked.parquet", bundle=holding, model=model, smoothed=smoothed)
    tracked = pl.read_parquet(tmp_path / "tracked.parquet", columns=["lat", "lon", "radius_m"])
    assert tracked[2:].n_unique() == 1
    assert tracked[:3].n_unique() == 3


def test_of_two_reports_in_a_slot_the_first_counts(city: Bundle, tmp_path: Path) -> None:
    cells = cells_near(city, near_model(), [24, 24, 24])
    other = cells_near(city, near_model(), [0])[0]
    alone = [("a", SLOT, cells[0]), ("a", SLOT + 1, cells[1]), ("a", SLOT + 2, cells[2])]
    with_more = [*alone[:2], ("a", SLOT + 1, other), alone[2]]
    tables = []
    for name, rows in (("alone", alone), ("more", with_more)):
        path = save_cells(tmp_path / f"{name}.parquet", city, rows)
        summary = track_table(path, tmp_path / "tracked.parquet", bundle=city, model=near_model())
        tables.append(pl.read_parquet(tmp_path / "tracked.parquet").select("lat", "lon", "radius_m"))
    assert summary.repeated == 1
    assert tables[1][[0, 1, 3]].equals(tables[0])
    assert tables[1].row(2) == tables[1].row(1)


def test_parts_hold_whole_vehicles_and_do_not_change_the_result(
    city: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_cells(tmp_path / "released.parquet", city, many(city))
    track_table(path, tmp_path / "whole.parquet", bundle=city, model=near_model())
    parts = list(ReleasedTable(path, city).parts(outputs=10**6, rows=25))
    assert [len(part.row) for part in parts] == [24, 24, 12]
    assert sorted(np.concatenate([part.row for part in parts]).tolist()) == list(range(60))
    monkeypatch.setattr(released_module.ReleasedTable.parts, "__kwdefaults__", {"rows": 25})
    monkeypatch.setattr(table_module, "_ROWS_IN_MEMORY", 10)
    monkeypatch.setattr(table_module, "_ROWS_AT_A_TIME", 7)
    track_table(path, tmp_path / "parts.parquet", bundle=city, model=near_model())
    whole, in_parts = (pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("whole", "parts"))
    same = [name for name in whole.columns if name not in ("lat", "lon", "radius_m", "geometry")]
    assert in_parts.select(same).equals(whole.select(same))
    assert in_parts["lat"].to_numpy() == pytest.approx(whole["lat"].to_numpy(), abs=1e-6)
    assert in_parts["radius_m"].to_numpy() == pytest.approx(whole["radius_m"].to_numpy(), abs=20)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["parts.parquet", "released.parquet", "whole.parquet"]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "has no reports"),
        ([(None, SLOT, 3)], "some reports have no vehicle"),
        ([("a", SLOT, 3), ("a", SLOT + 1, None)], "report 2 of the table has no cell"),
        ([("a", SLOT, 3), ("a", SLOT + 1, 10**8)], "report 2 of the table has a cell that the bundle does not have"),
        ([("a", SLOT, -1)], "report 1 of the table has a cell that the bundle does not have"),
        ([("a", 5 * SLOT, 3)], "report 1 of the table has a time before 1970 or after 2099"),
        ([("a", -1, 3)], "report 1 of the table has a time before 1970 or after 2099"),
    ],
)
def test_what_cannot_be_is_refused(city: Bundle, tmp_path: Path, rows: list[Any], problem: str) -> None:
    path = save_cells(tmp_path / "released.parquet", city, rows)
    with pytest.raises(InputError, match=problem):
        track_table(path, tmp_path / "tracked.parquet", bundle=city, model=near_model())
    assert not (tmp_path / "tracked.parquet").exists()


def test_what_does_not_belong_together_is_refused(city: Bundle, holding: Bundle, tmp_path: Path) -> None:
    path = save_cells(tmp_path / "released.parquet", city, many(city))
    out = tmp_path / "tracked.parquet"
    with pytest.raises(MismatchError, match="was made by another bundle"):
        track_table(path, out, bundle=holding, model=near_model())
    zones = load_bundle(save_certain(tmp_path / "town.bundle"))
    with pytest.raises(InputError, match=r"is not a table of released locations .*: it is a table of released cells"):
        track_table(path, out, bundle=zones)
    for at in ((48.1, 11.6), (41.15, -8.5)):
        with pytest.raises(MismatchError, match="motion model is of another city: 49 of its 49 places"):
            track_table(path, out, bundle=city, model=near_model(at=at))
    with pytest.raises(MismatchError, match="takes 45 s"):
        track_table(path, out, bundle=city, model=near_model(interval_s=45))
    with pytest.raises(InputError, match="is not a table of released cells"):
        track_table(tmp_path / "town.bundle", out, bundle=city)
    with pytest.raises(MismatchError, match="was made by another bundle"):
        track_table(save_cells(tmp_path / "b.parquet", city, many(city), {"bundle": "5"}), out, bundle=city)
    assert not out.exists()


def test_options_that_cannot_be(city: Bundle, tmp_path: Path) -> None:
    path = save_cells(tmp_path / "released.parquet", city, many(city))
    out = tmp_path / "tracked.parquet"
    with pytest.raises(ParameterError, match="exclude each other"):
        track_table(path, out, bundle=city, smoothed=True, ahead_s=30)
    for ahead_s in (-30, 45, 7230, float("nan"), float("inf")):
        with pytest.raises(ParameterError, match="0 to 7,200 seconds"):
            track_table(path, out, bundle=city, model=near_model(), ahead_s=ahead_s)
    with pytest.raises(ParameterError, match="both read and written"):
        track_table(path, path, bundle=city)
    with pytest.raises(OutputError, match="does not exist"):
        track_table(path, tmp_path / "absent" / "a.parquet", bundle=city)
    assert path.exists()


def test_a_result_is_there_wholly_or_not_at_all(city: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_cells(tmp_path / "released.parquet", city, many(city))
    monkeypatch.setattr(table_module, "_ROWS_AT_A_TIME", 7)
    steps = iter(range(4))

    def fails(phase: str, done: float, total: float | None) -> None:
        del phase, done, total
        if next(steps) == 3:
            raise KeyboardInterrupt

    (tmp_path / "tracked.parquet").write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt):
        track_table(path, tmp_path / "tracked.parquet", bundle=city, model=near_model(), progress=fails)
    assert (tmp_path / "tracked.parquet").read_bytes() == b"before"
    assert len(list(tmp_path.iterdir())) == 2
