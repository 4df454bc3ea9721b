"""The SQLite file of a ledger: its tables, how it is opened, and how a file of version 0.2 is upgraded.

Version 0.2 wrote format 3, which had anchors with a budget of their own, and knew no versions of bundles. The upgrade
writes the whole ledger anew, without anchors. It forgets which bundles were verified, as this version of the software
has to verify them again. Files of version 0.1 are refused.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from geoblanket.errors import LedgerError
from geoblanket.release.budget import Answer
from geoblanket.release.device_key import SealingKey, is_sealed, seal
from geoblanket.release.rollback import ClockState

FORMAT: Final = 4
_WITH_ANCHORS: Final = 3
"""The format of version 0.2, which is upgraded when it is opened."""
_WITHOUT_KEY: Final = (
    "A ledger without a key is not taken over: report nothing for one window of its budget, then make a new one, with "
    "`geoblanket ledger create`."
)
_APPLICATION: Final = 0x47424C31
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
_TABLES_WITH_ANCHORS: Final = ("accounts", "anchors", "answers", "ledger", "verified")

_open: weakref.WeakSet[_Connection] = weakref.WeakSet()


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
    """This and all that follow: see `ClockState`."""
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
        is_ledger = connection.execute("PRAGMA application_id").fetchone() == (_APPLICATION,)
        number = format_of(connection)
        if is_ledger and 1 <= number < _WITH_ANCHORS:
            raise LedgerError(
                f"{path}: is a ledger of version 0.1, so nothing is released. If it has a key, open it once with "
                f"geoblanket 0.2, which upgrades it. {_WITHOUT_KEY}"
            )
        is_whole = connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
        if not is_ledger or number not in {_WITH_ANCHORS, FORMAT} or not is_whole:
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

    Format 3 is known by the names of its tables: its upgrade checks all seals and makes the tables anew.
    """
    found = sorted(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))
    if format_of(connection) == FORMAT:
        return found == sorted(("table", name, name, sql) for name, sql in TABLES.items())
    return [row[:3] for row in found] == [("table", name, name) for name in _TABLES_WITH_ANCHORS] and all(
        str(sql).startswith("CREATE TABLE ") for *_, sql in found
    )


def insert_row(connection: sqlite3.Connection, row: LedgerRow, seal: bytes) -> None:
    """Write what a new ledger says about itself."""
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
            raise sqlite3.OperationalError("there can be no write-ahead log here")
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


_ROW: Final = tuple(name for name in LedgerRow._fields if name not in {"versions", "fences"})
_ROW_WITH_ANCHORS: Final = (*_ROW[:3], "anchor_epsilon", *_ROW[3:10], "anchor_spent_micro", *_ROW[10:], "seal")
"""The columns of format 3, in the order in which they were sealed, and the seal."""
_ACCOUNT_WITH_ANCHORS: Final = (
    *("vehicle", "reports", "spent_micro", "last_slot_ms", "before", "head"),
    *("anchor_spent_micro", "anchors", "seal"),
)


def upgrade_ledger(connection: sqlite3.Connection, path: Path, device_key: bytes | None) -> bool:
    """Upgrade a file of format 3 to the present one, in the open transaction; return False if a seal is wrong.

    Answers stay as they are, and so does the chain of their seals. The caller loads and checks the new tables before
    it commits, so that a file that is refused stays as it was.

    Parameters
    ----------
    path
        The file, for messages.
    device_key
        The key that the caller gives.
    """
    rows = _selected(connection, "ledger", _ROW_WITH_ANCHORS)
    if len(rows) != 1:
        return False
    *values, stored_seal = rows[0]
    old = dict(zip(_ROW_WITH_ANCHORS, values, strict=False))
    if old["sealed_by"] == "none":
        raise LedgerError(
            f"{path}: has no key, like most ledgers of version 0.1. Anyone can change such a ledger unnoticed, so "
            f"nothing is released. {_WITHOUT_KEY}"
        )
    sealed_by = SealingKey.of_ledger(path, old["sealed_by"], device_key)
    sealed_by.refuse_elsewhere(path, old["id"], old["key_check"], old["machine"])
    if not is_sealed(stored_seal, sealed_by.key, *values):
        return False
    accounts = []
    for *account, stored_seal in _selected(connection, "accounts", _ACCOUNT_WITH_ANCHORS):
        if not is_sealed(stored_seal, sealed_by.key, old["id"], *account):
            return False
        vehicle, reports, spent_micro, last_slot_ms, before, head, *_ = account
        changed = vehicle, reports, spent_micro, last_slot_ms, None, before, head
        accounts.append((*changed, seal(sealed_by.key, old["id"], *changed)))
    answers = _selected(connection, "answers", ("vehicle", *Answer._fields))
    row = LedgerRow(versions="{}", fences=b"", **{name: old[name] for name in _ROW})
    for name in _TABLES_WITH_ANCHORS:
        connection.execute(f"DROP TABLE {name}")
    for definition in TABLES.values():
        connection.execute(definition)
    connection.executemany("INSERT INTO accounts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", accounts)
    connection.executemany("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", answers)
    insert_row(connection, row, seal(sealed_by.key, *row))
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    return True


def _selected(connection: sqlite3.Connection, table: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()  # noqa: S608
