from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket.blanket.groups import load_walks
from geoblanket.errors import InputError, MismatchError
from geoblanket.mobility import walks as walk_tables
from tests.blanket.worlds import Walk, frame_of, square, wandering, write_world


def test_windows_hold_the_past_of_each_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_tables, "_ROWS_AT_A_TIME", 37)  # many parts, with walks across their borders
    graph = square()
    walks = wandering(graph, side=12, walks=40, steps=9, seed=1)
    loaded = load_walks(*write_world(tmp_path, graph, walks))
    row = 0
    for walk in walks:
        for step, place in enumerate(walk.places):
            assert (loaded.place[row], loaded.depth[row]) == (place, step)
            past = walk.places[step::-1]
            window = loaded.windows(np.array([row]), step + 1)[0]
            east = haversine_m(graph.lat[past], graph.lon[past], graph.lat[past], graph.lon.mean())
            assert np.abs(window[:, 0]) == pytest.approx(east, rel=2e-3, abs=1e-6)
            assert window[:, 1] * 180 / np.pi / 6_371_008.8 + graph.lat.mean() == pytest.approx(graph.lat[past])
            row += 1
    assert row == len(loaded) == loaded.counts["steps"]
    assert loaded.counts["vehicles"] == 9


def test_speed_knows_only_the_places_of_the_blanket(tmp_path: Path) -> None:
    """Trap: the speed must not look at X_{t-m-1}. It is the same whatever that place is."""
    graph = square()
    walks = [Walk("a", 0, [0, 50, 62, 63]), Walk("b", 0, [143, 50, 62, 63])]
    loaded = load_walks(*write_world(tmp_path, graph, walks))
    for m in (1, 2):
        speed = loaded.speed_m_s(slice(0, 8), m)
        assert speed[3] == speed[7] > 0
    three = loaded.speed_m_s(slice(0, 8), 3)
    assert three[3] != three[7]
    two = haversine_m(graph.lat[[50, 62]], graph.lon[[50, 62]], graph.lat[[62, 63]], graph.lon[[62, 63]]).sum() / 60
    assert loaded.speed_m_s(slice(3, 4), 2)[0] == pytest.approx(two)


def test_hours_are_told_in_the_time_zone(tmp_path: Path) -> None:
    world = write_world(tmp_path, square(), [Walk("a", 22.5 * 3600, [0, 1]), Walk("a", 0, [0, 1])])
    assert load_walks(*world).hour.tolist() == [22, 22, 0, 0]
    assert load_walks(*world, time_zone="Europe/Lisbon").hour.tolist() == [23, 23, 1, 1]
    assert load_walks(*world, time_zone="Asia/Kolkata").hour.tolist() == [4, 4, 5, 5]


def test_a_walk_that_occurs_twice_counts_once(tmp_path: Path) -> None:
    walk = Walk("a", 60, [3, 4, 5])
    others = [Walk("b", 60, [3, 4, 5]), Walk("a", 90, [3, 4, 5]), Walk("a", 60, [3, 4, 6]), Walk("a", 60, [4, 3, 5])]
    loaded = load_walks(*write_world(tmp_path, square(), [walk, *others, walk, walk]))
    assert loaded.depth.tolist() == [0, 1, 2] * 5 + [0] * 6
    assert loaded.counts["repeated_walks"] == 2


def broken(column: str, value: int | None) -> pl.DataFrame:
    frame = frame_of([Walk("a", 0, [1, 2, 3]), Walk("b", 0, [4, 5, 6])])
    changed = pl.when(pl.int_range(pl.len()) == 4).then(value).otherwise(column)
    return frame.with_columns(changed.cast(frame.schema[column]).alias(column))


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (broken("place", None), "step 5 of the table has no place"),
        (broken("time", None), "some steps have no time"),
        (broken("place", 144), "step 5 of the table has a place that the roads do not have"),
        (broken("place", -1), "step 5 of the table has a place that the roads do not have"),
        (broken("step", 2), "step 5 of the table does not follow"),
        (broken("walk", 0), "step 5 of the table does not follow"),
        (pl.concat([frame_of([Walk("a", 0, [1, 2])])] * 2), "step 3 of the table does not follow"),
        (frame_of([Walk("a", 0, [1, 2, 3])]).sort("step", descending=True), "step 1 of the table does not follow"),
        (frame_of([Walk("a", 0, [1, 2, 3])]).gather([0, 1, 1, 2]), "step 3 of the table does not follow"),
        (frame_of([]), "has no steps"),
    ],
)
def test_a_changed_table_is_refused(tmp_path: Path, frame: pl.DataFrame, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        load_walks(*write_world(tmp_path, square(), frame))


def test_walks_on_other_roads_are_refused(tmp_path: Path) -> None:
    walks, roads = write_world(tmp_path, square(), [Walk("a", 0, [1, 2])])
    square(11).save(roads)
    with pytest.raises(MismatchError, match="other roads"):
        load_walks(walks, roads)
