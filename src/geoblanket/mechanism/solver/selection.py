"""Which outputs are worth having: a search from coarse rows to fine, then rounds of solving and pricing.

Few outputs carry mass unless ε·diameter is large. A coarse problem (near rows merged into clusters) with all outputs
shows which; finer problems correct the choice. On the rows themselves the kept outputs are solved, the others priced:
those that could lower the loss join, those without mass leave, and the bound covers all.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from geoblanket._arrays import Floats, Positions
from geoblanket.mechanism.solver.bounds import slack_below, sum_below, with_slack
from geoblanket.mechanism.solver.coarse import search_coarsely
from geoblanket.mechanism.solver.incumbent import Incumbent
from geoblanket.mechanism.solver.level import Level
from geoblanket.mechanism.solver.newton import Pool
from geoblanket.mechanism.solver.rows import Clusters, Rows

__all__ = ["begin", "search"]

_COARSEST = 80
_COARSENING = 3
_FIRST_GAP = 1e-3
_MIDDLE_GAP = 2e-3
_MIDDLE_ROUNDS = 3
_LEAST_MIDDLE_TARGET = 2e-3
_LEFT_OUT = 2.0
_PRICING_SHARE = 0.3
_MANY = 0.5
_MOST_MEMORY = 2 * 2**30
_MOST_ROWS = 2_000
"""With more rows, factors of rows × rows matrices take too long: clusters bound the optimum from both sides."""


def search(rows: Rows, incumbent: Incumbent, *, gap: float, threads: Pool) -> None:
    """Improve the incumbent until its gap is at most `gap`, or no further progress is made.

    Parameters
    ----------
    rows
        The problem: at least two rows, connected by constrained pairs.
    incumbent
        Has been through `begin`; receives mechanisms and bounds; ends the search by `Stopped`.
    gap
        The relative gap to reach.
    threads
        See `newton.pool`.
    """
    if incumbent.reached(gap):
        return
    if rows.cone.size > _MOST_ROWS:
        clusters = Clusters(rows, rows.order_of_centres(rows.cone.size // _COARSENING))
        kept, columns = _choose(clusters.rows, incumbent, gap, threads)
        level = Level(clusters.rows, kept, incumbent, threads, phase="clusters of rows", columns=columns)
        solved = level.solve(_PRICING_SHARE * gap)
        search_coarsely(clusters, level.kept, solved, incumbent, gap=gap, threads=threads)
        return
    kept, columns = _choose(rows, incumbent, gap, threads)
    level = Level(rows, kept, incumbent, threads, phase="solving", fine=True, columns=columns)
    _finish(level, gap)


def begin(rows: Rows, incumbent: Incumbent) -> None:
    """Offer the best single output, and the bound that needs no multipliers: every row with its own best output."""
    best = int(rows.cost.sum(axis=1).argmin())
    incumbent.offer(float(rows.cost[best].sum()), np.array([best]), np.ones((1, rows.cone.size)))
    nothing = np.zeros_like(rows.cost)
    slack = slack_below(rows.cost, nothing, nothing, rows=rows.original_rows)
    incumbent.prove(sum_below(slack.min(axis=0)))


def _choose(rows: Rows, incumbent: Incumbent, gap: float, threads: Pool) -> tuple[Positions, Floats | None]:
    """Return the outputs to begin with, those that coarser problems use, and a start for their columns."""
    sizes = [rows.cone.size]
    while sizes[-1] > 1.5 * _COARSEST:
        sizes.append(max(_COARSEST, sizes[-1] // _COARSENING))
    sizes.reverse()
    order = rows.order_of_centres(sizes[-2]) if len(sizes) > 1 else np.empty(0, np.intp)
    kept: Positions = np.arange(len(rows.cost))
    columns: Floats | None = None
    for size, finer in pairwise(sizes):
        clusters = Clusters(rows, order[:size])
        level = Level(clusters.rows, kept, incumbent, threads, phase=f"{size} clusters of rows", columns=columns)
        kept, used = _correct(level, gap)
        if len(kept) > _MANY * size and 8 * len(rows.cost) * rows.cone.size**2 <= _MOST_MEMORY:
            # Nearly every cluster has outputs of its own: more rows would need more outputs, perhaps all.
            return np.arange(len(rows.cost)), None
        if finer == rows.cone.size:
            columns = clusters.lift(used, np.arange(finer), rows.cone)
        else:
            columns = clusters.lift(used, order[:finer], Clusters(rows, order[:finer]).rows.cone)
    return kept, columns


def _correct(level: Level, gap: float) -> tuple[Positions, Floats]:
    """Solve a coarse problem for some outputs, price the others, add and drop, a few times; return what is used."""
    for attempt in range(_MIDDLE_ROUNDS):
        solved = level.solve(max(min(gap, _MIDDLE_GAP), 1e-4))
        target = -max(0.2 * gap, _LEAST_MIDDLE_TARGET) * solved.loss
        worse = level.price_others(solved, target).violated(target)
        if not len(worse) or attempt == _MIDDLE_ROUNDS - 1:
            break
        level.exchange(solved, worse)
    mass = solved.columns @ level.rows.prior
    order = np.argsort(-mass, kind="stable")
    # What is left out here costs about its mass at most, and pricing brings back what matters.
    count = 1 + int((np.cumsum(mass[order]) < (1.0 - _LEFT_OUT * gap) * mass.sum()).sum())
    used = np.sort(order[:count])
    columns = solved.columns[used]
    return level.kept[used], columns / columns.sum(axis=0)


def _finish(level: Level, gap: float) -> None:
    """Solve for the kept outputs and price the others, with a tolerance that tightens, until the gap is reached."""
    incumbent = level.incumbent
    stage = max(gap, _FIRST_GAP)
    while True:
        solved = level.solve(stage * (1.0 - _PRICING_SHARE))
        target = -_PRICING_SHARE * stage * solved.loss
        prices = level.price_others(solved, target)
        incumbent.prove(with_slack(solved.duals, float(prices.below.min()), level.rows.weight))
        incumbent.report("pricing")
        worse = prices.violated(target)
        if incumbent.reached(gap):
            return
        if len(worse):
            level.exchange(solved, worse)
        elif level.search.stalled or stage == gap:
            return
        else:
            stage = max(gap, stage / 1000.0)
