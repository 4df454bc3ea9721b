"""Beyond some 2,000 rows: bounds from both sides by way of clusters.

From above, smooth mechanisms (`reduced`) are searched, with the constraints of all rows. From below, the multipliers of
the clustered problem are carried to the rows, where every output is priced: whatever they are, that gives a bound.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from geoblanket.mechanism.bounds import with_slack
from geoblanket.mechanism.cone import Floats, Ints
from geoblanket.mechanism.incumbent import Incumbent
from geoblanket.mechanism.interior_point import Iterate
from geoblanket.mechanism.newton import Pool
from geoblanket.mechanism.pricing import Pricer, push
from geoblanket.mechanism.reduced import ReducedSearch
from geoblanket.mechanism.rows import Clusters, Rows

__all__ = ["search_coarsely"]

_SEARCH_SHARE = 0.1
_PRICING_SHARE = 0.05
_PRICES_AT_ONCE = 16


def search_coarsely(
    clusters: Clusters, kept: Ints, solved: Iterate, incumbent: Incumbent, *, gap: float, threads: Pool
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
        original_rows=fine.original_rows,
    )
    search.run(gap=_SEARCH_SHARE * gap, stop=partial(_keep, incumbent, kept, gap))
    _prove(fine, clusters.lift_duals(solved.duals, solved.columns, kept), incumbent, gap=gap, threads=threads)


def _keep(incumbent: Incumbent, kept: Ints, gap: float, iterate: Iterate) -> bool:
    incumbent.offer(iterate.loss, kept, iterate.columns)
    incumbent.report("smooth mechanisms")
    return incumbent.reached(gap)


def _prove(rows: Rows, duals: Floats, incumbent: Incumbent, *, gap: float, threads: Pool) -> None:
    """Prove as much of the gap as these multipliers can: first with near pairs only, then the worst with all."""
    outputs = np.arange(len(rows.cost))
    reduced = rows.reduced_cost(outputs, duals)
    target = ((1.0 - gap) * incumbent.loss - float(duals.sum())) / float(rows.weight.sum())
    tolerance = _PRICING_SHARE * gap * incumbent.loss
    below = push(rows.cone, reduced, rows.weight, target, original_rows=rows.original_rows)
    pricer = Pricer(rows.cone, rows.weight, original_rows=rows.original_rows)

    def improve(chosen: Ints, *, all_pairs: bool) -> None:
        def one(output: int) -> float:
            return pricer.price_sharply(reduced[output], target, tolerance, all_pairs=all_pairs)

        found = list(threads.each(one, chosen.tolist()))
        below[chosen] = np.maximum(below[chosen], found)
        incumbent.report("bound from clusters")

    unsettled = outputs[below < target]
    for first in range(0, len(unsettled), _PRICES_AT_ONCE):
        improve(unsettled[first : first + _PRICES_AT_ONCE], all_pairs=False)
    final = np.zeros(len(outputs), bool)
    while True:
        incumbent.prove(with_slack(duals, float(below.min()), rows.weight))
        incumbent.report("bound from clusters")
        worst = np.argsort(below, kind="stable")[:2]
        if below[worst[0]] >= target or final[worst[0]]:
            return
        improve(worst[~final[worst]], all_pairs=True)
        final[worst] = True
