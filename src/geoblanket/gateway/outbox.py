"""Released positions that wait for the server, on disk until it has acknowledged them.

There are only released positions here, never true ones. They leave in the order in which they came, so that those of a
device are in order of time, and each slot of a device is queued once: the file remembers the last one. When it is full,
the oldest are dropped. A position and the memory of its slot are one durable transaction; that it was acknowledged
becomes durable a little later, so that a crash may send a message again, with the same content.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from geoblanket.errors import LedgerError
from geoblanket.gateway.position import Released

__all__ = ["Outbox"]

_FORMAT: Final = 1
_APPLICATION: Final = 0x47424F58
_WAIT_S: Final = 5.0
_SCHEMA: Final = (
    """CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT NOT NULL, slot_ms INTEGER NOT NULL, place INTEGER NOT NULL,
        lat_e7 INTEGER NOT NULL, lon_e7 INTEGER NOT NULL, extras TEXT NOT NULL, UNIQUE (device, slot_ms)
    ) STRICT""",
    "CREATE TABLE queued (device TEXT PRIMARY KEY, slot_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID",
)
_INSERT: Final = "INSERT INTO messages (device, slot_ms, place, lat_e7, lon_e7, extras) VALUES (?, ?, ?, ?, ?, ?)"
_REMEMBER: Final = "INSERT OR REPLACE INTO queued VALUES (?, ?)"
_SELECT: Final = (
    "SELECT id, device, slot_ms, place, lat_e7, lon_e7, extras FROM messages WHERE id > ? ORDER BY id LIMIT ?"
)
_DELETE_OLDEST: Final = "DELETE FROM messages WHERE id IN (SELECT id FROM messages ORDER BY id LIMIT ?)"


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
    """

    def __init__(self, path: Path, *, capacity: int, answered: Mapping[str, int]) -> None:
        self._path, self._capacity = path, capacity
        self._lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._acknowledged: deque[int] = deque()
        self._added_s = time.monotonic()
        self._wake: list[threading.Event] = []
        with self._errors():
            self._connection = _connected(path)
            self.is_new = self._connection.execute("PRAGMA user_version").fetchone() == (0,)
            if self.is_new:
                self._create(answered)
            elif (
                self._connection.execute("PRAGMA user_version").fetchone() != (_FORMAT,)
                or self._connection.execute("PRAGMA application_id").fetchone() != (_APPLICATION,)
                or self._connection.execute("PRAGMA quick_check").fetchone() != ("ok",)
            ):
                raise LedgerError(f"{path}: is damaged, or is not the queue of a gateway. Nothing is released.")
            self._reader = _connected(path)
            self._last: dict[str, int] = dict(self._connection.execute("SELECT device, slot_ms FROM queued"))
            self._waiting: int = self._connection.execute("SELECT count(*) FROM messages").fetchone()[0]

    def _create(self, answered: Mapping[str, int]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            self._connection.execute(statement)
        self._connection.executemany(_REMEMBER, answered.items())
        self._connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        self._connection.execute(f"PRAGMA user_version = {_FORMAT}")
        self._connection.execute("COMMIT")

    def __len__(self) -> int:
        """Return how many messages wait."""
        return self._waiting

    def last_slot_ms(self, device: str) -> int | None:
        """Return the start of the last slot of a device that was queued; None: there was none."""
        return self._last.get(device)

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
        last = dict[str, int]()
        rows = []
        for message in messages:
            if message.slot_ms > last.get(message.device, self._last.get(message.device, -1)):
                last[message.device] = message.slot_ms
                place = message.place, message.lat_e7, message.lon_e7
                rows.append((message.device, message.slot_ms, *place, json.dumps(dict(message.extras))))
        with self._lock, self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            removed = self._remove_acknowledged()
            self._connection.executemany(_INSERT, rows)
            self._connection.executemany(_REMEMBER, last.items())
            waiting = self._waiting - removed + len(rows)
            excess = max(0, waiting - self._capacity)
            if excess:
                self._connection.execute(_DELETE_OLDEST, (excess,))
            self._connection.execute("COMMIT")
            self._waiting = waiting - excess
            self._added_s = time.monotonic()
            self._last |= last
        for event in self._wake:
            event.set()
        return excess

    def after(self, number: int, *, limit: int) -> list[tuple[int, Released]]:
        """Return some of the messages with numbers above one, and those numbers, in order."""
        with self._read_lock, self._errors():
            rows = self._reader.execute(_SELECT, (number, limit)).fetchall()
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
            Do nothing unless nothing was added for so many seconds: while messages come, adding them removes others.
        """
        if not self._acknowledged or time.monotonic() < self._added_s + quiet_s:
            return
        with self._lock, self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            removed = self._remove_acknowledged()
            self._connection.execute("COMMIT")
            self._waiting -= removed

    def _remove_acknowledged(self) -> int:
        numbers = [self._acknowledged.popleft() for _ in range(len(self._acknowledged))]
        before = self._connection.total_changes
        self._connection.executemany("DELETE FROM messages WHERE id = ?", ((number,) for number in numbers))
        return self._connection.total_changes - before

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
