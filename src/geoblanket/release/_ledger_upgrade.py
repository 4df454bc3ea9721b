"""Upgrades a ledger of an earlier format: checks all of its seals, and writes all of it anew, in one transaction.

Format 1 counted the caller's time only, and knew neither real elapsed time nor the device's key. As it does not say
when its answers were really made, they count as made now. Format 3, of version 0.2, had anchors, with a budget of their
own: they are removed. Up to then ledgers knew no versions of bundles, and there were some without a key: these need
`Ledger.add_key`. Which bundles were verified is forgotten, as another version of the software has to verify them again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from geoblanket.errors import LedgerError
from geoblanket.release._ledger_file import FORMAT, TABLES, LedgerRow, format_of, insert_row
from geoblanket.release._seals import Chain, is_sealed, seal
from geoblanket.release.budget import Answer
from geoblanket.release.device_key import SealingKey
from geoblanket.release.elapsed import ClockState, read_clocks

__all__ = ["upgrade_ledger"]

Rows = list[tuple[Any, ...]]

_ACCOUNT: Final = ("vehicle", "reports", "spent_micro", "last_slot_ms", "before", "head")


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
