"""`geoblanket report`: what a build promises, costs and achieves, as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from geoblanket.cli._output import say

__all__ = ["report"]


def report(
    file: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle, with its record beside it.")],
    *,
    roads: Annotated[Path, typer.Option(help="The roads that it was built with.", show_default=False)],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write to.", show_default=False)],
    title: Annotated[str | None, typer.Option(help="Of the page.", show_default="the bundle's name")] = None,
) -> None:
    """Report on a build: maps, losses, sizes, and the promise in plain words; the bundle is verified on the way."""
    from geoblanket.build.report import write_build_report

    say(f"Report written to {write_build_report(file, roads, out, title=title)}.")
