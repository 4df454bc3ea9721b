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
from geoblanket.mechanism.solver.linear_program import Clusters, LinearProgram
from geoblanket.mechanism.solver.newton import Pool

__all__ = ["begin", "search"]

_COARSEST = 80
"""Clusters in the coarsest problem, which has all outputs: fewer are solved sooner, and show less well which matter."""
_COARSENING = 3
"""How many times fewer rows each coarser problem has: with larger steps there are fewer problems, and worse starts."""
_FIRST_GAP = 1e-3
"""To which the rows themselves are solved first: to go further is wasted where pricing then brings other outputs."""
_COARSE_GAP = 2e-3
"""To which coarse problems are solved at most: they only choose outputs and a start."""
_COARSE_ROUNDS = 3
"""How often a coarse problem is solved and priced: what it misses, finer problems correct at a higher price."""
_LEAST_COARSE_GAIN = 2e-3
"""Of the loss: outputs that could gain less do not join a coarse problem."""
_LEFT_OUT = 2.0
"""In gaps: the share of the mass whose outputs a finer problem begins without; with more, pricing brings more back."""
_PRICING_SHARE = 0.3
"""Of the gap, for what outputs that are left out could gain; the rest is for the search over those that are kept."""
_MANY = 0.5
"""Outputs per cluster: if a coarse problem keeps more, choosing saves nothing, and all outputs are kept."""
_MOST_MEMORY = 2 * 2**30
"""Bytes for Newton's matrices of all outputs; if they need more, outputs are chosen all the same."""
_MOST_ROWS = 2_000
"""With more rows, factors of rows × rows matrices take too long: clusters bound the optimum from both sides."""


def search(program: LinearProgram, incumbent: Incumbent, *, gap: float, threads: Pool) -> None:
    """Improve the incumbent until its gap is at most `gap`, or no further progress is made.

    Parameters
    ----------
    program
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
    if program.cone.size > _MOST_ROWS:
        clusters = Clusters(program, program.order_of_centres(program.cone.size // _COARSENING))
        kept, columns = _choose(clusters.program, incumbent, gap, threads)
        level = Level(clusters.program, kept, incumbent, threads, phase="clusters of rows", columns=columns)
        solved = level.solve(_PRICING_SHARE * gap)
        search_coarsely(clusters, level.kept, solved, incumbent, gap=gap, threads=threads)
        return
    kept, columns = _choose(program, incumbent, gap, threads)
    level = Level(program, kept, incumbent, threads, phase="solving", fine=True, columns=columns)
    _finish(level, gap)


def begin(program: LinearProgram, incumbent: Incumbent) -> None:
    """Offer the best single output, and the bound that needs no multipliers: every row with its own best output."""
    best = int(program.cost.sum(axis=1).argmin())
    incumbent.offer(float(program.cost[best].sum()), np.array([best]), np.ones((1, program.cone.size)))
    no_multipliers = np.zeros_like(program.cost)
    slack = slack_below(program.cost, no_multipliers, no_multipliers, rows=program.cone.original_rows)
    incumbent.prove(sum_below(slack.min(axis=0)))


def _choose(program: LinearProgram, incumbent: Incumbent, gap: float, threads: Pool) -> tuple[Positions, Floats | None]:
    """Return the outputs to begin with, those that coarser problems use, and a start for their columns."""
    sizes = [program.cone.size]
    while sizes[-1] > 1.5 * _COARSEST:
        sizes.append(max(_COARSEST, sizes[-1] // _COARSENING))
    sizes.reverse()
    order = program.order_of_centres(sizes[-2]) if len(sizes) > 1 else np.empty(0, np.intp)
    kept: Positions = np.arange(len(program.cost))
    columns: Floats | None = None
    for size, finer in pairwise(sizes):
        clusters = Clusters(program, order[:size])
        level = Level(clusters.program, kept, incumbent, threads, phase=f"{size} clusters of rows", columns=columns)
        kept, used = _correct(level, gap)
        if len(kept) > _MANY * size and 8 * len(program.cost) * program.cone.size**2 <= _MOST_MEMORY:
            # Nearly every cluster has outputs of its own: more rows would need more outputs, perhaps all.
            return np.arange(len(program.cost)), None
        if finer == program.cone.size:
            columns = clusters.lift(used, np.arange(finer), program.cone)
        else:
            columns = clusters.lift(used, order[:finer], Clusters(program, order[:finer]).program.cone)
    return kept, columns


def _correct(level: Level, gap: float) -> tuple[Positions, Floats]:
    """Solve a coarse problem for some outputs, price the others, add and drop, a few times; return what is used."""
    for attempt in range(_COARSE_ROUNDS):
        solved = level.solve(max(min(gap, _COARSE_GAP), 1e-4))
        target = -max(0.2 * gap, _LEAST_COARSE_GAIN) * solved.loss
        worse = level.price_others(solved, target).violated(target)
        if not len(worse) or attempt == _COARSE_ROUNDS - 1:
            break
        level.exchange(solved, worse)
    mass = solved.columns @ level.program.prior
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
        incumbent.prove(with_slack(solved.duals, float(prices.below.min()), level.program.weight))
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
