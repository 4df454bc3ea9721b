"""`geoblanket report`: what a build promises, costs and achieves, as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import say

__all__ = ["report"]


def report(
    file: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle, with its record beside it.")],
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write to.", show_default=False)],
    roads: Annotated[Path | None, typer.Option(help="The roads that it was built with; a lattice needs none.")] = None,
    title: Annotated[str | None, typer.Option(help="Of the page.", show_default="the bundle's name")] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Report on a bundle: maps, losses, sizes, and the promise in plain words; the bundle is verified on the way."""
    from geoblanket.build.report import write_build_report, write_lattice_report
    from geoblanket.mechanism.bundle.storage import load_bundle

    options.check_folder(out, "report.html", overwrite=overwrite)
    bundle = load_bundle(file)
    if bundle.lattice is not None:
        page = write_lattice_report(bundle, out, title=title or file.name, roads=roads)
    elif roads is not None:
        page = write_build_report(file, roads, out, title=title)
    else:
        raise typer.BadParameter("--roads must be given: only a lattice needs none.")
    say(f"Report written to {page}.")
