"""Progress of long work where no terminal draws bars: a line now and then, and none for short work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

__all__ = ["ProgressLines", "duration", "in_background"]

_FIRST_S: Final = 15.0
"""Work that ends sooner prints nothing."""
_LEAST_PAUSE_S: Final = 30.0
_LONGEST_PAUSE_S: Final = 300.0
_PAUSE_SHARE: Final = 0.1
"""The pause to the next line, as a share of the time so far: a night's log has no thousand lines."""


@dataclass
class _Phase:
    """Where a phase is, and where it was when it was first heard of: a resumed run does not begin at nothing."""

    name: str
    began_s: float
    first_done: float
    done: float
    total: float | None


class ProgressLines:
    """Tells how far the latest phase is, whenever a line is due.

    It is told of progress in one thread, and asked for lines in another: work that stands still for long has lines too.

    Parameters
    ----------
    clock
        The time in seconds, from any start.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = clock()
        self._due_s = self._began_s + _FIRST_S
        self._phases: dict[str, _Phase] = {}
        self._latest: _Phase | None = None

    def __call__(self, phase: str, done: float, total: float | None) -> None:
        """Take note of progress; see `Progress`."""
        known = self._phases.get(phase)
        if known is None or done < known.done:  # a phase of the same name may come again
            known = self._phases[phase] = _Phase(phase, self._clock(), done, done, total)
        known.done, known.total = done, total
        self._latest = known

    @property
    def pause_s(self) -> float:
        """How long it is until a line is due, seconds."""
        return max(0.0, self._due_s - self._clock())

    def line(self) -> str | None:
        """Return the line that is due, and put off the next; None if none is due, or nothing is known."""
        now_s = self._clock()
        if now_s < self._due_s:
            return None
        so_far_s = now_s - self._began_s
        self._due_s = now_s + min(max(so_far_s * _PAUSE_SHARE, _LEAST_PAUSE_S), _LONGEST_PAUSE_S)
        return None if self._latest is None else _in_words(self._latest, now_s, so_far_s)


def _in_words(phase: _Phase, now_s: float, so_far_s: float) -> str:
    so_far = f"{duration(so_far_s)} so far"
    if not phase.total:
        count = f"{phase.done:,.0f}, " if phase.done else ""
        return f"{phase.name}: {count}{so_far}"
    if phase.done >= phase.total:
        return f"{phase.name}: done, and what follows goes on, {so_far}"
    gained = phase.done - phase.first_done
    left_s = (now_s - phase.began_s) * (phase.total - phase.done) / gained if gained > 0 else None
    left = "" if left_s is None else f", about {duration(left_s)} left in this phase"
    return f"{phase.name}: {int(100 * phase.done / phase.total)} %, {so_far}{left}"


def duration(seconds: float) -> str:
    """Return a time in words that are as exact as a log needs."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def in_background(lines: ProgressLines, say: Callable[[str], None]) -> Iterator[None]:
    """Say each line when it is due, until the block ends."""
    ended = threading.Event()

    def talk() -> None:
        while not ended.wait(lines.pause_s):
            line = lines.line()
            if line is not None:
                try:
                    say(line)
                except (OSError, ValueError):  # nobody listens any more: the work goes on
                    return

    thread = threading.Thread(target=talk, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
