"""One problem, coarse or fine, with the outputs that are kept in it; the others are priced."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geoblanket._arrays import Bools, Floats, Positions
from geoblanket.mechanism.solver.incumbent import Incumbent
from geoblanket.mechanism.solver.interior_point import Iterate, Search
from geoblanket.mechanism.solver.linear_program import LinearProgram
from geoblanket.mechanism.solver.newton import Pool
from geoblanket.mechanism.solver.pricing import PRICES_AT_ONCE, Price, Pricer, push

__all__ = ["Level", "Prices"]

_DROP_BELOW_GAP = 0.03
"""With a larger gap the mass of an output does not tell yet whether the optimum uses it."""
_WORTH_DROPPING = 0.8
"""If more than this share of the outputs would stay, none is dropped: it would save little."""
_USED = 16.0
"""How many times the mass that the central path leaves to unused outputs counts as used: with less, outputs without use
stay; with more, pricing has to bring back some that were dropped."""
_BAD_START = 0.1
"""A search that stalls with a larger gap did not come to the end of what floating-point numbers can do."""
_FROM_THE_MIDDLE = 10.0
"""The barrier to begin with where every output is equally likely."""
_WORTH_CHOOSING = 500_000
"""With fewer rows² × outputs all outputs are kept: dropping them saves less than pricing them costs."""


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
        self.phase, self.fine = phase, fine
        self.search = self._search(columns, None, barrier=_FROM_THE_MIDDLE if columns is None else 0.1)

    def solve(self, gap: float) -> Iterate:
        """Solve for the kept outputs; those without mass are dropped on the way."""
        solved = self.search.run(gap=gap, stop=self._watch)
        if self.search.stalled and solved.gap > _BAD_START:
            # The start was too near the edge of the cone for long steps: once more, from its middle.
            self.search = self._search(None, None, barrier=_FROM_THE_MIDDLE)
            solved = self.search.run(gap=gap, stop=self._watch)
        self._watch(solved)
        return self.search.iterate()

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
        if iterate.gap < _DROP_BELOW_GAP and self.program.cone.size**2 * len(self.kept) > _WORTH_CHOOSING:
            used = self.used(iterate)
            if np.count_nonzero(used) < _WORTH_DROPPING * len(used):
                self.search.drop(used)
                self.kept = self.kept[used]
        return False

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
