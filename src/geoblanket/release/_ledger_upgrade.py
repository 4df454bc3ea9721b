"""Upgrades a ledger of an earlier format, one format at a time, each in one transaction.

Format 1 counted the caller's time only, and knew neither real elapsed time nor the device's key. As it does not say
when its answers were really made, they count as made now. The key that seals it stays the same.

Format 2 knew no anchors: none were drawn, and they may cost as much as reports.
"""

from __future__ import annotations

import sqlite3
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from geoblanket.release._ledger_file import ANCHORS_TABLE, LEDGER_TABLE, LedgerRow, format_of, insert_row
from geoblanket.release._seals import Chain, is_sealed, seal
from geoblanket.release.device_key import SealingKey
from geoblanket.release.elapsed import ClockState, read_clocks

__all__ = ["upgrade_ledger"]

_FIELDS_2: Final = tuple(name for name in LedgerRow._fields if name not in {"anchor_epsilon", "anchor_spent_micro"})
_LEDGER_2: Final = """
CREATE TABLE ledger (
    id BLOB NOT NULL, epsilon REAL NOT NULL, window_s REAL NOT NULL,
    sealed_by TEXT NOT NULL, key_check BLOB NOT NULL, machine BLOB NOT NULL,
    replay INTEGER NOT NULL, commits INTEGER NOT NULL, vehicles INTEGER NOT NULL, spent_micro INTEGER NOT NULL,
    passed_ns INTEGER NOT NULL, latest_wall_ns INTEGER NOT NULL, wall_ns INTEGER NOT NULL, boot TEXT NOT NULL,
    boot_ns INTEGER NOT NULL, seal BLOB NOT NULL
) STRICT;
"""
_ACCOUNT: Final = "vehicle, reports, spent_micro, last_slot_ms, before, head, seal"


def upgrade_ledger(connection: sqlite3.Connection, path: Path, device_key: bytes | None) -> bool:
    """Upgrade a file to the present format, unless a seal is wrong; return whether it has that format now.

    Parameters
    ----------
    path
        The file, for messages.
    device_key
        The key that the caller gives.
    """
    if format_of(connection) == 1 and not _from_1_to_2(connection, SealingKey.of_ledger(path, "none", device_key)):
        return False
    return format_of(connection) != 2 or _from_2_to_3(connection, path, device_key)


def _from_1_to_2(connection: sqlite3.Connection, sealed_by: SealingKey) -> bool:
    key = sealed_by.key
    rows = connection.execute(
        "SELECT id, epsilon, window_s, commits, vehicles, spent_micro, seal FROM ledger"
    ).fetchall()
    if len(rows) != 1 or not is_sealed(rows[0][-1], key, *rows[0][:-1]):
        return False
    identity, epsilon, window_s, commits, vehicles, spent, _ = rows[0]
    resealed = _resealed_accounts(connection, key, identity)
    if resealed is None:
        return False
    row = (
        identity,
        epsilon,
        window_s,
        sealed_by.kind,
        sealed_by.check(identity),
        b"",
        0,
        commits,
        vehicles,
        spent,
        *ClockState.of(read_clocks()),
    )
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DROP TABLE ledger")
    connection.execute(_LEDGER_2)
    connection.execute("ALTER TABLE answers ADD COLUMN made_ns INTEGER NOT NULL DEFAULT 0")
    connection.executemany("UPDATE accounts SET head = ?, seal = ? WHERE vehicle = ?", resealed)
    marks = ", ".join("?" * (len(row) + 1))
    connection.execute(f"INSERT INTO ledger VALUES ({marks})", (*row, seal(key, *row)))  # noqa: S608
    connection.execute("PRAGMA user_version = 2")
    connection.execute("COMMIT")
    return True


def _resealed_accounts(
    connection: sqlite3.Connection, key: bytes, identity: bytes
) -> list[tuple[bytes, bytes, str]] | None:
    """Return the new head and seal of each vehicle's account; None if an old one is wrong."""
    answers: dict[str, list[tuple[Any, ...]]] = {
        vehicle: [row[1:] for row in rows]
        for vehicle, rows in groupby(
            connection.execute(
                "SELECT vehicle, slot_ms, cost_micro, place, lat_e7, lon_e7, request FROM answers "
                "ORDER BY vehicle, slot_ms"
            ),
            key=lambda row: str(row[0]),
        )
    }
    result = []
    for *row, stored_seal in connection.execute(f"SELECT {_ACCOUNT} FROM accounts").fetchall():  # noqa: S608
        vehicle, *numbers, before, head = row
        old, new = Chain(before), Chain(before)
        for answer in answers.pop(vehicle, []):
            old.add(seal(key, old.head, identity, vehicle, *answer))
            new.add(seal(key, new.head, identity, vehicle, *answer, 0))
        if not is_sealed(stored_seal, key, identity, *row) or old.head != head:
            return None
        sealed = seal(key, identity, vehicle, *numbers, before, new.head)
        result.append((new.head, sealed, vehicle))
    return None if answers else result


def _from_2_to_3(connection: sqlite3.Connection, path: Path, device_key: bytes | None) -> bool:
    rows = connection.execute(f"SELECT {', '.join(_FIELDS_2)}, seal FROM ledger").fetchall()  # noqa: S608
    if len(rows) != 1:
        return False
    old = dict(zip(_FIELDS_2, rows[0][:-1], strict=True))
    sealed_by = SealingKey.of_ledger(path, old["sealed_by"], device_key)
    sealed_by.refuse_elsewhere(path, old["id"], old["key_check"], old["machine"])
    key = sealed_by.key
    if not is_sealed(rows[0][-1], key, *rows[0][:-1]):
        return False
    resealed = []
    # The answers and their chains stay as they are, and are checked when the file is read.
    for *account, stored_seal in connection.execute(f"SELECT {_ACCOUNT} FROM accounts").fetchall():  # noqa: S608
        if not is_sealed(stored_seal, key, old["id"], *account):
            return False
        resealed.append((seal(key, old["id"], *account, 0, b""), account[0]))
    row = LedgerRow(**old, anchor_epsilon=None, anchor_spent_micro=0)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DROP TABLE ledger")
    connection.execute(LEDGER_TABLE)
    connection.execute(ANCHORS_TABLE)
    connection.execute("ALTER TABLE accounts ADD COLUMN anchor_spent_micro INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE accounts ADD COLUMN anchors BLOB NOT NULL DEFAULT x''")
    connection.executemany("UPDATE accounts SET seal = ? WHERE vehicle = ?", resealed)
    insert_row(connection, row, seal(key, *row))
    connection.execute("PRAGMA user_version = 3")
    connection.execute("COMMIT")
    return True
