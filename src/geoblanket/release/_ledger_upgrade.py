"""Upgrades a ledger of format 1 to this format, in one transaction.

Format 1 counted the caller's time only, and knew neither real elapsed time nor the device's key. As it does not say
when its answers were really made, they count as made now. The key that seals it stays the same.
"""

from __future__ import annotations

import sqlite3
from itertools import groupby
from typing import Any

from geoblanket.release._ledger_file import FORMAT, LEDGER_TABLE, LedgerRow, insert_row
from geoblanket.release._seals import Chain, is_sealed, seal
from geoblanket.release.device_key import SealingKey
from geoblanket.release.elapsed import ClockState, read_clocks

__all__ = ["upgrade_ledger"]


def upgrade_ledger(connection: sqlite3.Connection, sealed_by: SealingKey) -> bool:
    """Upgrade a file of format 1, unless a seal is wrong; return whether it was upgraded."""
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
    row = LedgerRow(
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
    connection.execute(LEDGER_TABLE)
    connection.execute("ALTER TABLE answers ADD COLUMN made_ns INTEGER NOT NULL DEFAULT 0")
    connection.executemany("UPDATE accounts SET head = ?, seal = ? WHERE vehicle = ?", resealed)
    insert_row(connection, row, seal(key, *row))
    connection.execute(f"PRAGMA user_version = {FORMAT}")
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
    accounts = connection.execute(
        "SELECT vehicle, reports, spent_micro, last_slot_ms, before, head, seal FROM accounts"
    ).fetchall()
    for *row, stored_seal in accounts:
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
