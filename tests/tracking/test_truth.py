from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket._tables import write_table
from geoblanket.errors import InputError, MismatchError
from geoblanket.traces.table import TRACES_SCHEMA
from geoblanket.tracking.table import TRACKED_CELLS_SCHEMA, compare_with_truth

LAT, LON = 41.15, -8.61
DEGREE_M = float(haversine_m(0.0, 0.0, 1.0, 0.0))


def save_tracked(path: Path, vehicles: list[str], seconds: list[int], north_m: list[float], **about: object) -> Path:
    """Reports 300 m and estimates so many metres north of the truth, with circles of 100 m."""
    frame = pl.DataFrame(
        {
            "vehicle": vehicles,
            "trip": 0,
            "slot": 0,
            "time": np.array(seconds) * 10**6,
            "cell": 0,
            "reported_lat": LAT + 300 / DEGREE_M,
            "reported_lon": LON,
            "lat": LAT + np.array(north_m) / DEGREE_M,
            "lon": LON,
            "radius_m": 100.0,
        }
    ).cast(pl.Schema(TRACKED_CELLS_SCHEMA))
    write_table(frame, path, kind="tracked cells", about=about)
    return path


def save_traces(path: Path, vehicles: list[str], seconds: list[int], east_m: list[float]) -> Path:
    frame = pl.DataFrame(
        {
            "vehicle": vehicles,
            "trip": 0,
            "time": np.array(seconds) * 10**6,
            "lat": LAT,
            "lon": LON + np.array(east_m) / DEGREE_M / np.cos(np.radians(LAT)),
        }
    ).cast(pl.Schema(TRACES_SCHEMA))
    write_table(frame.select(list(TRACES_SCHEMA)), path, kind="traces", about={})
    return path


def test_each_report_is_compared_with_its_own_vehicle_and_time(tmp_path: Path) -> None:
    """Vehicle b, at the same times, is 10 km away; a report without a true point near in time does not count."""
    tracked = save_tracked(
        tmp_path / "tracked.parquet", ["a", "a", "b", "a", "c"], [30, 60, 60, 9000, 30], [50, 150, 0, 0, 0]
    )
    traces = save_traces(
        tmp_path / "traces.parquet", ["a", "b", "a", "a"], [29, 61, 62, 7000], [0.0, 10_000.0, 0.0, 0.0]
    )
    found = compare_with_truth(tracked, traces)
    assert found.compared == 3
    far_m = float(haversine_m(LAT, LON, LAT, LON + 10_000 / DEGREE_M / np.cos(np.radians(LAT))))
    assert found.tracked_m == pytest.approx((50 + 150 + far_m) / 3, rel=1e-3)
    assert found.reports_m == pytest.approx((300 + 300 + np.hypot(far_m, 300)) / 3, rel=1e-3)
    assert found.within_radius == pytest.approx(1 / 3)
    # Two of three true points are at one place: no point is nearer to all than that.
    assert found.without_reports_m == pytest.approx(far_m / 3, rel=1e-2)


def test_other_vehicles_are_refused(tmp_path: Path) -> None:
    tracked = save_tracked(tmp_path / "tracked.parquet", ["a"], [30], [0.0])
    traces = save_traces(tmp_path / "traces.parquet", ["b"], [30], [0.0])
    with pytest.raises(MismatchError, match="No report"):
        compare_with_truth(tracked, traces)
    with pytest.raises(InputError, match="no such file"):
        compare_with_truth(tracked, tmp_path / "absent.parquet")
