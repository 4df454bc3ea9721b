from __future__ import annotations

import numpy as np
import pytest

from geoblanket.build.measures import zone_disclosure
from geoblanket.build.rows import make_problem, make_rows
from geoblanket.loss.standard import StraightLine
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mobility.histories import HistoryCounts
from tests.build.worlds import no_steps, places_at

LINE = places_at(np.arange(8) * 300.0, np.zeros(8))
ZONE_OF = np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int32)
EAST = np.array([4, 5, 6, 7], np.int32)
COUNTS = HistoryCounts(
    histories=np.array([[4, 3], [5, 4], [6, 5], [7, 6]], np.int32),
    depth=np.ones(4, np.uint8),
    regime=np.zeros(4, np.uint8),
    next_place=np.array([5, 6, 7, 7], np.int32),
    count=np.ones(4, np.int64),
)
"""A vehicle goes along the line, and crosses the border in the first step."""


def disclosed(epsilon: float, *, truth: bool) -> tuple[float | None, ...]:
    rows = make_rows(LINE, EAST, COUNTS, reach_m=700.0, context="order:1", history_weights=[1.0], max_rows=40)
    problem = make_problem(rows, StraightLine(LINE), epsilon=epsilon)
    wanted = np.searchsorted(EAST, rows.histories[:, 0])
    table = np.eye(4)[wanted] if truth else np.full((len(rows), 4), 0.25)
    found = zone_disclosure(Mechanism.from_probabilities(table, problem), rows, COUNTS, ZONE_OF)
    return (
        found.zone_error_m,
        found.report_error_m,
        found.crossing_share,
        found.crossing_error_m,
        found.crossing_report_error_m,
    )


def test_the_zone_alone_and_at_a_crossing() -> None:
    alone, reported, share, crossing, crossing_reported = disclosed(1.0, truth=False)
    # Four places in a row, equally often: who guesses an inner one is off by 0, 300, 300 and 600 m.
    assert alone == reported == pytest.approx(300.0, rel=0.01)
    # Who comes from the west is at the first place, for certain.
    assert (share, crossing, crossing_reported) == (0.25, 0.0, 0.0)


def test_a_report_that_says_where_one_is_leaves_no_error() -> None:
    alone, reported, *_ = disclosed(1000.0, truth=True)
    assert alone == pytest.approx(300.0, rel=0.01)
    assert reported == pytest.approx(0.0, abs=1e-3)


def test_without_steps_nothing_is_measured() -> None:
    rows = make_rows(LINE, EAST, no_steps(), reach_m=700.0, context="order:1", history_weights=[1.0], max_rows=40)
    problem = make_problem(rows, StraightLine(LINE), epsilon=1.0)
    mechanism = Mechanism.from_probabilities(np.full((len(rows), 4), 0.25), problem)
    found = zone_disclosure(mechanism, rows, no_steps(), ZONE_OF)
    assert (found.zone_error_m, found.crossing_share, found.crossing_error_m) == (None, 0.0, None)
