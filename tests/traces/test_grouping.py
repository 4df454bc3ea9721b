from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geoblanket.traces.importing import gather_by_vehicle, to_streams


def frames(vehicles: list[list[str]]) -> list[pl.DataFrame]:
    """Batches of points, numbered through."""
    batches, row = [], 0
    for names in vehicles:
        numbers = list(range(row, row + len(names)))
        row += len(names)
        batches.append(pl.DataFrame({"vehicle": names, "row": numbers}, schema={"vehicle": pl.String, "row": pl.Int64}))
    return batches


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "c", "dd", "e", "10", "9"]), max_size=8), max_size=8),
    st.integers(1, 20),
)
def test_vehicles_come_together_in_order_however_little_fits_in_memory(
    tmp_path: Path, vehicles: list[list[str]], max_rows: int
) -> None:
    gathered = list(gather_by_vehicle(frames(vehicles), workspace=tmp_path, max_rows=max_rows))
    seen: list[str] = []
    for frame in gathered:
        names = sorted(set(frame["vehicle"]))
        assert frame.height <= max_rows or len(names) == 1
        assert not seen or seen[-1] < names[0]
        seen += names
        for points in frame.partition_by("vehicle"):
            assert points["row"].is_sorted()
    rows = sorted(row for frame in gathered for row in frame["row"])
    assert rows == list(range(sum(map(len, vehicles))))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("vehicles", [[["a"] * 50, ["b"] * 50, ["c"] * 50], [["c"] * 50, ["b"] * 50, ["a"] * 50]])
def test_a_file_sorted_by_vehicle_is_split_again(tmp_path: Path, vehicles: list[list[str]]) -> None:
    gathered = list(gather_by_vehicle(frames(vehicles), workspace=tmp_path, max_rows=50))
    assert [frame["vehicle"].unique().to_list() for frame in gathered] == [["a"], ["b"], ["c"]]


def test_streams_are_numbered_by_vehicle_then_start() -> None:
    frame = pl.DataFrame(
        {
            "vehicle": ["b", "a", "a", "a"],
            "trip": ["x", "x", "w", "x"],
            "row": [2, 3, 4, 5],
            "time": [9, 5, 7, 6],
            "lat": [1.0, 2.0, 3.0, 4.0],
            "lon": [0.0] * 4,
        }
    )
    streams = to_streams(frame)
    assert streams.vehicles.to_list() == ["a", "a", "b"]
    assert streams.points.stream.tolist() == [0, 0, 1, 2]
    assert streams.points.row.tolist() == [3, 5, 4, 2]
