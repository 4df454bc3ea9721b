"""Which outputs are worth having: a search from coarse rows to fine, then rounds of solving and pricing.

Few outputs carry mass unless ε·diameter is large. A coarse problem (near rows merged into clusters) with all outputs
shows which; finer problems correct the choice. On the rows themselves the kept outputs are solved, the others priced:
those that could lower the loss join, those without mass leave, and the bound covers all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from geoblanket._arrays import Bools, Floats, Positions
from geoblanket.mechanism.solver.coarse import search_coarsely
from geoblanket.mechanism.solver.incumbent import Incumbent, Stopped
from geoblanket.mechanism.solver.interior_point import Iterate, Pool, Search
from geoblanket.mechanism.solver.linear_program import Clusters, LinearProgram, slack_below, sum_below, with_slack
from geoblanket.mechanism.solver.pricing import PRICES_AT_ONCE, Price, Pricer, push

_DROP_BELOW_GAP = 0.03
"""With a larger gap the mass of an output does not tell yet whether the optimum uses it."""
_DROP_ABOVE_GAPS = 5.0
"""Times the gap to reach: nearer to it few steps are left, and pricing what was dropped costs more than that saves."""
_WORTH_DROPPING = 0.8
"""If more than this share of the outputs would stay, none is dropped: it would save little."""
_USED = 16.0
"""How many times the mass that the central path leaves to unused outputs counts as used: with less, outputs without use
stay; with more, pricing has to bring back some that were dropped."""
_BAD_START = 0.1
"""A search that stalls with a larger gap did not come to the end of what floating-point numbers can do."""
_FROM_THE_MIDDLE = 10.0
"""The barrier to begin with where every output is equally likely."""
_FROM_CLUSTERS = 0.2
"""The barrier to begin with where columns come from a coarser problem."""
_WORTH_CHOOSING = 500_000
"""With fewer rows² × outputs all outputs are kept: dropping them saves less than pricing them costs."""
_COARSEST = 80
"""Clusters in the coarsest problem, which has all outputs: fewer are solved sooner, and show less well which matter."""
_COARSENING = 3
"""How many times fewer rows each coarser problem has: with larger steps there are fewer problems, and worse starts."""
_FIRST_GAP = 1e-3
"""To which the rows themselves are solved first: to go further is wasted where pricing then brings other outputs."""
_COARSE_GAP = 2e-3
"""To which coarse problems of many outputs are solved: with larger gaps, outputs without use keep mass."""
_COARSE_ROUNDS = 3
"""How often a coarse problem is solved and priced: what it misses, finer problems correct at a higher price."""
_FEW = 0.2
"""Of the outputs of a coarse problem: if fewer are missing, they join in the next finer one without further ado."""
_LEAST_COARSE_GAIN = 2e-3
"""Of the loss: outputs that could gain less do not join a coarse problem."""
_LEFT_OUT = 2.0
"""In gaps: the share of the mass whose outputs a finer problem begins without; with more, pricing brings more back."""
_PRICING_SHARES = (0.1, 0.3)
"""Of the gap, for what outputs that are left out could gain; the rest is for the search over those that are kept. Where
the first share does not do, the second may: to solve a little further costs less than to let more outputs join."""
_MANY = 0.5
"""Outputs per cluster: if a coarse problem keeps more, choosing saves nothing, and all outputs are kept."""
_MOST_MEMORY = 2 * 2**30
"""Bytes for Newton's matrices of all outputs; if they need more, outputs are chosen all the same."""
_MANY_ROWS = 2_000
"""With more rows, factors of rows × rows matrices take long: clusters tell whether there is time for them. If not, they
bound the optimum from both sides."""
_FULL_STEPS = 24
"""Steps that the rows themselves take, about, with some time for pricing."""
_STEP_GROWTH = 2.5
"""The power of the rows with which the time of a step grows: 3 for the factors, less for the rest."""
_SOLVING_SHARE = 0.85
"""Of the time, before pricing begins all the same: without a bound, a mechanism is only half an answer."""
_BYTES_PER_ENTRY = 9
_MOST_FULL_MEMORY = 8 * 2**30
"""Bytes for Newton's matrices of these outputs (8 an entry at most) and their active pairs (1)."""


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
        See `interior_point.pool`.
    """
    if incumbent.reached(gap):
        return
    if program.cone.size > _MANY_ROWS:
        _search_many_rows(program, incumbent, gap, threads)
        return
    kept, columns = _choose(program, incumbent, gap, threads)
    level = Level(program, kept, incumbent, threads, phase="solving", fine=True, columns=columns)
    _finish(level, gap)


def _search_many_rows(program: LinearProgram, incumbent: Incumbent, gap: float, threads: Pool) -> None:
    """Solve clusters first, and the rows themselves if the time that is left and the memory are enough for them."""
    size = program.cone.size
    clusters = Clusters(program, program.order_of_centres(size // _COARSENING))
    kept, columns = _choose(clusters.program, incumbent, gap, threads)
    level = Level(clusters.program, kept, incumbent, threads, phase="clusters of rows", columns=columns)
    began = time.perf_counter()
    kept, columns = _correct(level, gap)
    seconds = (time.perf_counter() - began) / max(level.search.steps, 1) * _COARSENING**_STEP_GROWTH
    enough = began + _FULL_STEPS * seconds < incumbent.deadline
    if enough and _BYTES_PER_ENTRY * len(kept) * size**2 <= _MOST_FULL_MEMORY:
        columns = clusters.lift(columns, np.arange(size), program.cone)
        _finish(Level(program, kept, incumbent, threads, phase="solving", fine=True, columns=columns), gap)
        return
    solved = level.solve(_PRICING_SHARES[-1] * gap)
    search_coarsely(clusters, level.kept, solved, incumbent, gap=gap, threads=threads)


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
    outputs, rows = level.program.cost.shape
    coarse_gap = gap if outputs <= _MANY * rows else min(gap, _COARSE_GAP)
    for attempt in range(_COARSE_ROUNDS):
        solved = level.solve(max(coarse_gap, 1e-4))
        target = -max(0.2 * gap, _LEAST_COARSE_GAIN) * solved.loss
        worse = level.price_others(solved, target).violated(target)
        if len(worse) <= _FEW * len(level.kept) or attempt == _COARSE_ROUNDS - 1:
            break
        level.exchange(solved, worse)
    mass = solved.columns @ level.program.prior
    order = np.argsort(-mass, kind="stable")
    # What is left out here costs about its mass at most, and pricing brings back what matters.
    count = 1 + int((np.cumsum(mass[order]) < (1.0 - _LEFT_OUT * gap) * mass.sum()).sum())
    used = np.sort(order[:count])
    new = worse[: max(4, len(used) // 2)]
    kept = np.concatenate([level.kept[used], new])
    return kept, _joined(solved.columns[used], level.program.cost[kept])


def _joined(columns: Floats, cost: Floats) -> Floats:
    """Return a mechanism with new outputs, the last of those with a cost: each takes half from the one most like it."""
    for number in range(len(columns), len(cost)):
        like = int(np.abs(cost[:number] - cost[number]).sum(axis=1).argmin())
        columns = np.concatenate([columns, 0.5 * columns[like, None]])
        columns[like] *= 0.5
    normalised: Floats = columns / columns.sum(axis=0)
    return normalised


def _finish(level: Level, gap: float) -> None:
    """Solve for the kept outputs and price the others, with a tolerance that tightens, until the gap is reached."""
    incumbent = level.incumbent
    stage = max(gap, _FIRST_GAP)
    while True:
        for share in _PRICING_SHARES:
            solved = level.solve(stage * (1.0 - share))
            target = -share * stage * solved.loss
            prices = level.price_others(solved, target)
            incumbent.prove(with_slack(solved.duals, float(prices.below.min()), level.program.weight))
            incumbent.report("pricing")
            worse = prices.violated(target)
            if incumbent.reached(gap):
                return
            if level.late:
                raise Stopped
            if not len(worse):
                break
        if len(worse):
            level.exchange(solved, worse)
        elif level.search.stalled or stage == gap:
            return
        else:
            stage = max(gap, stage / 1000.0)


class Level:
    """One problem, coarse or fine, with the outputs that are kept in it."""

    def __init__(
        self,
        program: LinearProgram,
        kept: Positions,
        incumbent: Incumbent,
        threads: Pool,
        *,
        phase: str,
        fine: bool = False,
        columns: Floats | None = None,
    ) -> None:
        self.program, self.kept, self.incumbent, self.threads = program, kept, incumbent, threads
        self.settled = np.empty(0, np.intp)
        self.phase, self.fine, self.goal = phase, fine, 0.0
        now = time.perf_counter()
        self.until = now + _SOLVING_SHARE * (incumbent.deadline - now)
        self.search = self._search(columns, None, barrier=_FROM_THE_MIDDLE if columns is None else _FROM_CLUSTERS)

    def solve(self, gap: float) -> Iterate:
        """Solve for the kept outputs; those without mass are dropped on the way."""
        self.goal = gap
        solved = self.search.run(gap=gap, stop=self._watch)
        if self.search.stalled and solved.gap > _BAD_START:
            # The start was too near the edge of the cone for long steps: once more, from its middle.
            self.search = self._search(None, None, barrier=_FROM_THE_MIDDLE)
            solved = self.search.run(gap=gap, stop=self._watch)
        self._watch(solved)
        return self.search.iterate()

    @property
    def late(self) -> bool:
        """Whether the time that is left is for pricing, if there are outputs to price."""
        return self.fine and len(self.kept) < len(self.program.cost) and time.perf_counter() > self.until

    def used(self, solved: Iterate) -> Bools:
        """Tell which kept outputs carry mass.

        On the central path the mass of an output that the optimum does not use is about
        gap·loss / (outputs·t), where t > 0 is its reduced cost: it shrinks with the gap, that of the others does not.
        """
        mass = solved.columns @ self.program.prior
        used: Bools = mass > _USED * min(solved.gap, _DROP_BELOW_GAP) / len(self.kept) * mass.sum()
        used[mass.argmax()] = True
        return used | np.isin(self.kept, self.settled)

    def _watch(self, iterate: Iterate) -> bool:
        if self.fine:
            self.incumbent.offer(iterate.loss, self.kept, iterate.columns)
            if len(self.kept) == len(self.program.cost):
                self.incumbent.prove(iterate.bound)
        self.incumbent.report(self.phase)
        far = _DROP_ABOVE_GAPS * self.goal < iterate.gap < _DROP_BELOW_GAP
        if far and self.program.cone.size**2 * len(self.kept) > _WORTH_CHOOSING:
            used = self.used(iterate)
            if np.count_nonzero(used) < _WORTH_DROPPING * len(used):
                self.search.drop(used)
                self.kept = self.kept[used]
        return self.late

    def price_others(self, solved: Iterate, target: float) -> Prices:
        """Bound t for every output not kept; leave off when as many are seen to have t < target as are kept."""
        program = self.program
        below, above = np.zeros(len(program.cost)), np.full(len(program.cost), np.inf)
        others = np.setdiff1d(np.arange(len(program.cost)), self.kept)
        if not len(others):
            return Prices(below, above)
        reduced = program.reduced_cost(others, solved.duals)
        below[others] = push(program.cone, reduced, program.weight, target)
        # The worst bounds first: there the outputs that matter are found soon.
        unsettled = np.flatnonzero(below[others] < target * (1.0 + 1e-6))
        unsettled = unsettled[np.argsort(below[others][unsettled], kind="stable")]

        pricer = Pricer(program.cone, program.weight)

        def price(position: int) -> Price:
            return pricer.price(reduced[position], target)

        for first in range(0, len(unsettled), PRICES_AT_ONCE):
            part = unsettled[first : first + PRICES_AT_ONCE].tolist()
            for position, priced in zip(part, self.threads.each(price, part), strict=True):
                output = others[position]
                below[output], above[output] = max(below[output], priced.below), priced.above
            self.incumbent.report("pricing")
            if np.count_nonzero(above < target) >= max(6, len(self.kept)):
                break
        return Prices(below, above)

    def exchange(self, solved: Iterate, worse: Positions) -> None:
        """Drop outputs without mass, add the first of those that pricing found, and start again, well inside the cone.

        The cone is closed under sums, so the dropped columns can go to the new ones.
        """
        used = self.used(solved)
        new = worse[: max(4, len(self.kept) // 2)]
        gift = solved.columns[~used].sum(axis=0) / len(new)
        columns = np.concatenate([solved.columns[used], np.repeat(gift[None], len(new), axis=0)])
        columns = 0.9 * columns + 0.1 / len(columns)
        active = [pairs for pairs, stays in zip(self.search.active, used, strict=True) if stays]
        self.kept = np.concatenate([self.kept[used], new])
        # What pricing brought back is not dropped again: so the rounds come to an end.
        self.settled = np.concatenate([self.settled, new])
        self.search = self._search(columns / columns.sum(axis=0), [*active, *[None] * len(new)], barrier=1.0)

    def _search(self, columns: Floats | None, active: list[Bools | None] | None, *, barrier: float) -> Search:
        return Search(
            self.program.cone,
            self.program.cost[self.kept],
            threads=self.threads,
            columns=columns,
            active=active,
            barrier=barrier,
        )


@dataclass(frozen=True, eq=False)
class Prices:
    """Bounds on t for every output: 0 for those that are kept."""

    below: Floats
    above: Floats

    def violated(self, target: float) -> Positions:
        """Return the outputs seen to have t < target, the worst first."""
        outputs = np.flatnonzero(self.above < target)
        return outputs[np.argsort(self.above[outputs], kind="stable")]
