"""What commands print: results on stdout, messages and progress on stderr."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from geoblanket.cli._settings import parameter_docs

if TYPE_CHECKING:
    from rich.progress import TaskID

    from geoblanket._display import Progress

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
"""The option that every command with a result takes."""


_LONGEST_LABEL: Final = 45
_UNITS: Final = {
    "_per_km": "per km", "_m_s": "m/s", "_kmh": "km/h", "_km": "km", "_m": "m", "_s": "s", "_mb": "MB",
    "bytes": "bytes",
}  # fmt: skip
"""What the ends of keys mean."""
_COSTS: Final = ("epsilon", "budget", "spent")
"""Starts of keys whose figures are ε per kilometre."""
_HASH: Final = re.compile("[0-9a-f]{64}")
_SHARES: Final = ("share", "gap", "gain", "gain_low", "gain_high", "within_radius")
"""Ends of keys whose figures are shares, shown in per cent."""

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


def print_result(
    title: str, result: Any, *, json: bool, without: Collection[str] = (), more: Mapping[str, Any] | None = None
) -> None:
    """Print a result (stdout): one JSON object for a script, or the same figures as a table for a person.

    Parameters
    ----------
    title
        The title of the table.
    result
        A mapping, or a dataclass. A table names each figure as its class describes it, or else by its key; the unit
        is the end of the key.
    json
        Whether a script asks.
    without
        Keys that the table leaves out.
    more
        Further figures.
    """
    facts = {**_as_json(result), **(more or {})}
    if json:
        print_json(facts)
        return
    docs = {} if isinstance(result, Mapping) else parameter_docs(type(result))
    uses = Counter(docs.values())
    docs = {
        name: text for name, text in docs.items() if uses[text] == 1
    }  # a text about several would not tell them apart
    print_table(title, _rows({key: value for key, value in facts.items() if key not in without}, docs))


def _as_json(result: Any) -> Mapping[str, Any]:
    if isinstance(result, Mapping):
        return result
    method = next((name for name in ("as_dict", "as_json", "to_json") if hasattr(result, name)), None)
    return asdict(result) if method is None else getattr(result, method)()


def _rows(
    facts: Mapping[str, Any], docs: Mapping[str, str], indent: str = "", unit_above: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield a row for each figure, and below a mapping one for each of its figures that is not zero."""
    for key, value in facts.items():
        name, unit = _name_and_unit(key)
        label = re.split(r"[.:;,(]", docs.get(key, ""))[0]
        label = indent + (label[0].lower() + label[1:] if 0 < len(label) <= _LONGEST_LABEL else name)
        if isinstance(value, Mapping):
            counts = {name: count for name, count in value.items() if count != 0}
            yield label, "" if counts else "none"
            yield from _rows(counts, {}, indent + "  ", unit)
        else:
            yield label, figure(value, unit or unit_above)


def _name_and_unit(key: str) -> tuple[str, str]:
    if key.endswith(_SHARES):
        return key.replace("_", " "), "%"
    for ending, unit in _UNITS.items():
        if key.endswith(ending):
            return key.removesuffix(ending).replace("_", " ") or "size", unit
    return key.replace("_", " "), "per km" if key.startswith(_COSTS) else ""


def figure(value: Any, unit: str = "") -> str:
    """Return a value as a table shows it, with its unit."""
    if value is None:
        return "–"
    if isinstance(value, list | tuple):
        return " · ".join(figure(each, unit) for each in value) or "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and unit == "%":
        return f"{value:.1%}"
    if isinstance(value, float):
        value = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    elif isinstance(value, int):
        value, unit = f"{value:,}", unit.removeprefix("%")  # a share is a float: this is a count
    elif _HASH.fullmatch(str(value)):
        value = f"{value[:16]}…"
    return f"{value} {unit}".rstrip()


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
    Console(markup=False).print(table)  # names of files and zones are printed as they are


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
        return f"{phase.name}: done, work continues, {so_far}"
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
