from __future__ import annotations

import math

import numpy as np
import pytest

from geoblanket.mechanism.solver.incumbent import Incumbent, Stopped
from geoblanket.mechanism.solver.interior_point import Pool
from geoblanket.mechanism.solver.linear_program import Cone, LinearProgram
from geoblanket.mechanism.solver.selection import Level, _finish, _joined, begin

PLACES = np.random.default_rng(4).uniform(0, 2, (12, 2))
DISTANCE = np.linalg.norm(PLACES[:, None] - PLACES, axis=2)
PRIOR = np.full(12, 1 / 12)


def level() -> Level:
    program = LinearProgram(Cone(2.0 * DISTANCE), np.ascontiguousarray(DISTANCE * PRIOR), PRIOR)
    return Level(program, np.arange(12), Incumbent(math.inf, lambda *_: None), Pool(None), phase="solving")


def test_a_search_that_stalls_far_from_the_optimum_starts_again_from_the_middle() -> None:
    stuck = level()
    stuck.search.give_up()
    assert stuck.search.run(gap=1e-3).gap > 0.1
    assert stuck.solve(1e-3).gap <= 1e-3


def test_a_search_that_stalls_near_the_optimum_is_done() -> None:
    done = level()
    done.solve(0.05)
    done.search.give_up()
    stalled = done.search
    assert done.solve(1e-9).gap > 1e-9
    assert done.search is stalled


def test_late_searches_end_with_a_bound_over_all_outputs() -> None:
    incumbent = Incumbent(math.inf, lambda *_: None)
    program = LinearProgram(Cone(2.0 * DISTANCE), np.ascontiguousarray(DISTANCE * PRIOR), PRIOR)
    begin(program, incumbent)
    late = Level(program, np.arange(10), incumbent, Pool(None), phase="solving", fine=True)
    late.solve(0.05)
    late.until = -math.inf
    before = incumbent.bound
    with pytest.raises(Stopped):
        _finish(late, 1e-6)
    assert before < incumbent.bound <= incumbent.loss


def test_outputs_that_join_take_half_of_the_column_of_the_output_most_like_them() -> None:
    columns = np.array([[0.2, 0.4, 0.3], [0.8, 0.6, 0.7]])
    cost = np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0], [2.0, 1.0, 0.1], [0.0, 1.0, 1.9]])
    joined = _joined(columns, cost)
    assert joined == pytest.approx(np.array([[0.1, 0.2, 0.15], [0.4, 0.3, 0.35], [0.4, 0.3, 0.35], [0.1, 0.2, 0.15]]))
    assert columns.sum(axis=0) == pytest.approx(1.0)
