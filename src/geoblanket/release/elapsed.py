"""Real elapsed time, which setting a clock forward does not speed up.

The times of reports come from the caller, who may be wrong or may lie, so the budget counts this time as well. It only
grows. Each reading of the system's clocks adds what has passed since the previous reading:

- in the same boot, the smaller of what the wall clock says and what the clock since boot says, which nobody can set;
- across a reboot, by how much the wall clock is ahead of the latest time that it ever showed;
- nothing, where that is less than nothing.

So it never runs ahead of real time, and two reports less than a window apart in real time are less than a window apart
here. There is one exception: a wall clock that was set forward after the last stored reading and before a reboot, which
nothing on the machine can detect. Opening, each report and closing store a reading.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["ClockState", "ElapsedTime", "Reading", "read_clocks"]

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Reading(NamedTuple):
    """What the system's clocks show."""

    wall_ns: int
    """Nanoseconds since 1970 in UTC; it may be set."""
    boot: str
    """Which boot of the machine this is."""
    boot_ns: int
    """Nanoseconds since then, with those asleep."""


class ClockState(NamedTuple):
    """What a ledger keeps of it."""

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
