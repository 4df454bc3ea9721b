"""The durable budget: what was spent and answered, in one file that fails closed.

A report and its cost are one transaction, on disk before the answer is given. The process that opened the file holds it
alone until it is closed, so that what it has in memory is what the file says. Seals (HMAC-SHA-256 by the device's key)
chain the answers of each vehicle: what was changed, cut out or put back is noticed when the file is opened; that all of
it was put back, by the counter beside it. The file never holds where a vehicle was.
"""

from __future__ import annotations

import hmac
import os
import secrets
import sqlite3
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NoReturn

from geoblanket.errors import LedgerError
from geoblanket.mechanism.release_tables import VERIFIER
from geoblanket.release._ledger_file import connected, created, ledger_errors
from geoblanket.release.budget import Account, Answer, Budget
from geoblanket.release.counter import Counter

__all__ = ["Ledger", "MemoryLedger"]

_START: Final = bytes(32)
_MICRO: Final = 10**6

Change = tuple[str, Answer]
"""A vehicle, and an answer that it gets."""


class MemoryLedger:
    """A budget that is forgotten with the process."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._accounts: dict[str, Account] = {}

    def account(self, vehicle: str) -> Account:
        """Return what a vehicle spent."""
        if vehicle not in self._accounts:
            self._accounts[vehicle] = Account(self.budget)
        return self._accounts[vehicle]

    def write(self, changes: Sequence[Change]) -> None:
        """Count answers, at most one of each vehicle."""
        for vehicle, answer in changes:
            self.account(vehicle).add(answer)

    def is_verified(self, sha256: str) -> bool:
        """Return False: nothing is remembered."""
        del sha256
        return False

    def remember_verified(self, sha256: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.budget.epsilon:g} per km in {self.budget.window_s:g} s>"


class Ledger(MemoryLedger):
    """A budget in a file. Make the file once with `Ledger.create`, then use `Ledger.open`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, key: bytes, counter: Path) -> None:
        self.path = path
        self._connection, self._key = connection, key
        self._identity, epsilon, window_s, self.commits, vehicles, self.spent_micro = self._state()
        super().__init__(Budget(epsilon, window_s))
        self._chains: dict[str, _Chain] = {}
        self._load_accounts()
        spent = sum(account.spent_micro for account in self._accounts.values())
        if (len(self._chains), spent) != (vehicles, self.spent_micro):
            self._refuse_changed()
        self._verified = self._load_verified()
        self._counter = self._open_counter(counter)
        self._broken = self._closed = False
        self._process = os.getpid()

    @staticmethod
    def create(path: str | Path, *, budget: Budget, device_key: bytes = b"", counter: str | Path | None = None) -> None:
        """Make a new ledger, of which nothing is spent.

        Parameters
        ----------
        path
            Its file. Neither it nor the counter may exist: a ledger that was lost is not replaced by accident.
        budget
            What each vehicle may spend.
        device_key
            What seals it: only who has it can open the ledger, or change it unnoticed. Keep it where only this device
            has it, such as a key store; by default anyone can make seals.
        counter
            The file of the counter, best on other storage; by default beside the ledger, with `.count` added.
        """
        path = Path(path)
        count = _counter_path(path, counter)
        if path.exists() or count.exists():
            raise LedgerError(f"{path}: there is a ledger, or its counter, already. It keeps what was spent.")
        identity = secrets.token_bytes(16)
        row = (identity, float(budget.epsilon), float(budget.window_s), 1, 0, 0)
        try:
            with ledger_errors(path):
                connection = created(path)
                try:
                    sealed = (*row, _seal(device_key, *row))
                    connection.execute("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?)", sealed)
                finally:
                    connection.close()
        except OSError as error:
            raise LedgerError(f"{path}: cannot be made ({error.strerror or error}).") from None
        Counter.create(count, identity).close()

    @classmethod
    def open(cls, path: str | Path, *, device_key: bytes = b"", counter: str | Path | None = None) -> Ledger:
        """Open a ledger for this process alone, and check all of it.

        Raises
        ------
        LedgerError
            It is missing, damaged, changed, older than its counter, sealed by another key, or in use.
        """
        path = Path(path)
        if not path.is_file():
            raise LedgerError(f"{path}: there is no such ledger. Make it once, with `geoblanket ledger create`.")
        with ledger_errors(path):
            connection = connected(path)
            try:
                return cls(path, connection, device_key, _counter_path(path, counter))
            except BaseException:
                connection.close()
                raise

    @property
    def vehicles(self) -> tuple[str, ...]:
        """The vehicles that reported, in order of names."""
        return tuple(sorted(self._chains))

    def write(self, changes: Sequence[Change]) -> None:
        """Store answers, at most one of each vehicle, and what they cost in one transaction; then they are on disk.

        After a failure the ledger refuses until it is opened again: only the file knows what became of the transaction.
        """
        self._refuse_if_unusable()
        self._broken = True
        spent = self.spent_micro + sum(answer.cost_micro for _, answer in changes)
        with ledger_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            for vehicle, answer in changes:
                self._store(vehicle, answer)
            state = (self.commits + 1, len(self._chains), spent)
            sealed = _seal(self._key, self._identity, self.budget.epsilon, self.budget.window_s, *state)
            self._connection.execute(
                "UPDATE ledger SET commits = ?, vehicles = ?, spent_micro = ?, seal = ?", (*state, sealed)
            )
            self._connection.execute("COMMIT")
        self.commits += 1
        self.spent_micro = spent
        super().write(changes)
        self._counter.write(self.commits)
        self._broken = False

    def _store(self, vehicle: str, answer: Answer) -> None:
        account = self.account(vehicle)
        chain = self._chains.setdefault(vehicle, _Chain(_START))
        if expiring := account.expiring(answer.slot_ms):
            chain.forget(expiring)
            self._connection.execute(
                "DELETE FROM answers WHERE vehicle = ? AND slot_ms <= ?", (vehicle, answer.slot_ms - account.window_ms)
            )
        head = chain.add(_seal(self._key, chain.head, self._identity, vehicle, *answer))
        self._connection.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", (vehicle, *answer))
        spent = account.spent_micro + answer.cost_micro
        row = (vehicle, account.reports + 1, spent, answer.slot_ms, chain.before, head)
        self._connection.execute(
            "INSERT OR REPLACE INTO accounts VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*row, _seal(self._key, self._identity, *row)),
        )

    def is_verified(self, sha256: str) -> bool:
        """Return whether this software verified a bundle with this hash, and the ledger remembers it."""
        return sha256 in self._verified

    def remember_verified(self, sha256: str) -> None:
        """Remember that this software verified a bundle with this hash; forget what other versions verified."""
        if sha256 in self._verified:
            return
        self._refuse_if_unusable()
        row = (sha256, VERIFIER)
        with ledger_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM verified WHERE verifier <> ?", (VERIFIER,))
            sealed = _seal(self._key, self._identity, *row)
            self._connection.execute("INSERT INTO verified VALUES (?, ?, ?)", (*row, sealed))
            self._connection.execute("COMMIT")
        self._verified.add(sha256)

    def summary(self) -> dict[str, Any]:
        """Return what was spent and what is left, as JSON values; costs are per kilometre."""
        last = max((account.last_slot_ms or 0 for account in self._accounts.values()), default=0)
        kept = [
            self.budget.micro - account.left_micro(account.last_slot_ms or 0) for account in self._accounts.values()
        ]
        return {
            "budget": self.budget.epsilon,
            "window_s": self.budget.window_s,
            "vehicles": len(self._chains),
            "reports": sum(account.reports for account in self._accounts.values()),
            "spent": self.spent_micro / _MICRO,
            "spent_in_window": max(kept, default=0) / _MICRO,
            "last_report": datetime.fromtimestamp(last / 1000, UTC).isoformat() if last else None,
            "transactions": self.commits - 1,
            "verified_bundles": len(self._verified),
        }

    def check_storage(self) -> None:
        """Let SQLite check all of its file; what the seals cover was checked when it was opened."""
        with ledger_errors(self.path):
            if self._connection.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                self._refuse_changed()

    def close(self) -> None:
        """Let others open the file."""
        if self._closed or os.getpid() != self._process:
            return
        self._closed = self._broken = True
        with ledger_errors(self.path):
            self._connection.close()
        self._counter.close()

    def _refuse_if_unusable(self) -> None:
        if os.getpid() != self._process:
            raise LedgerError(f"{self.path}: was opened by another process. Open one ledger in each process.")
        if self._broken:
            raise LedgerError(f"{self.path}: is closed, or could not be written before. Open it again.")

    def _state(self) -> tuple[bytes, float, float, int, int, int]:
        rows = self._connection.execute(
            "SELECT id, epsilon, window_s, commits, vehicles, spent_micro, seal FROM ledger"
        ).fetchall()
        if len(rows) != 1 or not hmac.compare_digest(rows[0][-1], _seal(self._key, *rows[0][:-1])):
            self._refuse_changed()
        identity, epsilon, window_s, commits, vehicles, spent = rows[0][:-1]
        return identity, epsilon, window_s, commits, vehicles, spent

    def _load_accounts(self) -> None:
        accounts = self._connection.execute(
            "SELECT vehicle, reports, spent_micro, last_slot_ms, before, head, seal FROM accounts"
        ).fetchall()
        rows = self._connection.execute(
            "SELECT vehicle, slot_ms, cost_micro, place, lat_e7, lon_e7, request FROM answers ORDER BY vehicle, slot_ms"
        )
        answers = {
            vehicle: [Answer(*row[1:]) for row in some] for vehicle, some in groupby(rows, key=lambda row: str(row[0]))
        }
        for *row, seal in accounts:
            vehicle, reports, spent, last_slot_ms, before, head = row
            chain = _Chain(before)
            kept = answers.pop(vehicle, [])
            for answer in kept:
                chain.add(_seal(self._key, chain.head, self._identity, vehicle, *answer))
            if not hmac.compare_digest(seal, _seal(self._key, self._identity, *row)) or chain.head != head:
                self._refuse_changed()
            self._chains[vehicle] = chain
            self._accounts[vehicle] = Account(
                self.budget, kept, reports=reports, spent_micro=spent, last_slot_ms=last_slot_ms
            )
        if answers:
            self._refuse_changed()

    def _load_verified(self) -> set[str]:
        found = set()
        for bundle, verifier, seal in self._connection.execute("SELECT bundle, verifier, seal FROM verified"):
            if not hmac.compare_digest(seal, _seal(self._key, self._identity, bundle, verifier)):
                self._refuse_changed()
            if verifier == VERIFIER:
                found.add(bundle)
        return found

    def _open_counter(self, path: Path) -> Counter:
        counter = Counter.open(path, self._identity)
        if counter.read() > self.commits:
            counter.close()
            raise LedgerError(
                f"{self.path}: was put back to an earlier state: its counter is further. What was spent is not known, "
                "so nothing is released."
            )
        return counter

    def _refuse_changed(self) -> NoReturn:
        raise LedgerError(
            f"{self.path}: was changed or damaged, or belongs to another device key. What was spent is not known, so "
            "nothing is released."
        )


class _Chain:
    """The seals of a vehicle's answers: each one covers the one before it."""

    def __init__(self, before: bytes) -> None:
        self.before = before
        """The seal before the oldest answer that is kept."""
        self._links: deque[bytes] = deque()

    @property
    def head(self) -> bytes:
        return self._links[-1] if self._links else self.before

    def add(self, link: bytes) -> bytes:
        self._links.append(link)
        return link

    def forget(self, count: int) -> None:
        for _ in range(count):
            self.before = self._links.popleft()


def _seal(key: bytes, *values: Any) -> bytes:
    """Return what only who has the key can compute of some values (numbers, texts, bytes)."""
    return hmac.digest(key, repr(values).encode(), "sha256")


def _counter_path(path: Path, counter: str | Path | None) -> Path:
    return path.with_name(f"{path.name}.count") if counter is None else Path(counter)
