"""Options that several commands share, and what commands do with them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from geoblanket._files import check_output
from geoblanket.cli._output import say
from geoblanket.errors import OutputError

if TYPE_CHECKING:
    from geoblanket.mechanism.bundle.policy import Policy
    from geoblanket.release.fence import Fences

_ROADS = typer.Option(help="Roads, from `geoblanket roads import`.", show_default=False)
_WALKS = typer.Option(help="Walks on these roads, from `geoblanket match`.", show_default=False)
Roads = Annotated[Path, _ROADS]
Walks = Annotated[Path, _WALKS]
MaybeRoads = Annotated[Path | None, _ROADS]
"""For commands that can also do something without roads."""
MaybeWalks = Annotated[Path | None, _WALKS]
Picture = Annotated[
    Path | None, typer.Option("--picture", metavar="FILE", help="Also draw a picture (.png, .svg or .pdf).")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing results.")]
Spacing = Annotated[float, typer.Option(help="Least distance between places, metres; 0 makes every road node a place.")]
FencesFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Fences, from `geoblanket fence export`: positions inside one count as its centre."
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run with the same inputs and options.")]

Regions = Annotated[
    str | None,
    typer.Option(
        metavar="REGIONS",
        help="porto, rome or sanfrancisco (grids of these cities), zones:FILE (from `geoblanket roads zones`), or "
        "grid:SOUTH,NORTH,WEST,EAST,ROWS,COLUMNS in degrees.",
        show_default="4 × 4 cells over the bounding box of the roads",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random draws.")]

PolicyFile = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="Refuse bundles that promise less than this file (TOML). Defaults: largest_epsilon = 20, largest_cost = "
        "100, "
        "smallest_eta_km = 1, fewest_places = 4, smallest_extent_m = 400, largest_weight = 4, largest_detour = 30, "
        "largest_rounding_m = 10.",
    ),
]

_MANY_PLACES: Final = 2_000
_SPACINGS_M: Final = (250, 500, 1000)
"""What is advised, the first that leaves few enough."""


def read_fences(file: Path | None) -> Fences:
    """Return the fences in a file; none without one."""
    from geoblanket.release.fence import NO_FENCES, read_fences

    return NO_FENCES if file is None else read_fences(file)


def sealing() -> dict[str, Any]:
    """Return what seals the ledgers of this machine, if not its own key and a counter beside each; see `ledger`."""
    from geoblanket.release.device_key import read_key_file

    key, counter = (os.environ.get(name) for name in ("GEOBLANKET_LEDGER_KEY", "GEOBLANKET_LEDGER_COUNTER"))
    return {"device_key": read_key_file(Path(key)) if key else None, "counter": Path(counter) if counter else None}


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
        raise OutputError(f"{folder}: has results ({found}). Give another folder, or add --overwrite to replace them.")


def save_picture(figure: Any, file: Path, *, private: bool = False) -> None:
    """Save a figure, and say where; a private one shows true places."""
    from geoblanket._picture import save_figure

    save_figure(figure, file, private=private)
    say(f"Picture written to {file}.")


@contextmanager
def offer_resume(unfinished: Path) -> Iterator[None]:
    """If the work is interrupted, say where its finished part is kept."""
    try:
        yield
    except BaseException:
        if unfinished.exists():
            say(f"Finished work is kept in {unfinished}; continue with --resume.")
        raise


def read_policy(path: Path | None) -> Policy:
    """Return the policy of a file, or the default one."""
    from geoblanket.mechanism.bundle.policy import DEFAULT_POLICY, Policy

    return DEFAULT_POLICY if path is None else Policy.read(path)


def warn_of_many_places(roads: Path, spacing_m: float) -> None:
    """Say so if roads have too many places at a spacing for a build, and which spacing would do."""
    from geoblanket.build.config import DEFAULT_MAX_PLACES
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.roads.places import choose_places

    graph = RoadGraph.load(roads)
    count = len(choose_places(graph, spacing_m=spacing_m))
    if count <= _MANY_PLACES:
        return
    wider = {spacing: len(choose_places(graph, spacing_m=spacing)) for spacing in _SPACINGS_M if spacing > spacing_m}
    enough = next((spacing for spacing, left in wider.items() if left <= _MANY_PLACES), None)
    advice = (
        "Cut the roads to a smaller area"
        if enough is None
        else f"Match with --spacing {enough}, which leaves {wider[enough]:,} places"
    )
    apart = f"{spacing_m:g} m apart" if spacing_m else "every road node"
    say(
        f"Warning: `geoblanket build` may take days with {count:,} places ({apart}), about "
        f"{math.ceil(count / DEFAULT_MAX_PLACES):,} zones. {advice}. `geoblanket lattice` needs no places."
    )
