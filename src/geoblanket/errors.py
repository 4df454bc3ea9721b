"""Every exception that geoblanket raises on purpose.

::

    GeoblanketError
    ├── InputError        a file or table cannot be used: says which file, which row, and what to do
    ├── ParameterError    an option is out of range, or options contradict each other
    │   ├── UntestableError  a sample cannot decide a hypothesis: too few rows, a constant, or too rough
    │   └── UnmetPlanError   no schedule within the budgets does what is needed: says which budgets would
    ├── MismatchError     two inputs do not belong together (walks on another road network, ...)
    ├── PolicyError       a bundle keeps its promise, and promises less than the device accepts
    ├── OutputError       a result cannot be written
    ├── MechanismError    weights and distances that cannot be a mechanism
    │   ├── LatticeViolation    the numbers of a lattice do not keep its promise
    │   └── GuaranteeViolation  a mechanism does not keep its promise: says which rows and output, and by how much
    ├── WorkerError       processes that did some of the work died: says which work
    ├── RandomnessError   the operating system gives no randomness, so nothing is drawn
    ├── RefusedError      a report is not made: the budget is spent, or the time lies before the last report
    ├── BudgetError       learning is refused: it would cost those in the walks more than was stated
    ├── LedgerError       the durable budget cannot be trusted, read or written, so nothing is released
    └── MissingExtraError an optional feature needs a package that is not installed

A message says what was wrong, what was got, and what to do. It never contains a coordinate: errors
end up in logs, and a true location in a log is a leak.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

__all__ = [
    "BudgetError",
    "GeoblanketError",
    "GuaranteeViolation",
    "InputError",
    "LatticeViolation",
    "LedgerError",
    "MechanismError",
    "MismatchError",
    "MissingExtraError",
    "OutputError",
    "ParameterError",
    "PolicyError",
    "RandomnessError",
    "RefusedError",
    "UnmetPlanError",
    "UntestableError",
    "WorkerError",
]


class GeoblanketError(Exception):
    """The root of all errors: catch this to catch everything that geoblanket raises on purpose.

    Examples
    --------
    >>> from geoblanket import GeoblanketError, load_bundle
    >>> try:
    ...     load_bundle("absent.bundle")
    ... except GeoblanketError as error:
    ...     print(type(error).__name__)
    InputError
    """


class InputError(GeoblanketError):
    """A file or table cannot be used.

    Parameters
    ----------
    problem
        What was wrong and what was found, without a trailing full stop and without any coordinate.
    path
        The file concerned.
    row
        The row of the file, counted from 1 with the header as row 1 (so it is the line an editor shows,
        as long as no quoted field contains a line break).
    hint
        What to do about it.

    Examples
    --------
    >>> from geoblanket import InputError
    >>> print(InputError("the column 'lat' is missing", path="fleet.csv", row=1, hint="Name it with --columns"))
    fleet.csv, row 1: the column 'lat' is missing. Name it with --columns.
    """

    def __init__(
        self, problem: str, *, path: str | Path | None = None, row: int | None = None, hint: str | None = None
    ) -> None:
        self.problem = problem
        self.path = None if path is None else Path(path)
        self.row = row
        self.hint = hint
        where = ""
        if path is not None:
            where = f"{path}: " if row is None else f"{path}, row {row}: "
        elif row is not None:
            where = f"row {row}: "
        super().__init__(f"{where}{problem}." + (f" {hint}." if hint else ""))

    def __reduce__(self) -> tuple[partial[InputError], tuple[()]]:
        # Raised in a worker process, it must arrive in the parent as it was.
        return partial(type(self), self.problem, path=self.path, row=self.row, hint=self.hint), ()


class ParameterError(GeoblanketError, ValueError):
    """An option is out of range, or options contradict each other.

    Examples
    --------
    >>> from geoblanket import Budget
    >>> Budget(epsilon=0, window_s=3600)
    Traceback (most recent call last):
        ...
    geoblanket.errors.ParameterError: ...
    """


class UntestableError(ParameterError):
    """A sample cannot decide a hypothesis.

    Parameters
    ----------
    message
        What was wrong and what was got, as a sentence.
    reason
        "too few": there are too few rows; "constant": a variable never changes; "unresolved": the dependence that is
        left may be what regressions could not follow.
    """

    def __init__(self, message: str, reason: Literal["too few", "constant", "unresolved"]) -> None:
        self.reason = reason
        super().__init__(message)

    def __reduce__(self) -> tuple[type[UntestableError], tuple[str, str]]:
        return type(self), (str(self), self.reason)


class UnmetPlanError(ParameterError):
    """No schedule within the budgets does what is needed.

    Parameters
    ----------
    message
        What is needed, what there is and what would do, as sentences.
    least
        The least budgets that would do, all enlarged alike, ε per km by name; None if none would.
    """

    def __init__(self, message: str, least: Mapping[str, float] | None) -> None:
        self.least = least
        super().__init__(message)

    def __reduce__(self) -> tuple[type[UnmetPlanError], tuple[str, Mapping[str, float] | None]]:
        return type(self), (str(self), self.least)


class MismatchError(GeoblanketError):
    """Two inputs do not belong together, for example walks and another road network.

    Examples
    --------
    >>> from geoblanket import Trust, load_bundle
    >>> load_bundle("city.bundle", trust=Trust(domain=64 * "0"))
    Traceback (most recent call last):
        ...
    geoblanket.errors.MismatchError: ...
    """


class PolicyError(GeoblanketError):
    """A bundle keeps its promise, and promises less than the device accepts."""


class OutputError(GeoblanketError):
    """A result cannot be written.

    Examples
    --------
    With the `graph` in the example of `import_roads`:

    >>> graph.save("absent/city.roads")
    Traceback (most recent call last):
        ...
    geoblanket.errors.OutputError: ...
    """


class MechanismError(GeoblanketError):
    """Weights and distances cannot be a mechanism: wrong shapes or types, or distances that are not symmetric.

    Examples
    --------
    With the `result` in the example of `optimise`:

    >>> from geoblanket import verify
    >>> weights, distance_mm = result.mechanism.weights, result.mechanism.distance_mm
    >>> verify(weights, distance_mm=distance_mm[:2], epsilon_micro=1_000_000, eta_mm=5_000_000)
    Traceback (most recent call last):
        ...
    geoblanket.errors.MechanismError: ...
    """


class GuaranteeViolation(MechanismError):  # noqa: N818 - it names what was found, not what went wrong
    """A mechanism breaks its promise, by exact arithmetic.

    Parameters
    ----------
    row
        The row of the mechanism, counted from 0.
    other_row
        The row it must stay indistinguishable from; None if `row` alone is wrong (a negative weight, a wrong sum).
    output
        The output, counted from 0; None where the row's sum is wrong.
    excess
        How far the weight, or the row's sum, is too large, in units of 1/denominator (negative: too small).
    problem
        What was wrong, without a trailing full stop.

    Examples
    --------
    With the `result` in the example of `optimise`:

    >>> from geoblanket import GuaranteeViolation, verify
    >>> mechanism = result.mechanism
    >>> try:
    ...     verify(mechanism.weights, distance_mm=mechanism.distance_mm, epsilon_micro=1, eta_mm=mechanism.eta_mm)
    ... except GuaranteeViolation as violation:
    ...     print(violation.row, violation.other_row, violation.excess > 0)
    0 1 True
    """

    def __init__(self, row: int, other_row: int | None, output: int | None, excess: int, problem: str) -> None:
        self.row = row
        self.other_row = other_row
        self.output = output
        self.excess = excess
        self.problem = problem
        super().__init__(f"{problem}. The mechanism must not be used.")

    def __reduce__(self) -> tuple[type[GuaranteeViolation], tuple[int, int | None, int | None, int, str]]:
        return type(self), (self.row, self.other_row, self.output, self.excess, self.problem)


class LatticeViolation(MechanismError):  # noqa: N818 - as above
    """The numbers of a lattice do not keep its promise, by exact arithmetic.

    Parameters
    ----------
    problem
        What was wrong, without a trailing full stop.
    """

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}. The lattice must not be used.")

    def __reduce__(self) -> tuple[type[LatticeViolation], tuple[str]]:
        return type(self), (self.problem,)


class WorkerError(GeoblanketError):
    """Worker processes died, again and again, at the same tasks.

    Parameters
    ----------
    tasks
        The tasks that are not finished, in words.
    """

    def __init__(self, tasks: Sequence[str]) -> None:
        self.tasks = tuple(tasks)
        super().__init__(
            f"The worker processes of {len(self.tasks)} task(s) died, each more than once: {'; '.join(self.tasks)}. "
            "They may have needed more memory than there is. All other tasks are finished and kept."
        )

    def __reduce__(self) -> tuple[type[WorkerError], tuple[tuple[str, ...]]]:
        return type(self), (self.tasks,)


class RandomnessError(GeoblanketError):
    """The operating system gives no randomness: nothing is drawn, and nothing else is used instead."""


class RefusedError(GeoblanketError):
    """A report is not made. The rule uses only times and costs, and the text is the same for all locations.

    Parameters
    ----------
    message
        What was refused and what to do, as a sentence.
    reason
        "budget": the budget of the window is spent; "time": a report for a later time exists, or the period is over.
    retry_after_s
        Seconds until enough of the budget frees up, by the times and costs of earlier reports; None if that is not
        known, or never.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> from geoblanket import Budget, Device, RefusedError
    >>> with Device.open("city.bundle", ledger=None, budget=Budget(epsilon=2, window_s=3600)) as device:
    ...     _ = device.report(45.001, -30.002, datetime.now(UTC))
    ...     try:
    ...         device.report(45.001, -30.002, datetime.now(UTC) + timedelta(minutes=1))
    ...     except RefusedError as refusal:
    ...         print(refusal.reason, refusal.retry_after_s)
    budget 3600.0
    """

    def __init__(self, message: str, reason: Literal["budget", "time"], retry_after_s: float | None = None) -> None:
        self.reason = reason
        self.retry_after_s = retry_after_s
        super().__init__(message)

    def __reduce__(self) -> tuple[type[RefusedError], tuple[str, str, float | None]]:
        return type(self), (str(self), self.reason, self.retry_after_s)


class BudgetError(GeoblanketError):
    """Learning is refused: it would cost those in the walks more than the total that was stated.

    Parameters
    ----------
    message
        What was spent, what was asked for, what is left and what to do, as sentences.
    spent, left
        The same as ε, for the δ of the ledger.

    Examples
    --------
    >>> from pathlib import Path
    >>> from geoblanket import BudgetError, TrainingBudget, TrainingLedger
    >>> _ = Path("more.walks").write_bytes(b"walks of some people")
    >>> try:
    ...     TrainingLedger("more.spent").spend("more.walks", TrainingBudget.of(9, 1e-6), purpose="a test")
    ... except BudgetError as error:
    ...     print(error.spent, round(error.left))
    0.0 8
    """

    def __init__(self, message: str, *, spent: float, left: float) -> None:
        self.spent = spent
        self.left = left
        super().__init__(message)

    def __reduce__(self) -> tuple[partial[BudgetError], tuple[str]]:
        return partial(type(self), spent=self.spent, left=self.left), (str(self),)


class LedgerError(GeoblanketError):
    """The durable budget is missing, damaged, older than it was, in use elsewhere, or cannot be written.

    Nothing is released or learned until this is resolved: a budget that cannot be trusted counts as spent.

    Examples
    --------
    >>> from geoblanket import Ledger
    >>> Ledger.open("absent.ledger")
    Traceback (most recent call last):
        ...
    geoblanket.errors.LedgerError: ...
    """


class MissingExtraError(GeoblanketError, ImportError):
    """An optional feature needs a package that is not installed.

    Parameters
    ----------
    feature
        What was asked for.
    extra
        The extra of geoblanket that provides it.
    """

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the extra '{extra}'. Install it with: pip install 'geoblanket[{extra}]'.")
        self.feature, self.extra = feature, extra

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        return type(self), (self.feature, self.extra)
