"""The training ledger: a small file beside walks that records the cost of all learning from them.

Each learning with noise tells a little about those who drove, and the costs add up. So each learning is recorded before
any noise is drawn, and none may exceed a total that was stated at first.

The ledger reminds those who hold the walks; it does not bind them: they could learn without it, or remove it. A copy of
the walks elsewhere has its own ledger. Walks written anew under the same name are still about the same people, so they
inherit the ledger.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from geoblanket._arguments import checked
from geoblanket._display import counted, short_repr
from geoblanket._files import atomic_output, check_output, sha256_file
from geoblanket._training import Unit, epsilon_of
from geoblanket._untrusted import read_object
from geoblanket.errors import BudgetError, InputError, LedgerError, ParameterError
from geoblanket.learning.noise import TrainingBudget, largest_affordable

TOTAL_EPSILON: Final = 8.0
"""The default total ε of all learnings from the same walks."""
_FORMAT: Final = "geoblanket training ledger 1"
_ENDING: Final = ".spent.json"
_LARGEST_FILE: Final = 1 << 24
_LARGEST_NUMBER: Final = 1e6
_LONGEST_PURPOSE: Final = 200
_ROUNDING: Final = 1e-9
_NO_TOTAL: Final = "vehicles have no promise in total, since others learned by trip from the same walks"
_WAIT_S: Final = 20.0


@dataclass(frozen=True)
class Learning:
    """One learning, finished or not."""

    when: str
    """ISO 8601, UTC."""
    unit: Unit
    rho: float
    """The cost for each unit, as zero-concentrated differential privacy."""
    epsilon: float
    delta: float
    walks: str
    """SHA-256 of the file of walks."""
    purpose: str


@dataclass(frozen=True)
class StatedTotal:
    """A stated total ε of all learnings."""

    when: str
    epsilon: float


@dataclass(frozen=True)
class TrainingAccount:
    """The content of a training ledger; `TrainingLedger.account` reads it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from geoblanket import TrainingBudget, TrainingLedger
    >>> _ = Path("other.walks").write_bytes(b"walks of some people")
    >>> ledger = TrainingLedger.beside("other.walks")
    >>> for _ in range(2):
    ...     _ = ledger.spend("other.walks", TrainingBudget.of(1, 1e-6), purpose="an example")
    >>> account = ledger.account()
    >>> round(account.epsilon("vehicle"), 3), account.total_epsilon  # less than 1 + 1
    (1.451, 8.0)
    """

    delta: float
    """The δ for which the total is stated."""
    totals: tuple[StatedTotal, ...]
    """The last total counts; earlier ones show that it was changed."""
    learnings: tuple[Learning, ...]

    @property
    def total_epsilon(self) -> float:
        """The total ε of all learnings."""
        return self.totals[-1].epsilon

    @property
    def vehicles_have_a_promise(self) -> bool:
        """Whether all learnings were by vehicle. A learning by trip bounds nothing for a vehicle with many trips."""
        return all(learning.unit == "vehicle" for learning in self.learnings)

    def rho(self, unit: Unit) -> float:
        """Return the cost so far for a unit. A learning that hides a vehicle also hides each of its trips."""
        return math.fsum(learning.rho for learning in self.learnings if unit in {"trip", learning.unit})

    def epsilon(self, unit: Unit) -> float:
        """Return the cost so far for a unit as an ε, for the δ of the ledger."""
        return epsilon_of(self.rho(unit), self.delta)

    def left_epsilon(self) -> float:
        """Return the largest ε, for the δ of the ledger, that one more learning may have."""
        left = _largest_rho(self.total_epsilon, self.delta) - self.rho("trip")
        return epsilon_of(left, self.delta) if left > 0 else 0.0

    def in_words(self) -> str:
        """Return what was spent and what is left, as a sentence."""
        count = len(self.learnings)
        times = "once" if count == 1 else f"{count:,} times"
        words = (
            f"These walks were learned from {times}: ε = {self.epsilon('trip'):.3g} of {self.total_epsilon:g} is spent "
            f"(δ = {self.delta:g}), and one more learning may have ε = {self.left_epsilon():.3g} at most, since costs "
            "add up to less than the sum of their ε"
        )
        if count and not self.vehicles_have_a_promise:
            words += "; some learned by trip, so vehicles have no promise in total, only trips have"
        return words + "."

    def __repr__(self) -> str:
        spent = f"ε = {self.epsilon('trip'):.4g} of {self.total_epsilon:g} spent for δ = {self.delta:g}"
        return short_repr(self, spent, counted(len(self.learnings), "learning"))


@dataclass(frozen=True)
class Spent:
    """What a recorded learning has to state; it may now begin."""

    rho_before: float
    """The cost of earlier learnings for the same unit; 0 if it is unbounded (see `note`)."""
    account: TrainingAccount
    """The ledger after this learning."""
    note: str | None
    """What the model must state besides, as part of a sentence."""


class TrainingLedger:
    """Records the cost of learning from walks in a file, and refuses to exceed a total.

    Several processes may use it at once: each learning is counted. If the file was damaged or edited, all learning is
    refused.

    Parameters
    ----------
    path
        The file; the first learning makes it.
    total_epsilon
        The total ε of all learnings. None: as stated before, or 8 at first. A smaller total counts from now on.
    raise_total
        Allow a larger total than before. This gives up what was promised to those in the walks.

    Examples
    --------
    >>> from pathlib import Path
    >>> from geoblanket import TrainingBudget, TrainingLedger
    >>> _ = Path("some.walks").write_bytes(b"walks of some people")
    >>> ledger = TrainingLedger.beside("some.walks", total_epsilon=2)
    >>> spent = ledger.spend("some.walks", TrainingBudget.of(1, 1e-6), purpose="an example")
    >>> round(spent.account.epsilon("vehicle"), 3), round(spent.account.left_epsilon(), 3)
    (1.0, 1.679)
    """

    @checked
    def __init__(self, path: str | Path, *, total_epsilon: float | None = None, raise_total: bool = False) -> None:
        if total_epsilon is not None and not 0 < total_epsilon <= _LARGEST_NUMBER:
            raise ParameterError(f"The total ε of learnings must be more than 0. Got {total_epsilon:g} instead.")
        self.path = Path(path).resolve()  # all links to a file share what was spent
        self._total_epsilon = total_epsilon
        self._raise_total = raise_total

    @classmethod
    @checked
    def beside(cls, walks: str | Path, *, total_epsilon: float | None = None, raise_total: bool = False) -> Self:
        """Return the ledger beside a file of walks: `walks.parquet.spent.json` for `walks.parquet`."""
        walks = Path(walks).resolve()
        return cls(walks.with_name(f"{walks.name}{_ENDING}"), total_epsilon=total_epsilon, raise_total=raise_total)

    def account(self) -> TrainingAccount | None:
        """Return the content of the ledger; None before the first learning.

        Raises
        ------
        LedgerError
            If the file was damaged or edited.
        """
        try:
            if self.path.stat().st_size > _LARGEST_FILE:
                raise ValueError("is too large")
            return _parsed(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(
                f"{self.path}: cannot be read ({error.strerror or error}). Nothing is learned."
            ) from error
        except ValueError:
            raise LedgerError(
                f"{self.path}: is damaged or was edited, so nobody knows what was spent. Nothing is learned. Restore "
                "the file from a backup."
            ) from None

    def spend(self, walks: str | Path, budget: TrainingBudget, *, purpose: str) -> Spent:
        """Record a learning before it draws any noise. When this returns, the record is on the disk.

        Raises
        ------
        BudgetError
            If it would cost more than is left. Nothing is written.
        LedgerError
            If the ledger was damaged or edited, or is in use for too long.
        OutputError
            If the ledger cannot be written.
        """
        learning = Learning(
            _now(), budget.unit, budget.rho, budget.epsilon, budget.delta, _sha256(walks), purpose[:_LONGEST_PURPOSE]
        )
        check_output(self.path)
        with _locked(self.path):
            before = self._with_total(self.account(), budget.delta)
            _refuse_beyond_total(before, learning)
            after = replace(before, learnings=(*before.learnings, learning))
            with atomic_output(self.path, private=True) as temporary:
                temporary.write_bytes(_written(after))
        if budget.unit == "vehicle" and not before.vehicles_have_a_promise:
            # This learning keeps its own promise to vehicles, but no true total for vehicles can be stated.
            return Spent(0.0, after, _NO_TOTAL)
        return Spent(before.rho(budget.unit), after, None)

    def _with_total(self, account: TrainingAccount | None, delta: float) -> TrainingAccount:
        wanted = self._total_epsilon
        if account is None:
            return TrainingAccount(delta, (StatedTotal(_now(), wanted or TOTAL_EPSILON),), ())
        if wanted is None or wanted == account.total_epsilon:
            return account
        if wanted > account.total_epsilon and not self._raise_total:
            raise BudgetError(
                f"The total ε for those in the walks was stated to be {account.total_epsilon:g}, and {wanted:g} was "
                "asked for now. Leave total_epsilon out, or add raise_total=true, which gives up what was promised.",
                spent=account.epsilon("trip"),
                left=account.left_epsilon(),
            )
        return replace(account, totals=(*account.totals, StatedTotal(_now(), wanted)))

    def __repr__(self) -> str:
        return short_repr(self, str(self.path.name))


def _refuse_beyond_total(before: TrainingAccount, learning: Learning) -> None:
    """Raise if a learning would spend more than is left.

    All learnings add up for a trip, and no other unit has a larger sum, so this one sum is enough to check.
    """
    after = epsilon_of(math.fsum((before.rho("trip"), learning.rho)), before.delta)
    if after <= before.total_epsilon * (1 + _ROUNDING):
        return
    spent, left = before.epsilon("trip"), before.left_epsilon()
    smaller = f"Learn with ε = {_rounded_down(left)} or less" if left >= 0.01 else "Use what was learned before"
    raise BudgetError(
        f"Learning with ε = {learning.epsilon:g}, δ = {learning.delta:g} would cost those in the walks ε = {after:.3g} "
        f"in total. The total was stated to be {before.total_epsilon:g} (δ = {before.delta:g}): {spent:.3g} is spent "
        f"in {len(before.learnings):,} learning(s), {left:.3g} is left. {smaller}, or raise the total with "
        "total_epsilon and raise_total=true, which gives up what was promised to them.",
        spent=spent,
        left=left,
    )


def _rounded_down(epsilon: float) -> str:
    return f"{math.floor(epsilon * 100 * (1 + _ROUNDING)) / 100:g}"


def _largest_rho(epsilon: float, delta: float) -> float:
    """Return the largest cost that stays within ε for δ."""
    return largest_affordable(lambda rho: epsilon_of(rho, delta) <= epsilon)


def _sha256(walks: str | Path) -> str:
    try:
        return sha256_file(walks)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=walks) from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes and threads out of a ledger.

    The lock is a file of its own, because each writing replaces the ledger. It is never removed: otherwise two
    processes could hold a lock each. The system releases the lock when a process ends, however it ends.
    """
    import fcntl  # POSIX

    lock = path.with_name(f".{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LedgerError(f"{lock}: cannot be made ({error.strerror or error}). Nothing is learned.") from error
    try:
        end = time.monotonic() + _WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise LedgerError(f"{path}: is in use by another process. Nothing is learned; try again.") from None
                time.sleep(0.01)
            except OSError as error:
                raise LedgerError(
                    f"{lock}: cannot be locked ({error.strerror or error}). Nothing is learned."
                ) from error
        yield
    finally:
        os.close(descriptor)


def _written(account: TrainingAccount) -> bytes:
    body = {"format": _FORMAT, **asdict(account)}
    return (json.dumps(body | {"sha256": _digest(body)}, indent=2, ensure_ascii=True, allow_nan=False) + "\n").encode()


def _digest(body: Mapping[str, Any]) -> str:
    """Return the digest in a ledger's last line. It reveals damage and careless edits, but not forgery."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _parsed(data: bytes) -> TrainingAccount:
    """Read a ledger; raise ValueError if it is none, or is not as it was written."""
    fields = read_object(data)
    if fields.pop("sha256", None) != _digest(fields) or fields.pop("format", None) != _FORMAT:
        raise ValueError("was edited")
    try:
        totals = tuple(StatedTotal(**total) for total in fields.pop("totals"))
        learnings = tuple(Learning(**learning) for learning in fields.pop("learnings"))
        account = TrainingAccount(**fields, totals=totals, learnings=learnings)
        # No forged cost may make room for another learning.
        costs = (account.delta, *(total.epsilon for total in totals), *(learning.rho for learning in learnings))
        if not (totals and learnings and all(0 < cost <= _LARGEST_NUMBER for cost in costs)):
            raise ValueError("has impossible costs")
    except (KeyError, TypeError) as error:
        raise ValueError("has other fields") from error
    return account
