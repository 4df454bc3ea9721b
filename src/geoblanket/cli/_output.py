"""What commands print: results on stdout, messages and progress on stderr."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from rich.progress import TaskID

    from geoblanket._display import Progress

__all__ = [
    "JsonOption",
    "ProgressLines",
    "duration",
    "in_background",
    "print_json",
    "print_table",
    "progress_bars",
    "say",
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
"""The option that every command with a result takes."""


_WHOLE_RUN_S = 30 * 86_400.0
"""The time left is told from the speed since the start: tasks may take minutes each, and Rich forgets after 30 s."""

_FIRST_S: Final = 15.0
"""Work that ends sooner prints nothing."""
_LEAST_PAUSE_S: Final = 30.0
_LONGEST_PAUSE_S: Final = 300.0
_PAUSE_SHARE: Final = 0.1
"""The pause to the next line, as a share of the time so far: a night's log has no thousand lines."""


def say(message: str) -> None:
    """Print a line for the person at the terminal (stderr)."""
    typer.echo(message, err=True)


def print_json(result: Mapping[str, Any]) -> None:
    """Print a result for a script (stdout)."""
    typer.echo(json.dumps(result, indent=2, allow_nan=False))


def print_table(title: str, rows: Iterable[tuple[str, ...]], *, header: tuple[str, ...] | None = None) -> None:
    """Print a result for a person (stdout): the first column to the left, the others to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_header=header is not None,
        min_width=min(len(title), 78),
    )
    rows = list(rows)
    columns = header or ("",) * max((len(row) for row in rows), default=0)
    for position, name in enumerate(columns):
        table.add_column(name, justify="left" if position == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Draw the phases of long work as bars on stderr; if that is no terminal, say now and then how far it is."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        lines = ProgressLines()
        with in_background(lines, say):
            yield lines
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        speed_estimate_period=_WHOLE_RUN_S,
    )
    tasks: dict[str, TaskID] = {}

    def show(phase: str, done: float, total: float | None) -> None:
        if phase not in tasks:
            tasks[phase] = bars.add_task(phase, total=total)
        bars.update(tasks[phase], completed=done, total=total)

    with bars:
        yield show


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
