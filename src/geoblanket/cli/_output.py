"""What commands print: results on stdout, messages and progress on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.progress import TaskID

    from geoblanket._display import Progress

__all__ = ["JsonOption", "print_json", "print_table", "progress_bars", "say"]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
"""The option that every command with a result takes."""


_WHOLE_RUN_S = 30 * 86_400.0
"""The time left is told from the speed since the start: tasks may take minutes each, and Rich forgets after 30 s."""


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
        from geoblanket.cli._progress_lines import ProgressLines, in_background

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
