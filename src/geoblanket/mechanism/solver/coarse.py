"""Where there is no time for thousands of rows themselves: bounds from both sides by way of clusters.

From above, smooth mechanisms are searched. Their columns are q_k = E·z_k, where E carries values at some centres to all
rows and its rows sum to 1: fewer unknowns. All pairs of the rows themselves are enforced, so that every iterate is a
private mechanism, as good as smooth ones can be. The bound of this smaller problem is none for the problem itself.

From below, the multipliers of the clustered problem are carried to the rows, where every output is priced: whatever
they are, that gives a bound.
"""

from __future__ import annotations

import time

import numpy as np
from scipy.sparse import csr_array

from geoblanket._arrays import Floats, Positions
from geoblanket.mechanism.solver import lapack
from geoblanket.mechanism.solver.blocks import Block
from geoblanket.mechanism.solver.incumbent import Incumbent
from geoblanket.mechanism.solver.interior_point import Iterate, Pool, Search, power_of_two
from geoblanket.mechanism.solver.linear_program import Clusters, Cone, LinearProgram, with_slack
from geoblanket.mechanism.solver.pricing import PRICES_AT_ONCE, Pricer, push

_SEARCH_SHARE = 0.1
"""Of the gap, to which smooth mechanisms are searched: how near the best of them comes to the optimum matters more."""
_PRICING_SHARE = 0.05
"""Of the gap: how sharp the bound of each output is to be. It holds anyway; a sharper one takes longer."""
_LEAST_GAIN = 0.03
"""Of the gap: where a step gains less, the time is better spent on the bound."""


def search_coarsely(
    clusters: Clusters, kept: Positions, solved: Iterate, incumbent: Incumbent, *, gap: float, threads: Pool
) -> None:
    """Improve the incumbent by mechanisms and a bound from a clustered problem.

    Parameters
    ----------
    clusters
        The clusters of the problem's rows.
    kept, solved
        Outputs, and the clustered problem's solution with these alone.
    incumbent, gap, threads
        As for `selection.search`.
    """
    fine = clusters.fine
    basis = clusters.smooth_weights(np.arange(fine.cone.size))
    search = _ReducedSearch(
        fine.cone,
        fine.cost[kept],
        clusters.evened(solved.columns, basis, fine.cone),
        basis,
        threads=threads,
    )
    search.run(gap=_SEARCH_SHARE * gap, stop=_Watch(incumbent, kept, gap))
    _prove(fine, clusters.lift_duals(solved.duals, solved.columns, kept), incumbent, gap=gap, threads=threads)


class _Watch:
    """Offers each mechanism to the incumbent, and ends the search when the last step gained next to nothing.

    It also ends when half of the time is gone: without a bound, a mechanism is only half an answer.
    """

    def __init__(self, incumbent: Incumbent, kept: Positions, gap: float) -> None:
        self.incumbent, self.kept, self.gap = incumbent, kept, gap
        self.last = np.inf
        now = time.perf_counter()
        self.until = now + 0.5 * (incumbent.deadline - now)

    def __call__(self, iterate: Iterate) -> bool:
        gained, self.last = self.last - iterate.loss, iterate.loss
        self.incumbent.offer(iterate.loss, self.kept, iterate.columns)
        self.incumbent.report("smooth mechanisms")
        enough = 0.0 <= gained < _LEAST_GAIN * self.gap * iterate.loss or self.incumbent.reached(self.gap)
        return enough or time.perf_counter() > self.until


def _prove(program: LinearProgram, duals: Floats, incumbent: Incumbent, *, gap: float, threads: Pool) -> None:
    """Prove as much of the gap as these multipliers can: first with near pairs only, then the worst with more."""
    outputs = np.arange(len(program.cost))
    reduced = program.reduced_cost(outputs, duals)
    target = ((1.0 - gap) * incumbent.loss - float(duals.sum())) / float(program.weight.sum())
    tolerance = _PRICING_SHARE * gap * incumbent.loss
    below = push(program.cone, reduced, program.weight, target)
    pricer = Pricer(program.cone, program.weight)

    def improve(chosen: Positions, *, wide: bool) -> None:
        def price(output: int) -> float:
            return pricer.price_sharply(reduced[output], target, tolerance, wide=wide)

        below[chosen] = np.maximum(below[chosen], list(threads.each(price, chosen.tolist())))
        incumbent.report("bound from clusters")

    unsettled = outputs[below < target]
    for first in range(0, len(unsettled), PRICES_AT_ONCE):
        improve(unsettled[first : first + PRICES_AT_ONCE], wide=False)
    final = np.zeros(len(outputs), bool)
    while True:
        incumbent.prove(with_slack(duals, float(below.min()), program.weight))
        incumbent.report("bound from clusters")
        worst = np.argsort(below, kind="stable")[:2]
        if below[worst[0]] >= target or final[worst[0]]:
            return
        improve(worst[~final[worst]], wide=True)
        final[worst] = True


class _ReducedSearch(Search):
    """Minimises Σ w·q over smooth mechanisms.

    Parameters
    ----------
    cone, cost, threads
        As for `Search`.
    coefficients
        Values at the centres, shape (outputs, centres), which sum to 1 at each; carried to the rows, they lie strictly
        inside the cone.
    basis
        E, shape (rows, centres).
    """

    def __init__(self, cone: Cone, cost: Floats, coefficients: Floats, basis: csr_array, *, threads: Pool) -> None:
        self.scale = power_of_two(cost)
        blocks: list[Block] = [
            _ReducedBlock(cone, of_output[None] * self.scale, start[None].copy(), basis)
            for of_output, start in zip(cost, coefficients, strict=True)
        ]
        self._begin(blocks, threads, 0.1)


class _ReducedBlock(Block):
    """One output whose column is E·z."""

    def __init__(self, cone: Cone, cost: Floats, coefficients: Floats, basis: csr_array) -> None:
        self.basis, self.coefficients = basis, coefficients
        self.transposed = basis.T.tocsr()
        super().__init__(cone, cost, self._carried(coefficients))
        self.coefficient_step = np.zeros_like(coefficients)

    @property
    def unknowns(self) -> Floats:
        return self.coefficients

    def dual_slack(self) -> Floats:
        return self._gathered(super().dual_slack())

    def factorise(self, *, with_inverse: bool = True) -> Floats:
        mixed, diagonal = self._newton_weights()
        rows = np.arange(self.rows)
        hessian = csr_array(
            (
                np.concatenate([-mixed, -mixed, diagonal]),
                (np.concatenate([self.low, self.high, rows]), np.concatenate([self.high, self.low, rows])),
            ),
            shape=(self.rows, self.rows),
        )
        matrix = np.ascontiguousarray((self.transposed @ (hessian @ self.basis)).toarray())
        self._factor(matrix, matrix.diagonal().copy())
        self.factors = matrix[None]
        if not with_inverse:
            return np.zeros(0)
        inverse = np.triu(matrix)
        lapack.inverse(inverse)
        return inverse

    def solve(self, duals: Floats, targets: Floats | None) -> Floats:
        right = -self.cost
        if targets is not None:
            right = right + self._transposed(targets / self.slack)
        self.coefficient_step = np.zeros_like(self.coefficients)
        return self._move(duals + self._gathered(right))

    def respond(self, dual_step: Floats) -> Floats:
        return self._move(dual_step[None].copy())

    def advance(self, primal: float, dual: float, barrier: float) -> None:
        self.coefficients = self.coefficients + primal * self.coefficient_step
        super().advance(primal, dual, barrier)

    def saved(self) -> tuple[Floats, ...]:
        return self.step, self.dual_change, self.coefficient_step

    def restore(self, saved: tuple[Floats, ...]) -> None:
        self.step, self.dual_change, self.coefficient_step = saved

    def _move(self, right: Floats) -> Floats:
        self._solve_in_place(right)
        self.coefficient_step = self.coefficient_step + right
        self.step = self._carried(self.coefficient_step)
        step: Floats = self.coefficient_step[0]
        return step

    def _carried(self, values: Floats) -> Floats:
        carried: Floats = np.ascontiguousarray((self.basis @ values.T).T)
        return carried

    def _gathered(self, values: Floats) -> Floats:
        gathered: Floats = np.ascontiguousarray((self.transposed @ values.T).T)
        return gathered
