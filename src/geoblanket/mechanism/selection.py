"""Which outputs are worth having: a search from coarse rows to fine, then rounds of solving and pricing.

Few outputs carry mass unless ε·diameter is large. A coarse problem (near rows merged into clusters) with all outputs
shows which; finer problems correct the choice. On the rows themselves the kept outputs are solved, the others priced:
those that could lower the loss join, those without mass leave, and the bound covers all.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from geoblanket.mechanism.bounds import slack_below, sum_below, with_slack
from geoblanket.mechanism.cone import Bools, Floats, Ints
from geoblanket.mechanism.incumbent import Incumbent
from geoblanket.mechanism.interior_point import Iterate, Search
from geoblanket.mechanism.newton import Pool
from geoblanket.mechanism.pricing import Price, Pricer, push
from geoblanket.mechanism.rows import Clusters, Rows

__all__ = ["begin", "search"]

_COARSEST = 80
_COARSENING = 3
_FIRST_GAP = 1e-3
_MIDDLE_GAP = 2e-3
_MIDDLE_ROUNDS = 3
_LEAST_MIDDLE_TARGET = 2e-3
_LEFT_OUT = 2.0
_PRICING_SHARE = 0.3
_PRICES_AT_ONCE = 16
_DROP_BELOW_GAP = 0.03
_WORTH_DROPPING = 0.8
_USED = 16.0
_MANY = 0.5
_MOST_MEMORY = 2 * 2**30
_WORTH_CHOOSING = 500_000
"""With fewer rows² × outputs all outputs are kept: dropping them saves less than pricing them costs."""


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
        See `interior_point.pool`.
    """
    if incumbent.reached(gap):
        return
    kept, columns = _choose(rows, incumbent, gap, threads)
    level = _Level(rows, kept, incumbent, threads, phase="solving", fine=True, columns=columns)
    _finish(level, gap)


def begin(rows: Rows, incumbent: Incumbent) -> None:
    """Offer the best single output, and the bound that needs no multipliers: every row with its own best output."""
    best = int(rows.cost.sum(axis=1).argmin())
    incumbent.offer(float(rows.cost[best].sum()), np.array([best]), np.ones((1, rows.cone.size)))
    nothing = np.zeros_like(rows.cost)
    slack = slack_below(rows.cost, nothing, nothing, rows=rows.original_rows)
    incumbent.prove(sum_below(slack.min(axis=0)))


def _choose(rows: Rows, incumbent: Incumbent, gap: float, threads: Pool) -> tuple[Ints, Floats | None]:
    """Return the outputs to begin with, those that coarser problems use, and a start for their columns."""
    sizes = [rows.cone.size]
    while sizes[-1] > 1.5 * _COARSEST:
        sizes.append(max(_COARSEST, sizes[-1] // _COARSENING))
    sizes.reverse()
    order = rows.order_of_centres(sizes[-2]) if len(sizes) > 1 else np.empty(0, np.intp)
    kept: Ints = np.arange(len(rows.cost))
    columns: Floats | None = None
    for size, finer in pairwise(sizes):
        clusters = Clusters(rows, order[:size])
        level = _Level(clusters.rows, kept, incumbent, threads, phase=f"{size} clusters of rows", columns=columns)
        kept, used = _correct(level, gap)
        if len(kept) > _MANY * size and 8 * len(rows.cost) * rows.cone.size**2 <= _MOST_MEMORY:
            # Nearly every cluster has outputs of its own: more rows would need more outputs, perhaps all.
            return np.arange(len(rows.cost)), None
        if finer == rows.cone.size:
            columns = clusters.lift(used, np.arange(finer), rows.cone)
        else:
            columns = clusters.lift(used, order[:finer], Clusters(rows, order[:finer]).rows.cone)
    return kept, columns


def _correct(level: _Level, gap: float) -> tuple[Ints, Floats]:
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


def _finish(level: _Level, gap: float) -> None:
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


class _Level:
    """One problem, coarse or fine, with the outputs that are kept in it."""

    def __init__(
        self,
        rows: Rows,
        kept: Ints,
        incumbent: Incumbent,
        threads: Pool,
        *,
        phase: str,
        fine: bool = False,
        columns: Floats | None = None,
    ) -> None:
        self.rows, self.kept, self.incumbent, self.threads = rows, kept, incumbent, threads
        self.settled = np.empty(0, np.intp)
        self.phase, self.fine = phase, fine
        self.search = self._search(columns, None, barrier=10.0 if columns is None else 0.1)

    def solve(self, gap: float) -> Iterate:
        """Solve for the kept outputs; those without mass are dropped on the way."""
        solved = self.search.run(gap=gap, stop=self._watch)
        self._watch(solved)
        return self.search.iterate()

    def used(self, solved: Iterate) -> Bools:
        """Tell which kept outputs carry mass.

        On the central path the mass of an output that the optimum does not use is about
        gap·loss / (outputs·t), where t > 0 is its reduced cost: it shrinks with the gap, that of the others does not.
        """
        mass = solved.columns @ self.rows.prior
        used: Bools = mass > _USED * min(solved.gap, _DROP_BELOW_GAP) / len(self.kept) * mass.sum()
        used[mass.argmax()] = True
        return used | np.isin(self.kept, self.settled)

    def _watch(self, iterate: Iterate) -> bool:
        if self.fine:
            self.incumbent.offer(iterate.loss, self.kept, iterate.columns)
            if len(self.kept) == len(self.rows.cost):
                self.incumbent.prove(iterate.bound)
        self.incumbent.report(self.phase)
        if iterate.gap < _DROP_BELOW_GAP and self.rows.cone.size**2 * len(self.kept) > _WORTH_CHOOSING:
            used = self.used(iterate)
            if np.count_nonzero(used) < _WORTH_DROPPING * len(used):
                self.search.drop(used)
                self.kept = self.kept[used]
        return False

    def price_others(self, solved: Iterate, target: float) -> _Prices:
        """Bound what each output that is not kept could still gain."""
        return _price_others(self.rows, self.kept, solved.duals, target, incumbent=self.incumbent, threads=self.threads)

    def exchange(self, solved: Iterate, worse: Ints) -> None:
        """Drop outputs without mass, add the first of those that pricing found, and start again, well inside the cone.

        The cone is closed under sums, so the dropped columns can go to the new ones.
        """
        used = self.used(solved)
        new = worse[: max(4, len(self.kept) // 2)]
        gift = solved.columns[~used].sum(axis=0) / len(new)
        columns = np.concatenate([solved.columns[used], np.repeat(gift[None], len(new), axis=0)])
        columns = 0.9 * columns + 0.1 / len(columns)
        active = [own for own, stays in zip(self.search.active, used, strict=True) if stays]
        self.kept = np.concatenate([self.kept[used], new])
        # What pricing brought back is not dropped again: so the rounds come to an end.
        self.settled = np.concatenate([self.settled, new])
        self.search = self._search(columns / columns.sum(axis=0), [*active, *[None] * len(new)], barrier=1.0)

    def _search(self, columns: Floats | None, active: list[Bools | None] | None, *, barrier: float) -> Search:
        return Search(
            self.rows.cone,
            self.rows.cost[self.kept],
            threads=self.threads,
            columns=columns,
            active=active,
            barrier=barrier,
            original_rows=self.rows.original_rows,
        )


@dataclass(frozen=True, eq=False)
class _Prices:
    """Bounds on t for every output: 0 for those that are kept."""

    below: Floats
    above: Floats

    def violated(self, target: float) -> Ints:
        """Return the outputs seen to have t < target, the worst first."""
        found = np.flatnonzero(self.above < target)
        return found[np.argsort(self.above[found], kind="stable")]


def _price_others(
    rows: Rows, kept: Ints, duals: Floats, target: float, *, incumbent: Incumbent, threads: Pool
) -> _Prices:
    """Bound t for every output not kept; leave off when as many are found to have t < target as are kept."""
    weight = rows.weight
    below, above = np.zeros(len(rows.cost)), np.full(len(rows.cost), np.inf)
    others = np.setdiff1d(np.arange(len(rows.cost)), kept)
    if not len(others):
        return _Prices(below, above)
    # Rounded down by the errors of w and of the difference, of which the prices' own margins know nothing.
    costs = rows.cost[others]
    gained, given = (
        np.broadcast_to(np.maximum(duals, 0.0), costs.shape),
        np.broadcast_to(np.maximum(-duals, 0.0), costs.shape),
    )
    reduced = slack_below(costs, gained, given, rows=rows.original_rows)
    below[others] = push(rows.cone, reduced, weight, target, original_rows=rows.original_rows)
    # The worst bounds first: there the outputs that matter are found soon.
    open_others = np.flatnonzero(below[others] < _nearly(target))
    open_others = open_others[np.argsort(below[others][open_others], kind="stable")]

    pricer = Pricer(rows.cone, weight, original_rows=rows.original_rows)

    def one(position: int) -> Price:
        return pricer.price(reduced[position], target)

    for first in range(0, len(open_others), _PRICES_AT_ONCE):
        part = open_others[first : first + _PRICES_AT_ONCE].tolist()
        for position, found in zip(part, threads.each(one, part), strict=True):
            output = others[position]
            below[output], above[output] = max(below[output], found.below), found.above
        incumbent.report("pricing")
        if np.count_nonzero(above < target) >= max(6, len(kept)):
            break
    return _Prices(below, above)


def _nearly(target: float) -> float:
    return target * (1.0 + 1e-6)
