"""The durable budget: what was spent and answered, in one file that fails closed.

A report and its cost are one transaction, on disk before the answer is given. The process that opened the file has
exclusive access until it closes it, so that its memory agrees with the file. Seals (HMAC-SHA-256 by the device's key)
chain the answers of each vehicle, so that opening the file reveals answers that were changed, removed or put back. The
counter beside it reveals a rollback of the whole file, and the key a copy to another device. The file never contains
true locations.

It also keeps the fences of each vehicle (`geoblanket.release.fence`). The point where a vehicle's last report was drawn
lies in a separate file beside it (`geoblanket.release.hold`).

The ledger also stores the highest version of the bundles that it released with, for each domain. It refuses older ones.

Spending is counted in the slots' own times and in real elapsed time, for which the file stores the last reading of the
system's clocks (`geoblanket.release.rollback`). A ledger whose first report was a replay is for replays only: it counts
the caller's time, and says nothing about real time.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

from geoblanket._arguments import checked, forgetting
from geoblanket._display import card, short_repr
from geoblanket.errors import LedgerError, MismatchError, ParameterError
from geoblanket.mechanism.bundle.storage import VERIFIER
from geoblanket.release._ledger_file import (
    FORMAT,
    LedgerRow,
    connected,
    created,
    format_of,
    insert_row,
    ledger_errors,
    upgrade_ledger,
)
from geoblanket.release.budget import Account, Answer, Budget
from geoblanket.release.device_key import CHAIN_START, Chain, SealingKey, checked_key, is_sealed, seal
from geoblanket.release.fence import MARGIN_M, NO_FENCES, Fence, Fences
from geoblanket.release.hold import DrawnAt, HoldFile
from geoblanket.release.rollback import ClockState, Counter, ElapsedTime, read_clocks

_MICRO: Final = 10**6
_NS_PER_MS: Final = 10**6

Change = tuple[str, Answer]
"""A vehicle, and an answer that it gets."""
_NOTHING_DRAWN: Final[Mapping[str, DrawnAt]] = MappingProxyType({})


class MemoryLedger:
    """A budget in memory, lost when the process ends.

    Parameters
    ----------
    budget
        What each vehicle may spend.
    replay
        Whether only the caller's time counts, not real elapsed time.
    """

    def __init__(self, budget: Budget, *, replay: bool = False, clock: ClockState | None = None) -> None:
        self.budget, self.replay = budget, replay
        self._elapsed = ElapsedTime(clock)
        self._accounts: dict[str, Account] = {}
        self.versions: dict[str, int] = {}
        """The highest version of the bundles that it released with, for each domain."""
        self._in_use: dict[str, int] = {}
        self._drawn: dict[str, DrawnAt] = {}
        self._fences: dict[str, Fences] = {}

    def use_bundle(self, domain: str, version: int) -> None:
        """Expect reports by a bundle; its version is stored with the first of them.

        Raises
        ------
        MismatchError
            If there was a report by a later version for the same domain.
        """
        latest = self.versions.get(domain, version)
        if version < latest:
            raise MismatchError(
                f"The bundle is version {version}, and the ledger has reports by version {latest} for the same domain. "
                f"Devices refuse to go back. Get version {latest} or later, or publish this one again as version "
                f"{latest + 1}."
            )
        self._in_use = {domain: version}

    def now_ns(self, slot_ms: int) -> int:
        """Return when a report in a slot is made: in real elapsed time or, in a replay, in the slot's time."""
        return slot_ms * _NS_PER_MS if self.replay else self._elapsed.now_ns()

    def account(self, vehicle: str) -> Account:
        """Return what a vehicle spent."""
        if vehicle not in self._accounts:
            self._accounts[vehicle] = Account(self.budget)
        return self._accounts[vehicle]

    def drawn_at(self, vehicle: str) -> DrawnAt | None:
        """Return where the last report of a vehicle was drawn; None if that is not known."""
        drawn = self._drawn.get(vehicle)
        return drawn if drawn is not None and drawn.slot_ms == self.account(vehicle).drawn_slot_ms else None

    def fences_of(self, vehicle: str) -> Fences:
        """Return the fences of a vehicle."""
        return self._fences.get(vehicle, NO_FENCES)

    def set_fences(self, fences: Fences, vehicle: str = "") -> None:
        """Keep the fences of a vehicle; raise ParameterError if they lack one that it has or had."""
        self._fences[vehicle] = self.fences_of(vehicle).replaced_by(fences)

    def write(self, changes: Sequence[Change], drawn: Mapping[str, DrawnAt] = _NOTHING_DRAWN) -> None:
        """Count answers, at most one of each vehicle.

        Parameters
        ----------
        drawn
            The points where they were drawn, held reports included. The points of the other answers are forgotten.
        """
        for vehicle, answer in changes:
            self.account(vehicle).add(answer)
            self._drawn.pop(vehicle, None)
        self._drawn |= drawn
        self.versions |= self._in_use

    def close(self) -> None:
        """Forget where reports were drawn."""
        self._drawn.clear()

    def facts(self) -> list[tuple[str, str]]:
        """Return what the budget is and what is left of it, in words."""
        spent = self.spent_in_window_micro
        return [
            ("budget", f"{self.budget.epsilon:,g} per km in any {self.budget.window_s:,g} s"),
            ("left, at least", f"{self.budget.epsilon - spent / _MICRO:,g} per km"),
            ("vehicles that reported", f"{len(self._accounts):,}"),
            ("reports", f"{sum(account.reports for account in self._accounts.values()):,}"),
        ]

    @property
    def spent_in_window_micro(self) -> int:
        """What the reports that still count cost the vehicle that spent most, in millionths per kilometre."""
        kept = (sum(answer.cost_micro for answer in account.answers) for account in self._accounts.values())
        return max(kept, default=0)

    def _repr_html_(self) -> str:
        return card(self, self.facts())

    def __repr__(self) -> str:
        return short_repr(self, f"{self.budget.epsilon:g} per km in {self.budget.window_s:g} s")


class Ledger(MemoryLedger):
    """A budget in a file. Create the file once with `Ledger.create`, then use `Ledger.open`.

    Examples
    --------
    >>> from geoblanket import Budget, Ledger
    >>> Ledger.create("car.ledger", budget=Budget(epsilon=400, window_s=3600))
    >>> ledger = Ledger.open("car.ledger")
    >>> ledger.budget, ledger.spent_micro
    (Budget(epsilon=400.0, window_s=3600.0), 0)
    >>> ledger.close()
    """

    @checked
    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        device_key: bytes | None,
        counter: Path,
        replay: bool | None,
        *,
        hold_in_memory: bool = False,
    ) -> None:
        self.path = path
        self._connection = connection
        # One transaction: an old file is written anew, and the clock stored, only if nothing is refused.
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            if format_of(connection) < FORMAT and not upgrade_ledger(connection, path, device_key):
                self._refuse_changed()
            row, key = self._read_row(device_key)
            self._row, self._identity, self._key = row, row.id, key
            super().__init__(Budget(row.epsilon, row.window_s), replay=_checked_use(path, row, replay), clock=row.clock)
            self.versions = dict(json.loads(row.versions))
            self._chains: dict[str, Chain] = {}
            self._load_accounts()
            self._load_fences()
            spent = sum(account.spent_micro for account in self._accounts.values())
            if (len(self._chains), spent) != (row.vehicles, row.spent_micro):
                self._refuse_changed()
            self._verified = self._load_verified()
            self._counter = self._open_counter(counter)
            self._save_clock()
        hold = path.with_name(f"{path.name}.hold")
        if hold_in_memory:
            _remove(hold)
        self._hold = None if hold_in_memory else HoldFile(hold, key, row.id)
        self._broken = self._closed = False
        self._process = os.getpid()
        # What an upgrade removed must not stay in the log.
        self._cut_off_log()

    @staticmethod
    def create(
        path: str | Path, *, budget: Budget, device_key: bytes | None = None, counter: str | Path | None = None
    ) -> None:
        """Make a new ledger, with nothing spent.

        Parameters
        ----------
        path
            Its file. Neither it nor the counter may exist: a ledger that was lost is not replaced by accident.
        budget
            What each vehicle may spend.
        device_key
            The key of its seals, 16 bytes or more: nobody can open the ledger, or change it unnoticed, without it. By
            default the key of this device, which is made with its first ledger (`geoblanket.release.device_key`).
        counter
            The file of the counter, best on other storage; by default beside the ledger, with `.count` added.
        """
        path = Path(path)
        count = _counter_path(path, counter)
        if path.is_dir():
            raise LedgerError(f"{path}: is a folder. Give the name of the file to make.")
        if path.exists() or count.exists():
            raise LedgerError(f"{path}: there is a ledger, or its counter, already. It keeps what was spent.")
        row = _new_row(budget, sealed_by := SealingKey.for_new_ledger(device_key))
        try:
            with ledger_errors(path):
                connection = created(path)
                try:
                    insert_row(connection, row, seal(sealed_by.key, *row))
                finally:
                    connection.close()
        except OSError as error:
            raise LedgerError(f"{path}: cannot be made ({error.strerror or error}).") from None
        Counter.create(count, row.id).close()

    @classmethod
    @forgetting
    @checked
    def open(
        cls,
        path: str | Path,
        *,
        device_key: bytes | None = None,
        counter: str | Path | None = None,
        replay: bool | None = None,
        hold_in_memory: bool = False,
    ) -> Ledger:
        """Open a ledger exclusively, and check all of it. A file of version 0.2 is upgraded.

        Parameters
        ----------
        device_key, counter
            As given to `Ledger.create`.
        replay
            Whether to count the caller's time only. The first report of a ledger decides for all later ones; None: as
            that one decided.
        hold_in_memory
            Whether the points where reports were drawn are kept in memory only; see `Device.open`.

        Raises
        ------
        LedgerError
            It is missing, damaged, changed, older than its counter, sealed by another key, or in use.
        MismatchError
            It is for replays and is opened for real reports, or the other way round.
        """
        file = Path(path)
        if device_key is not None:
            checked_key(device_key)
        if not file.is_file():
            raise LedgerError(f"{file}: there is no such ledger. Make it once, with `geoblanket ledger create`.")
        with ledger_errors(file):
            connection = connected(file)
            try:
                count = _counter_path(file, counter)
                return cls(file, connection, device_key, count, replay, hold_in_memory=hold_in_memory)
            except BaseException:
                connection.close()
                raise

    @property
    def commits(self) -> int:
        """How many transactions there ever were, including its creation."""
        return self._row.commits

    @property
    def spent_micro(self) -> int:
        """What all vehicles ever spent, in millionths per kilometre."""
        return self._row.spent_micro

    @property
    def sealed_by(self) -> str:
        """Which key seals it: the "device"'s, or one that was "given"."""
        return self._row.sealed_by

    @property
    def vehicles(self) -> tuple[str, ...]:
        """The vehicles that reported, in order of names."""
        return tuple(sorted(self._chains))

    @property
    def fences(self) -> Fences:
        """The fences of a ledger with one vehicle; `fences_of` has those of others."""
        return self.fences_of("")

    @forgetting
    @checked
    def add_fence(
        self,
        lat: float,
        lon: float,
        *,
        radius_km: float,
        margin_m: float = MARGIN_M,
        name: str = "home",
        vehicle: str = "",
    ) -> Fence:
        """Draw a fence around a place, keep it, and return it; see `Fences.with_place`. The place is not kept."""
        fences, fence = self.fences_of(vehicle).with_place(lat, lon, radius_km=radius_km, margin_m=margin_m, name=name)
        self.set_fences(fences, vehicle)
        return fence

    def set_fences(self, fences: Fences, vehicle: str = "") -> None:
        """Keep the fences of a vehicle, durably; raise ParameterError if they lack one that it has or had."""
        kept = self._fences | {vehicle: self.fences_of(vehicle).replaced_by(fences)}
        with self._transaction({"fences": self._seal_of_fences(kept)}):
            self._connection.execute("INSERT OR REPLACE INTO fences VALUES (?, ?)", (vehicle, fences.as_json()))
        super().set_fences(fences, vehicle)

    def _seal_of_fences(self, fences: Mapping[str, Fences]) -> bytes:
        texts = sorted((vehicle, some.as_json()) for vehicle, some in fences.items())
        return seal(self._key, self._identity, "fences", *texts) if texts else b""

    def drawn_at(self, vehicle: str) -> DrawnAt | None:
        """Return where the last report of a vehicle was drawn, before a restart too; None if that is not known."""
        known = super().drawn_at(vehicle)
        if known is None and self._hold is not None:
            return self._hold.read(vehicle, self.account(vehicle).drawn_slot_ms)
        return known

    def write(self, changes: Sequence[Change], drawn: Mapping[str, DrawnAt] = _NOTHING_DRAWN) -> None:
        """Store answers, at most one per vehicle, with their costs, in one durable transaction.

        After a failure the ledger refuses to work until it is reopened: only the file knows whether the transaction
        succeeded.
        """
        changed = {
            "replay": int(self.replay),
            "vehicles": len({*self._chains, *(vehicle for vehicle, _ in changes)}),
            "spent_micro": self._row.spent_micro + sum(answer.cost_micro for _, answer in changes),
            "versions": json.dumps(self.versions | self._in_use, sort_keys=True),
        }
        with self._transaction(changed):
            for vehicle, answer in changes:
                self._store(vehicle, answer)
        super().write(changes, drawn)
        if self._hold is not None:
            for vehicle, _ in changes:
                self._hold.write(vehicle, drawn.get(vehicle))

    @contextmanager
    def _transaction(self, changed: Mapping[str, Any]) -> Iterator[None]:
        """Commit what is done inside together with these changes of the ledger's row, and count it."""
        self._refuse_if_unusable()
        self._broken = True
        with ledger_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            row = self._row._replace(commits=self._row.commits + 1, **changed, **self._elapsed.state._asdict())
            self._connection.execute(_UPDATE_ROW, (*row[_FIRST_CHANGING:], seal(self._key, *row)))
            self._connection.execute("COMMIT")
        self._row = row
        self._counter.write(self.commits)
        self._broken = False

    def _store(self, vehicle: str, answer: Answer) -> None:
        """Write an answer into the open transaction."""
        account = self.account(vehicle)
        chain = self._chains.setdefault(vehicle, Chain(CHAIN_START))
        if expiring := account.expiring(answer.slot_ms, answer.made_ns):
            chain.forget(len(expiring))
            self._connection.execute(
                "DELETE FROM answers WHERE vehicle = ? AND slot_ms <= ?", (vehicle, expiring[-1].slot_ms)
            )
        chain.add(seal(self._key, chain.head, self._identity, vehicle, *answer))
        self._connection.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (vehicle, *answer))
        drawn_slot_ms = answer.slot_ms if answer.cost_micro else account.drawn_slot_ms
        numbers = account.reports + 1, account.spent_micro + answer.cost_micro, answer.slot_ms, drawn_slot_ms
        row = (vehicle, *numbers, chain.before, chain.head)
        self._connection.execute(_REPLACE_ACCOUNT, (*row, seal(self._key, self._identity, *row)))

    def _cut_off_log(self) -> None:
        """Bring all of the log into the file and empty it: it holds rows as they were."""
        busy, *_ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise sqlite3.OperationalError("its log cannot be emptied")

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
            sealed = seal(self._key, self._identity, *row)
            self._connection.execute("INSERT INTO verified VALUES (?, ?, ?)", (*row, sealed))
            self._connection.execute("COMMIT")
        self._verified.add(sha256)

    def summary(self) -> dict[str, Any]:
        """Return what was spent and what is left, as JSON values; costs are per kilometre."""
        last = max((account.last_slot_ms or 0 for account in self._accounts.values()), default=0)
        return {
            "budget": self.budget.epsilon,
            "window_s": self.budget.window_s,
            "vehicles": len(self._chains),
            "reports": sum(account.reports for account in self._accounts.values()),
            "spent": self.spent_micro / _MICRO,
            "spent_in_window": self.spent_in_window_micro / _MICRO,
            "last_report": datetime.fromtimestamp(last / 1000, UTC).isoformat() if last else None,
            "transactions": self.commits - 1,
            "verified_bundles": len(self._verified),
            "bundle_versions": self.versions,
            "sealed_by": self.sealed_by,
            "replay": self.replay,
        }

    def check_storage(self) -> None:
        """Let SQLite check all of its file; what the seals cover was checked when it was opened."""
        with ledger_errors(self.path):
            if self._connection.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                self._refuse_changed()

    def close(self) -> None:
        """Close the file, so that another process can open it."""
        if self._closed or os.getpid() != self._process:
            return
        try:
            if not self._broken:
                with ledger_errors(self.path):
                    self._save_clock()
        finally:
            self._closed = self._broken = True
            with ledger_errors(self.path):
                self._connection.close()
            self._counter.close()
            if self._hold is not None:
                self._hold.close()
            super().close()

    def _save_clock(self) -> None:
        """Store a reading of the clocks, so that a wall clock that was set forward gains nothing after a reboot."""
        self._elapsed.now_ns()
        self._row = self._row._replace(**self._elapsed.state._asdict())
        self._connection.execute(_UPDATE_ROW, (*self._row[_FIRST_CHANGING:], seal(self._key, *self._row)))

    def _refuse_if_unusable(self) -> None:
        if os.getpid() != self._process:
            raise LedgerError(f"{self.path}: was opened by another process. Open one ledger in each process.")
        if self._broken:
            raise LedgerError(f"{self.path}: is closed, or could not be written before. Open it again.")

    def _read_row(self, device_key: bytes | None) -> tuple[LedgerRow, bytes]:
        """Return what the ledger says about itself, and its key, after checking device and seal."""
        rows = self._connection.execute(_SELECT_ROW).fetchall()
        if len(rows) != 1:
            self._refuse_changed()
        row = LedgerRow(*rows[0][:-1])
        sealed_by = SealingKey.of_ledger(self.path, row.sealed_by, device_key)
        sealed_by.refuse_elsewhere(self.path, row.id, row.key_check, row.machine)
        if not is_sealed(rows[0][-1], sealed_by.key, *row):
            self._refuse_changed()
        return row, sealed_by.key

    def _load_accounts(self) -> None:
        answers: dict[str, list[Answer]] = {}
        for vehicle, *row in self._connection.execute(_SELECT_ANSWERS):
            answers.setdefault(vehicle, []).append(Answer(*row))
        for *row, stored_seal in self._connection.execute(_SELECT_ACCOUNTS).fetchall():
            vehicle, reports, spent, last_slot_ms, drawn_slot_ms, before, head = row
            chain = Chain(before)
            kept = answers.pop(vehicle, [])
            for answer in kept:
                chain.add(seal(self._key, chain.head, self._identity, vehicle, *answer))
            if not is_sealed(stored_seal, self._key, self._identity, *row) or chain.head != head:
                self._refuse_changed()
            self._chains[vehicle] = chain
            self._accounts[vehicle] = Account(
                self.budget,
                kept,
                reports=reports,
                spent_micro=spent,
                last_slot_ms=last_slot_ms,
                drawn_slot_ms=drawn_slot_ms,
            )
        if answers:
            self._refuse_changed()

    def _load_fences(self) -> None:
        rows = self._connection.execute("SELECT vehicle, fences FROM fences").fetchall()
        try:
            fences = {str(vehicle): Fences.parsed(text) for vehicle, text in rows}
        except ParameterError:
            self._refuse_changed()
        if self._seal_of_fences(fences) != self._row.fences:
            self._refuse_changed()
        self._fences = fences

    def _load_verified(self) -> set[str]:
        bundles = set()
        for bundle, verifier, stored_seal in self._connection.execute("SELECT bundle, verifier, seal FROM verified"):
            if not is_sealed(stored_seal, self._key, self._identity, bundle, verifier):
                self._refuse_changed()
            if verifier == VERIFIER:
                bundles.add(bundle)
        return bundles

    def _open_counter(self, path: Path) -> Counter:
        counter = Counter.open(path, self._identity)
        if counter.read() > self.commits:
            counter.close()
            raise LedgerError(
                f"{self.path}: was rolled back to an earlier state: its counter is ahead. What was spent is not known, "
                "so nothing is released."
            )
        return counter

    def _refuse_changed(self) -> NoReturn:
        raise LedgerError(
            f"{self.path}: was changed or damaged, or is sealed by another device key. What was spent is not known, so "
            "nothing is released."
        )


_FIRST_CHANGING: Final = LedgerRow._fields.index("replay")
_SELECT_ROW: Final = f"SELECT {', '.join(LedgerRow._fields)}, seal FROM ledger"  # noqa: S608
_UPDATE_ROW: Final = (
    f"UPDATE ledger SET {', '.join(f'{name} = ?' for name in LedgerRow._fields[_FIRST_CHANGING:])}, seal = ?"  # noqa: S608
)
_ACCOUNT: Final = "vehicle, reports, spent_micro, last_slot_ms, drawn_slot_ms, before, head, seal"
_SELECT_ACCOUNTS: Final = f"SELECT {_ACCOUNT} FROM accounts"  # noqa: S608
_REPLACE_ACCOUNT: Final = f"INSERT OR REPLACE INTO accounts ({_ACCOUNT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_SELECT_ANSWERS: Final = (
    "SELECT vehicle, slot_ms, cost_micro, place, lat_e7, lon_e7, request, made_ns FROM answers "
    "ORDER BY vehicle, slot_ms"
)


def _new_row(budget: Budget, sealed_by: SealingKey) -> LedgerRow:
    identity = secrets.token_bytes(16)
    return LedgerRow(
        identity,
        float(budget.epsilon),
        float(budget.window_s),
        sealed_by.kind,
        sealed_by.check(identity),
        sealed_by.machine() if sealed_by.binds_machine else b"",
        0,
        1,
        0,
        0,
        "{}",
        b"",
        *ClockState.of(read_clocks()),
    )


def _checked_use(path: Path, row: LedgerRow, replay: bool | None) -> bool:
    """Return whether a ledger is for replays; raise MismatchError if it was used for the other kind before."""
    used = row.vehicles > 0
    if replay is not None and used and replay != bool(row.replay):
        problem = "has counted replays" if row.replay else "has counted reports in real time"
        raise MismatchError(f"{path}: {problem}, and counts nothing else. Make another ledger for other reports.")
    return bool(row.replay) if used or replay is None else replay


def _counter_path(path: Path, counter: str | Path | None) -> Path:
    return path.with_name(f"{path.name}.count") if counter is None else Path(counter)


def _remove(hold: Path) -> None:
    try:
        hold.unlink(missing_ok=True)
    except OSError as error:
        raise LedgerError(
            f"{hold}: cannot be removed ({error.strerror}). It tells where the last reports were drawn. Remove it."
        ) from None
