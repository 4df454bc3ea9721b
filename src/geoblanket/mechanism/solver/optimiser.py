"""The mechanism of least expected loss, with a proof of how far from the optimum it can be at most."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Positions
from geoblanket._display import card, short_repr
from geoblanket.errors import ParameterError
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem
from geoblanket.mechanism.solver.incumbent import Incumbent, Stopped
from geoblanket.mechanism.solver.interior_point import pool
from geoblanket.mechanism.solver.linear_program import Cone, LinearProgram
from geoblanket.mechanism.solver.selection import begin, search

_SEARCH_SHARE = 0.95
"""Of the gap, for the search: the exact repair, which comes after it, costs a little too."""

Method = Literal["structured", "highs"]
Progress = Callable[[str, float, float, float, float], object]
"""Called with the phase, the best loss and bound so far, the gap, and the seconds since the start. To end the search
with the best so far it returns False or raises KeyboardInterrupt."""


class Outcome(Enum):
    """The reason why a search ended.

    Examples
    --------
    With the `result` in the example of `optimise`:

    >>> from geoblanket.mechanism import Outcome
    >>> result.outcome is Outcome.REACHED
    True
    """

    REACHED = "the gap asked for is reached"
    TIME_LIMIT = "the time limit"
    INTERRUPTED = "interrupted"
    NO_PROGRESS = "no further progress: the rest of the gap is rounding, of floats or of the exact repair"


@dataclass(frozen=True)
class Event:
    """The state of a search: its phase, the best loss and bound, (loss − bound) / loss, and seconds since the start.

    Examples
    --------
    With the `result` in the example of `optimise`:

    >>> last = result.log[-1]
    >>> last.lower_bound <= last.loss
    True
    """

    phase: str
    loss: float
    lower_bound: float
    gap: float
    seconds: float

    def __repr__(self) -> str:
        bounds = f"loss {self.loss:.6g}", f"bound {self.lower_bound:.6g}", f"gap {self.gap:.3%}"
        return short_repr(self, self.phase, *bounds, f"{self.seconds:.2f} s")


@dataclass(frozen=True, eq=False)
class OptimiseResult:
    """A verified mechanism and how good it is proven to be: lower_bound ≤ optimum ≤ loss.

    The optimum is that of the problem rounded to whole numbers (ε in millionths per km, distances in mm), for which the
    mechanism is verified.

    Examples
    --------
    With the `result` in the example of `optimise`:

    >>> result.outcome.value
    'the gap asked for is reached'
    >>> result.mechanism.epsilon
    1.0
    """

    mechanism: Mechanism
    loss: float
    """Expected loss of the mechanism, after exact repair, rounded up."""
    lower_bound: float
    """No mechanism for this problem has a smaller expected loss."""
    gap: float
    """(loss − lower_bound) / loss."""
    seconds: float
    """Wall-clock time, repair and verification included."""
    outputs_used: int
    """How many outputs carry more than a thousandth of the probability."""
    outcome: Outcome
    log: tuple[Event, ...]
    """How loss and bound came closer; losses here are before the repair."""

    def _repr_html_(self) -> str:
        rows = [
            ("expected loss", f"{self.loss:.6g}"),
            ("proven lower bound", f"{self.lower_bound:.6g}"),
            ("gap", f"{self.gap:.3%}"),
            ("ended by", self.outcome.value),
            ("time", f"{self.seconds:.2f} s"),
        ]
        return card(self, rows) + self.mechanism._repr_html_()

    def __repr__(self) -> str:
        proven = f"loss {self.loss:.4g}", f"gap {self.gap:.2%}"
        mechanism = self.mechanism
        sizes = f"{mechanism.row_count:,} × {mechanism.output_count:,}"
        per = f"ε = {mechanism.epsilon:g} per {mechanism.unit}"
        return short_repr(self, *proven, sizes, per, "verified exactly", f"{self.seconds:.1f} s")


@checked
def optimise(
    problem: Problem,
    *,
    gap: float = 1e-3,
    time_limit_s: float = 60.0,
    method: Method = "structured",
    progress: Progress | None = None,
) -> OptimiseResult:
    """Find a mechanism whose expected loss is proven to be close to the least possible.

    Parameters
    ----------
    problem
        Rows, outputs, prior, loss, distances, ε and η.
    gap
        The relative gap to reach: (loss − lower bound) / loss. Losses below 1e-12 of that of the best single output
        count as 0.
    time_limit_s
        Seconds that the search may take; repair and verification come on top. When the time is up, the result is the
        best mechanism so far, with its proven gap.
    method
        "structured": the interior-point method of this package, for any size. "highs": the plain linear program by
        HiGHS, for small problems.
    progress
        See `Progress`.

    Raises
    ------
    ParameterError
        An option is out of range, or the problem is too large for the method.

    Examples
    --------
    With the `problem` in the example of `Problem`:

    >>> from geoblanket import optimise
    >>> result = optimise(problem, gap=1e-6)
    >>> f"{result.loss:.3f} km"
    '0.425 km'
    >>> result.lower_bound <= result.loss, result.gap <= 1e-6
    (True, True)
    """
    _check(gap, time_limit_s, method)
    run = _Run(problem, gap, time_limit_s, progress)
    outcome = run.structured() if method == "structured" else run.highs()
    mechanism = Mechanism.from_probabilities(run.probabilities(), problem)
    loss = mechanism.expected_loss(problem)
    lower_bound = min(run.bound, loss)
    relative = _relative(loss, lower_bound)
    if outcome is Outcome.REACHED and relative > gap:
        outcome = Outcome.NO_PROGRESS
    mass = problem.prior @ mechanism.probabilities
    return OptimiseResult(
        mechanism=mechanism,
        loss=loss,
        lower_bound=lower_bound,
        gap=relative,
        seconds=time.perf_counter() - run.started,
        outputs_used=int(np.count_nonzero(mass > 1e-3)),
        outcome=outcome,
        log=tuple(run.log),
    )


def _check(gap: float, time_limit_s: float, method: str) -> None:
    if not 0.0 < gap < 1.0:
        raise ParameterError(f"gap must be between 0 and 1. Got {gap} instead.")
    if not time_limit_s > 0.0:
        raise ParameterError(f"time_limit_s must be a positive number of seconds. Got {time_limit_s} instead.")
    if method not in ("structured", "highs"):
        raise ParameterError(f"method must be 'structured' or 'highs'. Got {method!r} instead.")


def _relative(loss: float, bound: float) -> float:
    return 0.0 if loss <= bound else (loss - bound) / loss


def _distributions(columns: Floats) -> Floats:
    """Return an untrusted answer with rows that sum to 1 and nothing negative; the repair does the rest."""
    usable = np.where(np.isfinite(columns), np.maximum(columns, 0.0), 0.0)
    total = usable.sum(axis=0)
    return np.where(total > 0.0, usable / np.where(total > 0.0, total, 1.0), 1.0 / len(columns))


@dataclass(eq=False)
class _Part:
    """One connected part of the rows, which is a problem of its own."""

    classes: Positions
    program: LinearProgram
    incumbent: Incumbent


class _Run:
    """One call of `optimise`: the parts of the problem, the clock and the log."""

    def __init__(self, problem: Problem, gap: float, time_limit_s: float, progress: Progress | None) -> None:
        self.started = time.perf_counter()
        self.problem, self.gap, self.progress = problem, gap, progress
        self.deadline = self.started + time_limit_s
        self.log: list[Event] = []
        self.asked_to_stop = False
        self.merged = problem.merged()
        # Sums of w, not means times sums: fewer roundings, which the bounds account for.
        cost = np.zeros((self.merged.row_count, problem.output_count))
        np.add.at(cost, problem.row_class, problem.prior[:, None] * problem.loss)
        component = self.merged.component
        self.parts = [
            self._part(cost, np.flatnonzero(component == number)) for number in range(int(component.max()) + 1)
        ]

    def _part(self, cost: Floats, classes: Positions) -> _Part:
        exponent = self.merged.log_bound[np.ix_(classes, classes)]
        cone = Cone(exponent, self.problem.row_count)
        program = LinearProgram(cone, np.ascontiguousarray(cost[classes].T), self.merged.prior[classes])
        part = _Part(classes, program, Incumbent(math.inf, self._listen))
        begin(program, part.incumbent)
        return part

    @property
    def loss(self) -> float:
        return math.fsum(part.incumbent.loss for part in self.parts)

    @property
    def bound(self) -> float:
        if len(self.parts) == 1:
            return self.parts[0].incumbent.bound
        return max(0.0, math.nextafter(math.fsum(part.incumbent.bound for part in self.parts), -math.inf))

    def structured(self) -> Outcome:
        """Search part after part, each with a share of the time that is left."""
        work = [len(part.classes) ** 2 for part in self.parts]
        timed_out = False
        try:
            with pool() as threads:
                for number, part in enumerate(self.parts):
                    seconds_left = self.deadline - time.perf_counter()
                    part.incumbent.deadline = time.perf_counter() + seconds_left * work[number] / sum(work[number:])
                    try:
                        search(part.program, part.incumbent, gap=_SEARCH_SHARE * self.gap, threads=threads)
                    except Stopped:
                        timed_out = True
                        if self.asked_to_stop:
                            return Outcome.INTERRUPTED
        except KeyboardInterrupt:
            return Outcome.INTERRUPTED
        if all(part.incumbent.reached(self.gap) for part in self.parts):
            return Outcome.REACHED
        return Outcome.TIME_LIMIT if timed_out else Outcome.NO_PROGRESS

    def highs(self) -> Outcome:
        """Give every part to HiGHS as it is."""
        from geoblanket.mechanism.solver.highs import solve_with_highs

        timed_out = False
        for part in self.parts:
            if part.incumbent.reached(self.gap):
                continue
            answer = solve_with_highs(part.program, time_limit_s=self.deadline - time.perf_counter())
            timed_out |= answer.timed_out
            part.incumbent.prove(answer.bound)
            if answer.columns is not None:
                columns = _distributions(answer.columns)
                part.incumbent.offer(float(np.vdot(part.program.cost, columns)), np.arange(len(columns)), columns)
        if all(part.incumbent.reached(self.gap) for part in self.parts):
            return Outcome.REACHED
        return Outcome.TIME_LIMIT if timed_out else Outcome.NO_PROGRESS

    def probabilities(self) -> Floats:
        """Return the best mechanism so far, shape (rows, outputs)."""
        table = np.zeros((self.merged.row_count, self.problem.output_count))
        for part in self.parts:
            table[np.ix_(part.classes, part.incumbent.outputs)] = part.incumbent.columns.T
        return table[self.problem.row_class]

    def _listen(self, phase: str, incumbent: Incumbent) -> None:  # noqa: ARG002 (all parts count)
        event = Event(
            phase, self.loss, self.bound, _relative(self.loss, self.bound), time.perf_counter() - self.started
        )
        if not self.log or (event.loss, event.lower_bound) != (self.log[-1].loss, self.log[-1].lower_bound):
            self.log.append(event)
        if self.progress is not None:
            answer = self.progress(event.phase, event.loss, event.lower_bound, event.gap, event.seconds)
            if answer is False:
                self.asked_to_stop = True
                raise Stopped
