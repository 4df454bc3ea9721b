"""Beyond some 2,000 rows: bounds from both sides by way of clusters.

From below, the multipliers of the clustered problem are carried to the rows, where every output is priced: whatever
they are, that gives a bound. From above, smooth mechanisms (`reduced`) are searched, with the constraints of all rows.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from geoblanket.mechanism.bounds import with_slack
from geoblanket.mechanism.cone import Ints
from geoblanket.mechanism.incumbent import Incumbent
from geoblanket.mechanism.interior_point import Iterate
from geoblanket.mechanism.level import price_outputs
from geoblanket.mechanism.newton import Pool
from geoblanket.mechanism.reduced import ReducedSearch
from geoblanket.mechanism.rows import Clusters

__all__ = ["search_coarsely"]

_SHARE = 0.3


def search_coarsely(
    clusters: Clusters, kept: Ints, solved: Iterate, incumbent: Incumbent, *, gap: float, threads: Pool
) -> None:
    """Improve the incumbent by a bound and by mechanisms from a clustered problem.

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
    duals = clusters.lift_duals(solved.duals, solved.columns, kept)
    prices = price_outputs(
        fine,
        np.empty(0, np.intp),
        duals,
        -_SHARE * gap * solved.loss,
        incumbent=incumbent,
        threads=threads,
        sharply=True,
    )
    incumbent.prove(with_slack(duals, float(prices.below.min()), fine.weight))
    incumbent.report("bound from clusters")
    basis = clusters.smooth_weights(np.arange(fine.cone.size))
    search = ReducedSearch(
        fine.cone,
        fine.cost[kept],
        clusters.evened(solved.columns, basis, fine.cone),
        basis,
        threads=threads,
        original_rows=fine.original_rows,
    )
    search.run(gap=_SHARE * gap, stop=partial(_keep, incumbent, kept, gap))


def _keep(incumbent: Incumbent, kept: Ints, gap: float, iterate: Iterate) -> bool:
    incumbent.offer(iterate.loss, kept, iterate.columns)
    incumbent.report("smooth mechanisms")
    return incumbent.reached(gap)
