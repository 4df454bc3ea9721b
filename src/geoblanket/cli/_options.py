"""Options that several commands share, and what commands do with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geoblanket._files import check_output
from geoblanket.cli._output import say
from geoblanket.errors import OutputError

if TYPE_CHECKING:
    from geoblanket.release.fence import Fences

__all__ = [
    "Alpha", "Cluster", "FencesFile", "LargestBlanket", "LargestSample", "MaybeFile", "MaybeRoads", "MaybeWalks",
    "Overwrite", "Picture", "Regions", "Resume", "Roads", "RoadsArgument", "Seed", "SmallestGroup", "Spacing", "Test",
    "TimeZone", "Walks", "Workers", "check_folder", "check_outputs", "offer_resume", "read_fences", "require",
]  # fmt: skip

_ROADS = typer.Option(help="Roads, from `geoblanket roads import`.", show_default=False)
_WALKS = typer.Option(help="Walks on these roads, from `geoblanket match`.", show_default=False)
Roads = Annotated[Path, _ROADS]
Walks = Annotated[Path, _WALKS]
MaybeRoads = Annotated[Path | None, _ROADS]
"""For commands that can also do something without roads; see `require`."""
MaybeWalks = Annotated[Path | None, _WALKS]
MaybeFile = Annotated[Path | None, typer.Option(metavar="FILE")]
RoadsArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Roads, from `geoblanket roads import`.")]
Picture = Annotated[
    Path | None, typer.Option("--picture", metavar="FILE", help="Also draw a picture (.png, .svg or .pdf).")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace results that exist.")]
Spacing = Annotated[float, typer.Option(help="Least distance between places, metres; 0 takes every road node.")]
TimeZone = Annotated[
    str, typer.Option(metavar="NAME", help="IANA name of the time zone of the hours, such as Europe/Lisbon.")
]
Workers = Annotated[
    int | None, typer.Option(help="Number of processes; it does not change the result.", show_default="all cores")
]
Cluster = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Run on a Dask cluster: the address of its scheduler.")
]
FencesFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Fences, from `geoblanket fence export`: positions inside one count as its centre."
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run with the same inputs and options.")]

# Options of tests of blankets.
Regions = Annotated[
    str | None,
    typer.Option(
        metavar="REGIONS",
        help="porto or rome (the paper's grids), zones:FILE (from `geoblanket roads zones`), or "
        "grid:SOUTH,NORTH,WEST,EAST,ROWS,COLUMNS in degrees.",
        show_default="4 × 4 cells over the bounding box of the roads",
    ),
]
LargestBlanket = Annotated[int, typer.Option(min=1, max=20, help="The largest blanket to test.")]
Alpha = Annotated[float, typer.Option(help="Significance level: reject a hypothesis if p is at most this.")]
Test = Annotated[str, typer.Option(help="The test: analytic, or scetbon (the paper's, slow).")]
SmallestGroup = Annotated[int, typer.Option(min=1, help="Groups with fewer samples are not tested.")]
LargestSample = Annotated[int, typer.Option(min=1, help="Larger groups are sampled down to this size.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random draws.")]


def require(**options: Path | None) -> tuple[Path, ...]:
    """Return the values of options that must be given; say at once which of them are not."""
    missing = [f"--{name}" for name, value in options.items() if value is None]
    if missing:
        raise typer.BadParameter(f"{', '.join(missing)} must be given.")
    return tuple(value for value in options.values() if value is not None)


def read_fences(file: Path | None) -> Fences:
    """Return the fences in a file; none without one."""
    from geoblanket.release.fence import NO_FENCES, read_fences

    return NO_FENCES if file is None else read_fences(file)


def check_outputs(*files: Path | None, picture: Path | None = None, overwrite: bool) -> None:
    """Refuse files that could not be written, or that exist and may not be replaced, before the work begins."""
    for file in filter(None, files):
        check_output(file)
    if picture is not None:
        from geoblanket._picture import check_picture

        check_picture(picture)
    for file in filter(None, (*files, picture)):
        if file.exists() and not overwrite:
            raise OutputError(f"{file}: exists. Give another name, or add --overwrite to replace it.")


def check_folder(folder: Path | None, *results: str, overwrite: bool) -> None:
    """Refuse a folder that has one of these results, which may not be replaced, before the work begins."""
    found = next((name for name in results if folder is not None and (folder / name).exists()), None)
    if found is not None and not overwrite:
        raise OutputError(f"{folder}: has results ({found}). Give another folder, or add --overwrite to replace it.")


@contextmanager
def offer_resume(unfinished: Path) -> Iterator[None]:
    """If the work is interrupted, say where its finished part is kept."""
    try:
        yield
    except BaseException:
        if unfinished.exists():
            say(f"Finished work is kept in {unfinished}; continue with --resume.")
        raise
