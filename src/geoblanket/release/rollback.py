"""What protects a ledger from being set back: elapsed time, and a counter.

Elapsed time
------------
The times of reports come from the caller, who may be wrong or may lie. So the budget counts elapsed time as well, which
a clock set forward does not speed up. Each reading of the system's clocks adds what has passed since the one before:

- in the same boot, the smaller of what the wall clock says and what the clock since boot says, which nobody can set;
- across a reboot, by how much the wall clock is ahead of the latest time that it ever showed;
- nothing, if that is negative.

So it never runs ahead of real time, and two reports less than a window apart in real time are less than a window apart
here. There is one exception: a wall clock that was set forward after the last stored reading and before a reboot, which
nothing on the machine can detect. Opening, each report and closing store a reading.

The counter
-----------
A number beside the ledger only grows: a ledger that is behind it was rolled back. The ledger is written first, durably,
and the counter after it: whenever the power fails, the counter is not ahead of a ledger that nobody touched. Two copies
are written in turn, each in its own sector with a checksum: at worst the last one is lost.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
import time
from pathlib import Path
from typing import Final, NamedTuple

from geoblanket._files import MAGIC, sync_to_disk
from geoblanket.errors import LedgerError

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_COPY: Final = struct.Struct("<8s16sQ")
_SECTOR: Final = 512
_MAGIC: Final = MAGIC["counter"]
_CHECK_BYTES: Final = 32


class Reading(NamedTuple):
    """What the system's clocks show."""

    wall_ns: int
    """Nanoseconds since 1970 in UTC; it may be set."""
    boot: str
    """Which boot of the machine this is."""
    boot_ns: int
    """Nanoseconds since then, sleep included."""


class ClockState(NamedTuple):
    """What a ledger keeps of the clocks."""

    passed_ns: int
    """The time that has passed since the ledger was made, nanoseconds."""
    latest_wall_ns: int
    """The latest time that the wall clock ever showed."""
    wall_ns: int
    """The last reading."""
    boot: str
    boot_ns: int

    @classmethod
    def of(cls, reading: Reading) -> ClockState:
        """Return the state in which nothing has passed."""
        return cls(0, reading.wall_ns, *reading)


def _this_boot() -> str:
    """Return the id of this boot of the machine; where the system has none, an id of this process."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return f"process {secrets.token_hex(16)}"


_BOOT: Final = _this_boot()
_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_clocks() -> Reading:
    """Read the system's clocks."""
    return Reading(time.time_ns(), _BOOT, time.clock_gettime_ns(_BOOT_CLOCK))


class ElapsedTime:
    """The time that has passed, as far as is known.

    Parameters
    ----------
    state
        What was known before; None: it begins now.
    """

    def __init__(self, state: ClockState | None = None) -> None:
        self.state = ClockState.of(read_clocks()) if state is None else state

    def now_ns(self) -> int:
        """Read the clocks, and return how many nanoseconds have passed since the beginning."""
        before, reading = self.state, read_clocks()
        wall_ns, boot, boot_ns = reading
        if boot == before.boot:
            passed_ns = min(wall_ns - before.wall_ns, boot_ns - before.boot_ns)
        else:
            passed_ns = wall_ns - before.latest_wall_ns
        total_ns = before.passed_ns + max(0, passed_ns)
        self.state = ClockState(total_ns, max(before.latest_wall_ns, wall_ns), wall_ns, boot, boot_ns)
        return total_ns


class Counter:
    """The counter of one ledger. Make one with `create` or `open`.

    Parameters
    ----------
    path
        Its file.
    ledger
        The ledger's identity, 16 bytes.
    """

    def __init__(self, path: Path, ledger: bytes, descriptor: int) -> None:
        self._path, self._ledger, self._descriptor = path, ledger, descriptor

    @classmethod
    def create(cls, path: Path, ledger: bytes) -> Counter:
        """Make a counter at 1, for the ledger's creation; raise LedgerError if the file exists."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerError(f"{path}: the counter cannot be made ({error.strerror}).") from None
        counter = cls(path, ledger, descriptor)
        counter.write(0)
        counter.write(1)
        for durable in (path, path.parent):
            sync_to_disk(durable)
        return counter

    @classmethod
    def open(cls, path: Path, ledger: bytes) -> Counter:
        """Open the counter of a ledger; raise LedgerError if it is missing, damaged, or of another ledger."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise LedgerError(
                f"{path}: the counter of the ledger cannot be opened ({error.strerror}), so it is unknown whether "
                "the ledger was rolled back."
            ) from None
        counter = cls(path, ledger, descriptor)
        try:
            counter.read()
        except LedgerError:
            counter.close()
            raise
        return counter

    def read(self) -> int:
        """Return the number."""
        try:
            content = os.pread(self._descriptor, 2 * _SECTOR, 0)
        except OSError as error:
            raise LedgerError(f"{self._path}: the counter cannot be read ({error.strerror}).") from None
        numbers = [self._number(content[start : start + _SECTOR]) for start in (0, _SECTOR)]
        whole = [number for number in numbers if number is not None]
        if not whole:
            raise LedgerError(f"{self._path}: is damaged, or is not the counter of this ledger.")
        return max(whole)

    def _number(self, sector: bytes) -> int | None:
        content, check = sector[: _COPY.size], sector[_COPY.size : _COPY.size + _CHECK_BYTES]
        if hashlib.sha256(content).digest() != check:
            return None
        magic, ledger, number = _COPY.unpack(content)
        return int(number) if (magic, ledger) == (_MAGIC, self._ledger) else None

    def write(self, number: int) -> None:
        """Set the number. It becomes durable later: see the module."""
        content = _COPY.pack(_MAGIC, self._ledger, number)
        content += hashlib.sha256(content).digest()
        try:
            written = os.pwrite(self._descriptor, content, number % 2 * _SECTOR)
        except OSError as error:
            raise LedgerError(f"{self._path}: the counter cannot be written ({error.strerror}).") from None
        if written != len(content):
            raise LedgerError(f"{self._path}: the counter cannot be written (the disk is full).")

    def close(self) -> None:
        """Make it durable, and close the file."""
        try:
            os.fsync(self._descriptor)
        except OSError:
            pass  # the ledger itself is durable; the counter may lag behind it
        finally:
            os.close(self._descriptor)
