"""Released positions that wait for the server, on disk until it has acknowledged them.

There are only released positions here, never true ones. Each slot of a device is queued once: the file remembers the
last one. Each message has a time at which it is due (`Schedule`), and messages leave in that order; those of a device
also leave in order of their slots. When the queue is full, the oldest are dropped. A position, its due time and the
memory of its slot are one durable transaction. That it was acknowledged becomes durable a little later, so that a crash
may send a message again, with the same content.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from geoblanket.errors import LedgerError
from geoblanket.serve.gateway.messages import Released

OFFSET_S: Final = 5
"""Seconds from the end of a slot until its messages begin to leave: time for the last fixes of the slot to arrive."""
JITTER_S: Final = 5
"""Seconds over which they leave."""
_US: Final = 1_000_000
_FORMAT: Final = 2
_APPLICATION: Final = 0x47424F58
_WAIT_S: Final = 5.0
_SCHEMA: Final = (
    """CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT NOT NULL, slot_ms INTEGER NOT NULL, place INTEGER NOT NULL,
        lat_e7 INTEGER NOT NULL, lon_e7 INTEGER NOT NULL, extras TEXT NOT NULL, UNIQUE (device, slot_ms)
    ) STRICT""",
    "CREATE TABLE queued (device TEXT PRIMARY KEY, slot_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID",
)
_SCHEMA_OF_2: Final = (  # what format 1, of version 0.2, had not: messages of such a file are overdue
    "ALTER TABLE messages ADD COLUMN due_us INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE queued ADD COLUMN due_us INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX in_order ON messages (due_us, device, slot_ms)",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_FORMAT}",
)
_INSERT: Final = (
    "INSERT INTO messages (device, slot_ms, place, lat_e7, lon_e7, extras, due_us) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_REMEMBER: Final = "INSERT OR REPLACE INTO queued (device, slot_ms, due_us) VALUES (?, ?, ?)"
# Never in order of numbers, in which fixes came: it would tell whose came first in a slot.
_SELECT: Final = (
    "SELECT id, device, slot_ms, place, lat_e7, lon_e7, extras FROM messages "
    "WHERE due_us <= ? ORDER BY due_us, device, slot_ms LIMIT ?"
)
_DELETE_OLDEST: Final = (
    "DELETE FROM messages WHERE id IN (SELECT id FROM messages ORDER BY due_us, device, slot_ms LIMIT ?)"
)
_COUNT_DUE: Final = "SELECT count(*) FROM messages WHERE due_us <= ?"
_TIME_DUE: Final = {
    "next": "SELECT min(due_us) FROM messages WHERE due_us > ?",
    "last": "SELECT max(due_us) FROM messages WHERE due_us > ?",
}


@dataclass(frozen=True)
class Schedule:
    """When messages leave, so that the server learns no time finer than a slot.

    Messages leave `OFFSET_S` after the end of a slot, spread at random over the next `JITTER_S`. A message leaves after
    its own slot. If its fix comes later, it leaves after the slot in which the fix came. So the time of sending tells
    in which slot a fix was made or came, and nothing of the time within it.
    """

    interval_ms: int
    """Length of a slot, milliseconds. Slots begin at multiples of it since 1970."""
    at_once: bool = False
    """Send each message as its fix comes, which discloses true times."""
    clock: Callable[[], float] = time.time
    """Returns seconds since 1970."""

    def now_us(self) -> int:
        """Return the time, microseconds since 1970."""
        return round(self.clock() * _US)

    def due_us(self, slot_ms: int) -> int:
        """Return when the message of a slot leaves if its fix came now, microseconds since 1970.

        Parameters
        ----------
        slot_ms
            Start of the slot, milliseconds since 1970.
        """
        now_us = self.now_us()
        if self.at_once:
            return now_us
        interval_us = self.interval_ms * 1000
        earliest_us = max(slot_ms * 1000 + interval_us, now_us - OFFSET_S * _US)
        end_us = -(-earliest_us // interval_us) * interval_us
        return end_us + OFFSET_S * _US + secrets.randbelow(JITTER_S * _US)


class Outbox:
    """The queue in a file. It is thread-safe: one thread adds, others take and acknowledge.

    Parameters
    ----------
    path
        Its file, made if it is missing.
    capacity
        The most messages that wait; then the oldest are dropped.
    answered
        With a new file: the last slot of each device that is not to be sent, milliseconds since 1970.
    schedule
        When messages leave.
    """

    def __init__(self, path: Path, *, capacity: int, answered: Mapping[str, int], schedule: Schedule) -> None:
        self._path, self._capacity, self._schedule = path, capacity, schedule
        self._lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._acknowledged: deque[int] = deque()
        self._taken: set[int] = set()
        self._added_s = time.monotonic()
        self._wake: list[threading.Event] = []
        with self._errors():
            self._connection = _connected(path)
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            self.is_new = version == 0
            if self.is_new:
                self._change((*_SCHEMA, *_SCHEMA_OF_2), answered)
            elif (
                version not in {1, _FORMAT}
                or self._connection.execute("PRAGMA application_id").fetchone() != (_APPLICATION,)
                or self._connection.execute("PRAGMA quick_check").fetchone() != ("ok",)
            ):
                raise LedgerError(f"{path}: is damaged, or is not the queue of a gateway. Nothing is released.")
            elif version == 1:
                self._change(_SCHEMA_OF_2, {})
            self._reader = _connected(path)
            rows = self._connection.execute("SELECT device, slot_ms, due_us FROM queued")
            self._last: dict[str, tuple[int, int]] = {device: (slot_ms, due_us) for device, slot_ms, due_us in rows}
            self._waiting: int = self._connection.execute("SELECT count(*) FROM messages").fetchone()[0]

    def _change(self, statements: Iterable[str], answered: Mapping[str, int]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for statement in statements:
            self._connection.execute(statement)
        self._connection.executemany(_REMEMBER, ((device, slot_ms, 0) for device, slot_ms in answered.items()))
        self._connection.execute("COMMIT")

    def __len__(self) -> int:
        """Return how many messages wait, due or not."""
        return self._waiting

    @property
    def overdue(self) -> int:
        """How many messages are due, and not acknowledged. Others would tell when fixes come."""
        with self._read_lock, self._errors():
            count: int = self._reader.execute(_COUNT_DUE, (self._schedule.now_us(),)).fetchone()[0]
        return max(0, count - len(self._acknowledged))

    def seconds_to(self, which: Literal["next", "last"]) -> float | None:
        """Return how long it takes until the next or the last message is due; None: all are."""
        now_us = self._schedule.now_us()
        with self._read_lock, self._errors():
            due_us: int | None = self._reader.execute(_TIME_DUE[which], (now_us,)).fetchone()[0]
        return None if due_us is None else (due_us - now_us) / _US

    def last_slot_ms(self, device: str) -> int | None:
        """Return the start of the last slot of a device that was queued; None: there was none."""
        return self._last[device][0] if device in self._last else None

    def call(self, wake: threading.Event) -> None:
        """Set an event whenever something was added."""
        self._wake.append(wake)

    def add(self, messages: Sequence[Released]) -> int:
        """Queue messages, unless their slots were, in one durable transaction; return how many others were dropped.

        Raises
        ------
        LedgerError
            If they cannot be stored. They are still in the ledger, from which the next start takes them.
        """
        last = dict[str, tuple[int, int]]()
        rows = []
        for message in messages:
            slot_ms, due_us = last.get(message.device) or self._last.get(message.device, (-1, 0))
            if message.slot_ms > slot_ms:
                # Neither jitter nor a clock that was set back may change the order of a device's messages.
                due_us = max(due_us, self._schedule.due_us(message.slot_ms))
                last[message.device] = message.slot_ms, due_us
                place = message.place, message.lat_e7, message.lon_e7
                rows.append((message.device, message.slot_ms, *place, json.dumps(dict(message.extras)), due_us))
        with self._lock, self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            numbers, removed = self._remove_acknowledged()
            self._connection.executemany(_INSERT, rows)
            self._connection.executemany(_REMEMBER, ((device, *values) for device, values in last.items()))
            waiting = self._waiting - removed + len(rows)
            excess = max(0, waiting - self._capacity)
            if excess:
                self._connection.execute(_DELETE_OLDEST, (excess,))
            self._commit(numbers)
            self._waiting = waiting - excess
            self._added_s = time.monotonic()
            self._last |= last
        for event in self._wake:
            event.set()
        return excess

    def take(self, *, limit: int) -> list[tuple[int, Released]]:
        """Return messages that are due, and their numbers, in order; none is returned twice until the next start."""
        with self._read_lock, self._errors():
            values = self._schedule.now_us(), limit + len(self._taken)
            # Not those after the last one: a message may become durable a little after it is due.
            rows = [row for row in self._reader.execute(_SELECT, values) if row[0] not in self._taken][:limit]
            self._taken.update(row[0] for row in rows)
        return [
            (number, Released(device, slot_ms, place, lat_e7, lon_e7, json.loads(extras)))
            for number, device, slot_ms, place, lat_e7, lon_e7, extras in rows
        ]

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Note that messages arrived; `flush`, or the next `add`, removes them."""
        self._acknowledged.extend(numbers)

    def flush(self, *, quiet_s: float = 0.0) -> None:
        """Remove what was acknowledged.

        Parameters
        ----------
        quiet_s
            Do nothing if something was added within this time, seconds: adding messages removes others, too.
        """
        if not self._acknowledged or time.monotonic() < self._added_s + quiet_s:
            return
        with self._lock, self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            numbers, removed = self._remove_acknowledged()
            self._commit(numbers)
            self._waiting -= removed

    def _remove_acknowledged(self) -> tuple[list[int], int]:
        """Return the numbers of messages that arrived, and how many of them were still in the file."""
        numbers = [self._acknowledged.popleft() for _ in range(len(self._acknowledged))]
        before = self._connection.total_changes
        self._connection.executemany("DELETE FROM messages WHERE id = ?", ((number,) for number in numbers))
        return numbers, self._connection.total_changes - before

    def _commit(self, arrived: Iterable[int]) -> None:
        self._connection.execute("COMMIT")
        with self._read_lock:  # a reader of rows from before the commit still knows that they were taken
            self._taken.difference_update(arrived)

    def close(self) -> None:
        """Remove what was acknowledged, and close the file."""
        self.flush()
        with self._lock, self._read_lock:
            self._reader.close()
            self._connection.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            problem = type(error).__name__ if isinstance(error, sqlite3.Error) else error.strerror
            raise LedgerError(f"{self._path}: cannot be used ({problem}). Nothing is released.") from None


def _connected(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection
