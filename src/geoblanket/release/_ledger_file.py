"""The SQLite file of a ledger: its tables, how it is opened, and how earlier formats are upgraded.

An upgrade checks all seals, and writes the whole ledger anew, in one transaction. Format 1 counted the caller's time
only, and knew neither real elapsed time nor the device's key. As it does not say when its answers were really made,
they count as made now. Format 3, of version 0.2, had anchors, with a budget of their own: they are removed. Up to then
ledgers knew no versions of bundles, and there were some without a key: these need `Ledger.add_key`. Which bundles were
verified is forgotten, as another version of the software has to verify them again.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from geoblanket.errors import LedgerError
from geoblanket.release.budget import Answer
from geoblanket.release.device_key import Chain, SealingKey, is_sealed, seal
from geoblanket.release.rollback import ClockState, read_clocks

__all__ = ["FORMAT", "LedgerRow", "connected", "created", "format_of", "insert_row", "ledger_errors", "upgrade_ledger"]

FORMAT: Final = 4
"""Files of earlier formats are upgraded when they are opened."""
_APPLICATION: Final = 0x47424C31
_WHOLE: Final[dict[str, set[object]]] = {
    "application_id": {_APPLICATION},
    "user_version": set(range(1, FORMAT + 1)),
    "quick_check": {"ok"},
}
_WAIT_S: Final = 1.0
TABLES: Final = {
    "ledger": """CREATE TABLE ledger (
    id BLOB NOT NULL, epsilon REAL NOT NULL, window_s REAL NOT NULL,
    sealed_by TEXT NOT NULL, key_check BLOB NOT NULL, machine BLOB NOT NULL,
    replay INTEGER NOT NULL, commits INTEGER NOT NULL, vehicles INTEGER NOT NULL, spent_micro INTEGER NOT NULL,
    versions TEXT NOT NULL, fences BLOB NOT NULL,
    passed_ns INTEGER NOT NULL, latest_wall_ns INTEGER NOT NULL, wall_ns INTEGER NOT NULL, boot TEXT NOT NULL,
    boot_ns INTEGER NOT NULL, seal BLOB NOT NULL
) STRICT""",
    "accounts": """CREATE TABLE accounts (
    vehicle TEXT NOT NULL PRIMARY KEY, reports INTEGER NOT NULL, spent_micro INTEGER NOT NULL,
    last_slot_ms INTEGER NOT NULL, drawn_slot_ms INTEGER, before BLOB NOT NULL, head BLOB NOT NULL,
    seal BLOB NOT NULL
) STRICT, WITHOUT ROWID""",
    "answers": """CREATE TABLE answers (
    vehicle TEXT NOT NULL, slot_ms INTEGER NOT NULL, cost_micro INTEGER NOT NULL, place INTEGER NOT NULL,
    lat_e7 INTEGER NOT NULL, lon_e7 INTEGER NOT NULL, request TEXT, made_ns INTEGER NOT NULL,
    PRIMARY KEY (vehicle, slot_ms)
) STRICT, WITHOUT ROWID""",
    "fences": "CREATE TABLE fences (vehicle TEXT NOT NULL PRIMARY KEY, fences TEXT NOT NULL) STRICT, WITHOUT ROWID",
    "verified": "CREATE TABLE verified (bundle TEXT NOT NULL, verifier TEXT NOT NULL, seal BLOB NOT NULL) STRICT",
}
"""Each table, exactly as SQLite stores its definition."""
_OLD_TABLES: Final = {"ledger", "accounts", "answers", "verified"}
_WITH_ANCHORS: Final = 3
"""The format of version 0.2, which had one more table."""

_open: weakref.WeakSet[_Connection] = weakref.WeakSet()
Rows = list[tuple[Any, ...]]

_ACCOUNT: Final = ("vehicle", "reports", "spent_micro", "last_slot_ms", "before", "head")


class LedgerRow(NamedTuple):
    """What a ledger says about itself, without the seal."""

    id: bytes
    epsilon: float
    window_s: float
    sealed_by: str
    key_check: bytes
    machine: bytes
    """A digest of the machine's id; empty if the ledger is not bound to a machine."""
    replay: int
    """1 if it counts replays, in the caller's time only."""
    commits: int
    vehicles: int
    spent_micro: int
    versions: str
    """The highest version of the bundles that it released with, for each domain; JSON."""
    fences: bytes
    """A seal of the fences of all vehicles."""
    passed_ns: int
    """This and the next: see `ClockState`."""
    latest_wall_ns: int
    wall_ns: int
    boot: str
    boot_ns: int

    @property
    def clock(self) -> ClockState:
        """What it knows of the time that has passed."""
        return ClockState(self.passed_ns, self.latest_wall_ns, self.wall_ns, self.boot, self.boot_ns)


class _Connection(sqlite3.Connection):
    """A connection that weak references can follow."""


@contextmanager
def ledger_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file into LedgerErrors. SQLite's messages contain no values."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            problem = "is in use. Only one process at a time may open a ledger"
        else:
            problem = f"cannot be used as a ledger ({error}). Nothing is released"
        raise LedgerError(f"{path}: {problem}.") from None
    except (ValueError, TypeError, OverflowError):
        raise LedgerError(f"{path}: is damaged. Nothing is released.") from None


def created(path: Path) -> sqlite3.Connection:
    """Return a connection to a new file, with empty tables."""
    path.touch(mode=0o600, exist_ok=False)
    connection = _connection(path)
    connection.executescript(f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {FORMAT};")
    connection.executescript(f"BEGIN IMMEDIATE; {'; '.join(TABLES.values())}; COMMIT;")
    return connection


def connected(path: Path) -> sqlite3.Connection:
    """Return an exclusive connection to an undamaged ledger file that has the tables of its format, and only these."""
    connection = _connection(path)
    try:
        for pragma, wanted in _WHOLE.items():
            if connection.execute(f"PRAGMA {pragma}").fetchone()[0] not in wanted:
                raise LedgerError(f"{path}: is damaged, or is not a ledger of this version. Nothing is released.")
        # Before any statement that could fire a trigger, or read a view in the place of a table.
        if not _has_expected_schema(connection):
            raise LedgerError(f"{path}: its tables were changed, or others were added. Nothing is released.")
    except BaseException:
        connection.close()
        raise
    return connection


def format_of(connection: sqlite3.Connection) -> int:
    """Return the format of a ledger's file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _has_expected_schema(connection: sqlite3.Connection) -> bool:
    """Return whether a file has the tables of its format, and no trigger, view, index or other table.

    An earlier format is known by the names of its tables: its upgrade checks all seals and makes the tables anew.
    """
    found = sorted(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))
    number = format_of(connection)
    if number == FORMAT:
        return found == sorted(("table", name, name, sql) for name, sql in TABLES.items())
    names = sorted(_OLD_TABLES | ({"anchors"} if number == _WITH_ANCHORS else set()))
    return [row[:3] for row in found] == [("table", name, name) for name in names] and all(
        str(sql).startswith("CREATE TABLE ") for *_, sql in found
    )


def insert_row(connection: sqlite3.Connection, row: LedgerRow, seal: bytes) -> None:
    """Write what a new ledger says of itself."""
    marks = ", ".join("?" * (len(row) + 1))
    connection.execute(f"INSERT INTO ledger ({', '.join(row._fields)}, seal) VALUES ({marks})", (*row, seal))  # noqa: S608


def _connection(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=_WAIT_S,
        isolation_level=None,
        check_same_thread=False,
        factory=_Connection,
    )
    try:
        # The lock is taken by the first transaction, and kept: no other process gets in before the file is closed.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA trusted_schema = OFF")
        # Nothing of a row that was removed stays in the file: the anchors of version 0.2 were secrets.
        connection.execute("PRAGMA secure_delete = ON")
        if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            raise sqlite3.OperationalError("it cannot be written ahead")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    _open.add(connection)
    return connection


def _leave_to_parent() -> None:
    """In a forked process: never close the parent's connections, which would checkpoint its log while it is in use."""
    for connection in _open:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


class _Format(NamedTuple):
    """The columns of an earlier format, in the order in which they were sealed."""

    ledger: tuple[str, ...]
    account: tuple[str, ...]
    answer: tuple[str, ...]


_ROW_2: Final = tuple(name for name in LedgerRow._fields if name not in {"versions", "fences"})
_ROW_3: Final = (*_ROW_2[:3], "anchor_epsilon", *_ROW_2[3:10], "anchor_spent_micro", *_ROW_2[10:])
_FORMATS: Final = {
    1: _Format(("id", "epsilon", "window_s", "commits", "vehicles", "spent_micro"), _ACCOUNT, Answer._fields[:-1]),
    2: _Format(_ROW_2, _ACCOUNT, Answer._fields),
    3: _Format(_ROW_3, (*_ACCOUNT, "anchor_spent_micro", "anchors"), Answer._fields),
}


def upgrade_ledger(
    connection: sqlite3.Connection, path: Path, device_key: bytes | None, *, add_key: bool = False
) -> bool:
    """Upgrade a file to the present format; return False if a seal is wrong.

    Parameters
    ----------
    path
        The file, for messages.
    device_key
        The key that the caller gives.
    add_key
        Whether the ledger has no key, and gets this one or that of the device.

    Raises
    ------
    LedgerError
        It has no key, and shall not get one; or it has one, and shall get another.
    """
    columns = _FORMATS[format_of(connection)]
    rows = _selected(connection, "ledger", (*columns.ledger, "seal"))
    if len(rows) != 1:
        return False
    *values, stored_seal = rows[0]
    old = dict(zip(columns.ledger, values, strict=True))
    before, after = _keys(path, old, device_key, add_key=add_key)
    if not is_sealed(stored_seal, before, *values):
        return False
    contents = _resealed(connection, columns, old["id"], before, after.key)
    if contents is None:
        return False
    marks: dict[str, Any] = {"sealed_by": after.kind, "key_check": after.check(old["id"])}
    if add_key:
        marks["machine"] = after.machine() if after.binds_machine else b""
    known = {**_NEW, **ClockState.of(read_clocks())._asdict(), **old, **marks}
    row = LedgerRow(**{name: known[name] for name in LedgerRow._fields})
    connection.execute("BEGIN IMMEDIATE")
    for name in ("anchors", *TABLES):
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    for definition in TABLES.values():
        connection.execute(definition)
    for table, some in contents.items():
        if some:
            places = ", ".join("?" * len(some[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({places})", some)  # noqa: S608
    insert_row(connection, row, seal(after.key, *row))
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")
    return True


_NEW: Final[dict[str, Any]] = {
    "machine": b"",
    "replay": 0,
    "versions": "{}",
    "fences": b"",
}
"""What a format that lacks a column says by it."""


def _keys(path: Path, old: dict[str, Any], given: bytes | None, *, add_key: bool) -> tuple[bytes, SealingKey]:
    """Return the key that a ledger is sealed by, and the one that it is going to be sealed by."""
    kind = old.get("sealed_by", "none" if given is None or add_key else "given")
    if add_key:
        if kind != "none":
            raise LedgerError(f"{path}: has a key already. Open it with that key.")
        return b"", SealingKey.for_new_ledger(given)
    if kind == "none":
        raise LedgerError(
            f"{path}: has no key, as ledgers of version 0.1, or its key was not given. Anyone can change a ledger "
            "without a key, so it is not opened. If it always was without one, and nobody else can write to it, run "
            f"`geoblanket ledger add-key {path}` once."
        )
    sealed_by = SealingKey.of_ledger(path, kind, given)
    if "key_check" in old:
        sealed_by.refuse_elsewhere(path, old["id"], old["key_check"], old["machine"])
    return sealed_by.key, sealed_by


def _resealed(
    connection: sqlite3.Connection, columns: _Format, identity: bytes, before: bytes, after: bytes
) -> dict[str, Rows] | None:
    """Return the rows of the tables, sealed by the new key; None if a seal of the old one is wrong."""
    answers = dict(_by_vehicle(connection, "answers", columns.answer))
    contents: dict[str, Rows] = {"accounts": [], "answers": []}
    for *row, stored_seal in _selected(connection, "accounts", (*columns.account, "seal")):
        vehicle, reports, spent, last_slot_ms, start, head, *_ = row
        old, new = Chain(start), Chain(start)
        for answer in answers.pop(vehicle, []):
            whole = Answer(*answer, *(() if "made_ns" in columns.answer else (0,)))
            old.add(seal(before, old.head, identity, vehicle, *answer))
            new.add(seal(after, new.head, identity, vehicle, *whole))
            contents["answers"].append((vehicle, *whole))
        if not is_sealed(stored_seal, before, identity, *row) or old.head != head:
            return None
        account = vehicle, reports, spent, last_slot_ms, None, start, new.head
        contents["accounts"].append((*account, seal(after, identity, *account)))
    return None if answers else contents


def _by_vehicle(connection: sqlite3.Connection, table: str, columns: tuple[str, ...]) -> Iterator[tuple[str, Rows]]:
    rows = _selected(connection, table, ("vehicle", *columns), "ORDER BY vehicle, slot_ms")
    for vehicle, some in groupby(rows, key=lambda row: str(row[0])):
        yield vehicle, [row[1:] for row in some]


def _selected(connection: sqlite3.Connection, table: str, columns: tuple[str, ...], order: str = "") -> Rows:
    return connection.execute(f"SELECT {', '.join(columns)} FROM {table} {order}").fetchall()  # noqa: S608
