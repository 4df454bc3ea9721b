"""Beyond some 2,000 rows: bounds from both sides by way of clusters.

From above, smooth mechanisms (`reduced`) are searched, with the constraints of all rows. From below, the multipliers of
the clustered problem are carried to the rows, where every output is priced: whatever they are, that gives a bound.
"""

from __future__ import annotations

import time

import numpy as np

from geoblanket._arrays import Floats, Positions
from geoblanket.mechanism.solver.bounds import with_slack
from geoblanket.mechanism.solver.incumbent import Incumbent
from geoblanket.mechanism.solver.interior_point import Iterate
from geoblanket.mechanism.solver.linear_program import Clusters, LinearProgram
from geoblanket.mechanism.solver.newton import Pool
from geoblanket.mechanism.solver.pricing import PRICES_AT_ONCE, Pricer, push
from geoblanket.mechanism.solver.reduced import ReducedSearch

__all__ = ["search_coarsely"]

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
    search = ReducedSearch(
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
