from __future__ import annotations

import numpy as np
import pytest

from geoblanket._arrays import Floats
from geoblanket.mechanism.solver import blocks, interior_point, lapack
from geoblanket.mechanism.solver.interior_point import Iterate, Search, pool
from geoblanket.mechanism.solver.linear_program import Cone
from tests.mechanism.problems import grid_problem


def grid(side: int) -> tuple[Cone, Floats]:
    problem = grid_problem(side)
    return Cone(problem.log_bound), np.ascontiguousarray((problem.prior[:, None] * problem.loss).T)


def test_every_iterate_is_private_and_every_bound_holds() -> None:
    cone, cost = grid(5)
    seen: list[Iterate] = []

    def keep(iterate: Iterate) -> bool:
        seen.append(iterate)
        return False

    with pool() as threads:
        last = Search(cone, cost, threads=threads).run(gap=1e-6, stop=keep)
    assert len(seen) > 5
    for iterate in seen:
        assert iterate.columns.sum(axis=0) == pytest.approx(1.0, abs=1e-12)
        assert all((column[:, None] < cone.ratio * column).all() for column in iterate.columns)
        assert iterate.bound <= last.loss
        assert iterate.loss >= last.bound
    assert last.gap <= 1e-6


def test_float32_steps_stay_private_and_keep_rows_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interior_point, "_SINGLE_ROWS", 0)
    cone, cost = grid(6)
    seen: list[Iterate] = []

    def keep(iterate: Iterate) -> bool:
        seen.append(iterate)
        return False

    with pool() as threads:
        search = Search(cone, cost, threads=threads)
        last = search.run(gap=1e-2, stop=keep)
        assert search.single
        further = search.run(gap=1e-6)
    assert not search.single
    assert last.gap <= 1e-2
    assert further.gap <= 1e-6
    for iterate in seen:
        assert iterate.columns.sum(axis=0) == pytest.approx(1.0, abs=1e-6)
        assert all((column[:, None] < cone.ratio * column).all() for column in iterate.columns)
        assert iterate.bound <= further.loss


def test_a_matrix_that_float32_cannot_factor_is_taken_to_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interior_point, "_SINGLE_ROWS", 0)
    monkeypatch.setattr(blocks, "_SINGLE_REGULARISATION", -1.0)
    cone, cost = grid(4)
    with pool() as threads:
        search = Search(cone, cost, threads=threads)
        assert search.run(gap=1e-3).gap <= 1e-3
    assert not search.single


def test_dropping_outputs_keeps_rows_whole_and_the_search_going() -> None:
    cone, cost = grid(5)
    with pool() as threads:
        search = Search(cone, cost, threads=threads)
        before = search.run(gap=5e-3)
        kept = before.columns.sum(axis=1) > 0.05
        assert 0 < kept.sum() < len(kept)
        search.drop(kept)
        dropped = search.iterate()
        assert dropped.columns.sum(axis=0) == pytest.approx(1.0, abs=1e-12)
        assert all((column[:, None] < cone.ratio * column).all() for column in dropped.columns)
        after = search.run(gap=1e-5)
        alone = Search(cone, cost[kept], threads=threads).run(gap=1e-5)
    assert after.gap <= 1e-5
    assert after.columns.sum(axis=0) == pytest.approx(1.0, abs=1e-12)
    assert max(after.bound, alone.bound) <= min(after.loss, alone.loss)


def test_factors_solve_and_invert() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(30, 30))
    matrix = root @ root.T + np.eye(30)
    factored = np.triu(matrix)
    assert lapack.factor(factored)
    vector = rng.normal(size=30)
    solution = vector.copy()
    lapack.solve(factored, solution)
    assert matrix @ solution == pytest.approx(vector)
    single = np.triu(matrix).astype(np.float32)
    assert lapack.factor(single)
    lapack.inverse(single)
    assert lapack.multiply(single, vector) == pytest.approx(np.linalg.solve(matrix, vector), rel=1e-3, abs=1e-5)
    lapack.inverse(factored)
    assert np.triu(factored) == pytest.approx(np.triu(np.linalg.inv(matrix)))
    assert not lapack.factor(-np.eye(3))


def test_float32_inverses_agree_with_float64() -> None:
    cone, cost = grid(5)
    with pool() as threads:
        search = Search(cone, cost, threads=threads)
        search.run(gap=0.2)
        exact = np.sum([np.triu(block.factorise()) for block in search.blocks], axis=0)
        search._use_single(True)
        single = np.sum([np.triu(block.factorise()) for block in search.blocks], axis=0)
    assert all(len(block.inverses) for block in search.blocks)
    assert single == pytest.approx(exact, rel=1e-3, abs=1e-5 * exact.max())
