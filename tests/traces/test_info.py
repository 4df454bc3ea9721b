from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket._tables import write_table
from geoblanket.errors import InputError
from geoblanket.traces.table import QUANTILES, TRACES_SCHEMA, describe_traces

START = datetime(2014, 2, 1, tzinfo=UTC)


def table(path: Path, rows: list[tuple[str, int, float, float, float]]) -> Path:
    moved = [(vehicle, trip, START + timedelta(seconds=second), lat, lon) for vehicle, trip, second, lat, lon in rows]
    write_table(pl.DataFrame(moved, schema=TRACES_SCHEMA, orient="row"), path, kind="traces", about={})
    return path


def test_facts_agree_with_numpy(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        (f"v{trip % 3}", trip, 1000.0 * trip + 10.0 * k, 41.9 + rng.normal(0, 0.001), 12.5 + rng.normal(0, 0.001))
        for trip in range(7)
        for k in range(2 + 3 * trip)
    ]
    facts = describe_traces(table(tmp_path / "t.parquet", rows))
    _, trip, second, lat, lon = (np.array(column) for column in zip(*rows, strict=True))
    same = np.diff(trip) == 0
    speed = haversine_m(lat[:-1], lon[:-1], lat[1:], lon[1:])[same] / np.diff(second)[same]
    sizes = np.bincount(trip)
    assert (facts.vehicles, facts.trips, facts.points) == (3, 7, len(rows))
    assert facts.median_step_s == 10.0
    assert facts.trip_points == pytest.approx(np.quantile(sizes, QUANTILES))
    assert facts.trip_duration_s == pytest.approx(np.quantile(10.0 * (sizes - 1), QUANTILES))
    assert facts.speed_m_s == pytest.approx(np.quantile(speed, QUANTILES))
    assert (facts.first, facts.last) == (START, START + timedelta(seconds=second.max()))
    assert (facts.south, facts.north, facts.west, facts.east) == (41.8, 42.0, 12.4, 12.6)
    assert json.loads(json.dumps(facts.to_json(), allow_nan=False))["first"] == "2014-02-01T00:00:00+00:00"


def test_points_at_the_same_time_have_no_speed(tmp_path: Path) -> None:
    facts = describe_traces(table(tmp_path / "t.parquet", [("a", 0, 0.0, 41.9, 12.5), ("a", 0, 0.0, 41.8, 12.5)]))
    assert facts.speed_m_s is None
    assert facts.median_step_s == 0.0


def test_trips_of_one_point_have_no_steps(tmp_path: Path) -> None:
    facts = describe_traces(table(tmp_path / "t.parquet", [("a", 0, 0.0, 41.9, 12.5), ("a", 1, 5.0, 41.9, 12.5)]))
    assert (facts.median_step_s, facts.speed_m_s, facts.still_share) == (None, None, None)


def test_standing_still_is_counted(tmp_path: Path) -> None:
    rows = [("a", 0, 10.0 * k, 41.9 + (0.001 if k > 2 else 0.0), 12.5) for k in range(5)]
    assert describe_traces(table(tmp_path / "t.parquet", rows)).still_share == 0.75


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        describe_traces(table(tmp_path / "t.parquet", []))


def test_another_file_is_refused(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match="not a table of traces"):
        describe_traces(tmp_path / "t.parquet")
