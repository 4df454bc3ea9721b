from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket.build.row_tree import FixedLengths
from geoblanket.build.rows import ZoneRows, make_rows
from geoblanket.errors import ParameterError
from geoblanket.lab import refinement
from geoblanket.lab.refinement import split_rows
from geoblanket.mobility.histories import HistoryCounts
from tests.build.worlds import counted, grid, no_steps, straight_on

PLACES = grid(4, 3)
COUNTS = counted(straight_on(PLACES, 4000, past=3))
WEIGHTS = (1.0, 0.5, 0.25)


def rows_of(context: str, max_rows: int = 12) -> ZoneRows:
    told = FixedLengths(2) if context == "blanket" else context
    return make_rows(PLACES, range(4), COUNTS, reach_m=500.0, context=told, history_weights=WEIGHTS, max_rows=max_rows)


def split(coarse: ZoneRows, counts: HistoryCounts = COUNTS, **options: object) -> ZoneRows:
    given = {"reach_m": 500.0, "history_weights": WEIGHTS, **options}
    return split_rows(coarse, PLACES, counts, **given)  # type: ignore[arg-type]  # options of many types


@pytest.mark.parametrize("context", ["none", "order:1", "blanket"])
def test_each_row_is_a_part_of_one(context: str) -> None:
    coarse = rows_of(context)
    fine = split(coarse)
    assert len(fine) > len(coarse)
    part_of = coarse.row_of(fine.histories)
    assert set(part_of) == set(range(len(coarse)))
    everything = np.array(list(product(range(4), *[range(len(PLACES))] * 3)), np.int32)
    assert (part_of[fine.row_of(everything)] == coarse.row_of(everything)).all()
    assert (fine.distance_mm >= coarse.distance_mm[np.ix_(part_of, part_of)]).all()


def test_distances_are_the_least_between_all_histories() -> None:
    fine = split(rows_of("none", 4))
    histories = np.array(list(product(range(4), range(len(PLACES)))), np.int32)
    used = fine.row_of(histories)
    lat, lon = (PLACES.coordinates_e7 * 1e-7).T
    apart = haversine_m(lat[:, None], lon[:, None], lat, lon) * 1000
    now, before = histories.T
    between = apart[now[:, None], now] + WEIGHTS[0] * apart[before[:, None], before]
    for row, other in product(range(len(fine)), repeat=2):
        least = between[np.ix_(used == row, used == other)].min()
        assert fine.distance_mm[row, other] == pytest.approx(least if row != other else 0.0, abs=3.0)


def test_rows_that_are_split_alike_are_as_far_apart_as_before() -> None:
    coarse = rows_of("order:1")
    fine = split(coarse)
    part_of = coarse.row_of(fine.histories)
    assert fine.histories.shape[1] == coarse.histories.shape[1] + 1
    alike = fine.histories[:, -1][:, None] == fine.histories[:, -1]
    assert len(np.unique(fine.histories[:, -1])) == 4
    assert (fine.distance_mm == coarse.distance_mm[np.ix_(part_of, part_of)])[alike].all()
    assert not (fine.distance_mm == coarse.distance_mm[np.ix_(part_of, part_of)])[~alike].all()


def test_what_is_known_of_rows_adds_up() -> None:
    coarse = rows_of("order:1")
    fine = split(coarse)
    mass = np.bincount(coarse.row_of(fine.histories), fine.prior)
    assert mass == pytest.approx(coarse.prior, abs=1e-4)
    assert fine.report.rows == len(fine)
    assert fine.report.context == "order:1, refined"
    assert fine.report.histories_reachable > coarse.report.histories_reachable
    assert fine.history_weights == WEIGHTS[:2]


def test_many_rows_get_fewer_parts_and_too_many_none(monkeypatch: pytest.MonkeyPatch) -> None:
    coarse = rows_of("order:1")
    assert len(split(coarse)) == 4 * len(coarse)
    monkeypatch.setattr(refinement, "_MOST_FINE_ROWS", 2 * len(coarse) + 1)
    assert len(split(coarse)) == 2 * len(coarse)
    monkeypatch.setattr(refinement, "_MOST_FINE_ROWS", 13)
    with pytest.raises(ParameterError, match=r"would be split into \d+, more than 13"):
        split(coarse)


def test_what_cannot_be_told_apart_stays() -> None:
    coarse = rows_of("order:1")
    assert split(coarse, history_weights=WEIGHTS[:1]) is coarse
    assert split(coarse, counts=no_steps(past=3)) is coarse
