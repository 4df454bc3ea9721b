from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.mobility import walks as walk_tables
from geoblanket.mobility.histories import HistoryCounts, RegimeHours, collect_steps, count_histories
from geoblanket.mobility.walks import MatchedWalks, Split
from geoblanket.roads.places import choose_places
from tests.mobility.made_walks import NOON, PLACES, Walk, write_walks
from tests.mobility.simulator import town


def counted_plainly(walks: list[Walk], *, largest: int, delay: int) -> Counter[tuple[int, ...]]:
    """(places at t, t − 1, ..., depth, place later) of every step that has one."""
    result: Counter[tuple[int, ...]] = Counter()
    for walk in walks:
        for step in range(len(walk.places) - delay):
            past = [walk.places[max(step - lag, 0)] for lag in range(largest + 1)]
            result[(*past, min(step, largest), walk.places[step + delay])] += 1
    return result


def as_counter(counts: HistoryCounts) -> Counter[tuple[int, ...]]:
    rows = np.column_stack([counts.histories, counts.depth, counts.next_place]).tolist()
    return Counter({tuple(row): count for row, count in zip(rows, counts.count.tolist(), strict=True)})


@settings(max_examples=25)
@given(
    walks=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=9), min_size=1, max_size=8),
    largest=st.integers(0, 3),
    delay=st.integers(1, 3),
    at_a_time=st.sampled_from([1, 3, 1000]),
)
def test_counts_are_those_of_a_plain_loop(
    tmp_path_factory: pytest.TempPathFactory, walks: list[list[int]], largest: int, delay: int, at_a_time: int
) -> None:
    made = [Walk(places) for places in walks]
    path = write_walks(tmp_path_factory.mktemp("walks") / "w.parquet", made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk_tables, "_ROWS_AT_A_TIME", at_a_time)
        counts = count_histories(path, PLACES, largest=largest, delay=delay, part="all")
        steps = collect_steps(path, PLACES, largest=largest, delay=delay, part="all")
    expected = counted_plainly(made, largest=largest, delay=delay)
    assert as_counter(counts) == expected
    assert Counter(map(tuple, np.column_stack([steps.histories, steps.depth, steps.next_place]).tolist())) == expected


def test_regimes_go_by_the_hour_in_their_time_zone(tmp_path: Path) -> None:
    walks = [Walk([0, 1]), Walk([2, 3], start=NOON + timedelta(hours=11)), Walk([4, 5], start=NOON.replace(month=7))]
    path = write_walks(tmp_path / "w.parquet", walks)
    regimes = RegimeHours({"morning": range(13), "later": range(13, 24)}, time_zone="Europe/Lisbon")
    counts = count_histories(path, PLACES, largest=0, part="all", regimes=regimes)
    named = {int(now): regimes.names[regime] for now, regime in zip(counts.histories[:, 0], counts.regime, strict=True)}
    # In July it is 13 h in Lisbon when it is noon in Greenwich.
    assert named == {0: "morning", 2: "later", 4: "later"}


@pytest.mark.parametrize("hours", [{"day": range(23)}, {"day": range(24), "noon": [12]}, {}])
def test_regimes_hold_every_hour_once(hours: dict[str, list[int]]) -> None:
    with pytest.raises(ParameterError, match="every hour"):
        RegimeHours(hours)


def test_a_time_zone_must_exist() -> None:
    with pytest.raises(ParameterError, match="IANA"):
        RegimeHours({"day": range(24)}, time_zone="Mars/Crater")


FLEET = [
    Walk([number % 7, number % 5, number % 3, 1], vehicle=f"taxi {number % 10}", start=NOON + timedelta(minutes=number))
    for number in range(60)
]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_vehicle_is_in_both_parts(tmp_path: Path, seed: int) -> None:
    path = write_walks(tmp_path / "w.parquet", FLEET)
    split = Split(held_out=0.3, seed=seed)
    train = collect_steps(path, PLACES, part="train", split=split)
    held_out = collect_steps(path, PLACES, part="held_out", split=split)
    assert set(train.vehicle) & set(held_out.vehicle) == set()
    assert len(set(held_out.vehicle)) == 3
    assert len(train) + len(held_out) == len(collect_steps(path, PLACES, part="all"))
    again = collect_steps(path, PLACES, part="held_out", split=split)
    assert np.array_equal(again.histories, held_out.histories)


def test_the_seed_chooses_the_vehicles(tmp_path: Path) -> None:
    path = write_walks(tmp_path / "w.parquet", FLEET)
    chosen = {tuple(set(collect_steps(path, PLACES, split=Split(seed=seed)).vehicle)) for seed in range(6)}
    assert len(chosen) > 1


def test_parts_by_time_do_not_overlap(tmp_path: Path) -> None:
    # A place a walk, so that steps tell their walk; each walk lasts longer than the time to the next.
    walks = [
        Walk([number] * 5, vehicle=f"taxi {number % 3}", start=NOON + timedelta(minutes=number)) for number in range(30)
    ]
    path = write_walks(tmp_path / "w.parquet", walks)
    split = Split(by="time", held_out=0.25)
    train, held_out = (
        set(collect_steps(path, PLACES, part=part, split=split).histories[:, 0].tolist())
        for part in ("train", "held_out")
    )
    last_end = max(walks[number].start for number in train) + timedelta(seconds=120)
    first_start = min(walks[number].start for number in held_out)
    assert last_end < first_start
    assert len(held_out) in {7, 8}
    # What goes on over the cut belongs to neither.
    assert len(train) + len(held_out) < 30


def test_one_vehicle_cannot_be_split(tmp_path: Path) -> None:
    path = write_walks(tmp_path / "w.parquet", [Walk([0, 1, 2])])
    with pytest.raises(InputError, match="cannot be split by vehicle"):
        count_histories(path, PLACES)


@pytest.mark.parametrize(("by", "share"), [("vehicle", 0.0), ("vehicle", 1.0), ("point", 0.2)])
def test_a_split_that_makes_no_sense(by: str, share: float) -> None:
    with pytest.raises(ParameterError):
        Split(by=by, held_out=share)  # type: ignore[arg-type]


def test_walks_of_other_roads_are_refused(tmp_path: Path) -> None:
    path = write_walks(tmp_path / "w.parquet", [Walk([0, 1])])
    other = choose_places(town(6, 6, block_m=300.0, seed=2))
    with pytest.raises(MismatchError, match="other roads"):
        count_histories(path, other, part="all")
    with pytest.raises(MismatchError, match="not at 50 m"):
        count_histories(path, replace(PLACES, spacing_m=50.0), part="all")


def test_walks_are_opened_with_their_roads_only(tmp_path: Path) -> None:
    graph = town(6, 6, block_m=300.0)
    path = write_walks(tmp_path / "w.parquet", [Walk([0, 1])])
    matched = MatchedWalks.open(path, graph)
    assert matched.places.identity == PLACES.identity
    assert matched.interval_s == 30.0
    assert matched.frame.collect()["place"].to_list() == [0, 1]
    graph.save(tmp_path / "w.roads")
    assert MatchedWalks.open(str(path), tmp_path / "w.roads").graph.identity == graph.identity
    with pytest.raises(MismatchError, match="was matched to other roads"):
        MatchedWalks.open(path, town(6, 6, block_m=300.0, seed=2))


@pytest.mark.parametrize("options", [{"largest": 4}, {"largest": -1}, {"delay": 0}, {"part": "half"}])
def test_options_out_of_range(tmp_path: Path, options: dict[str, int]) -> None:
    path = write_walks(tmp_path / "w.parquet", FLEET)
    with pytest.raises(ParameterError):
        count_histories(path, PLACES, **options)  # type: ignore[arg-type]


def test_no_walks_have_no_histories(tmp_path: Path) -> None:
    path = write_walks(tmp_path / "w.parquet", [])
    assert len(count_histories(path, PLACES, part="all")) == 0
    with pytest.raises(InputError, match="cannot be split"):
        count_histories(path, PLACES, split=Split(by="time"))
