"""`geoblanket demo`: the whole pipeline, from nothing to perturbed reports, as the commands that a user would type."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from geoblanket._files import make_folder
from geoblanket.cli import _options as options
from geoblanket.cli._output import print_table, say

__all__ = ["demo"]

_OUTPUTS = ("--out", "--picture", "--report")
_RESUMABLE = ("blanket discover", "build", "evaluate")


def demo(
    *,
    context: typer.Context,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder for all files.")] = Path("demo"),
    overwrite: options.Overwrite = False,
) -> None:
    """Run the whole pipeline on a synthetic city, showing each command."""
    start = time.perf_counter()
    city = out / "city"
    steps: list[tuple[str, list[str | Path]]] = [
        ("A city: streets, taxis, and the truth about how they move.",
         ["city", "--out", city, "--formats", "porto", "--picture", out / "city.png"]),
        ("Its map, as OpenStreetMap would have it.",
         ["roads", "import", city / "roads.osm.pbf", "--out", out / "city.roads"]),
        ("The public parts of the city, each of which will share one mechanism.",
         ["roads", "zones", out / "city.roads", "--max-places", "100", "--picture", out / "zones.png"]),
        ("The taxis' GPS points, in the format of the Porto data set, with its faults.",
         ["traces", "import", "--format", "porto", city / "porto.csv", "--out", out / "traces.parquet"]),
        ("The points on the roads, as walks: a place every 30 seconds.",
         ["match", "--traces", out / "traces.parquet", "--roads", out / "city.roads", "--out", out / "walks.parquet",
          "--picture", out / "walks.png"]),
        ("How far back a taxi's next place depends on its past: the Markov blanket, by speed and part of the city.",
         ["blanket", "discover", "--walks", out / "walks.parquet", "--roads", out / "city.roads",
          "--out", out / "findings.parquet", "--by", "speed,region"]),
        ("A small network that predicts the blanket, for devices.",
         ["blanket", "train", "--findings", out / "findings.parquet", "--out", out / "city.blanket"]),
        ("Walks again, between places 250 m apart: the places that will be reported.",
         ["match", "--traces", out / "traces.parquet", "--roads", out / "city.roads", "--spacing", "250",
          "--out", out / "walks-250.parquet"]),
        ("A mechanism for each zone: the least loss for the privacy asked for, proven in exact arithmetic.",
         ["build", "--roads", out / "city.roads", "--walks", out / "walks-250.parquet", "--epsilon", "4",
          "--predictor", out / "city.blanket", "--max-places", "60", "--max-rows", "300", "--compare",
          "--out", out / "city.bundle", "--report", out / "report"]),
        ("The same with more privacy, to look at them side by side.",
         ["build", "--roads", out / "city.roads", "--walks", out / "walks-250.parquet", "--epsilon", "1",
          "--predictor", out / "city.blanket", "--max-places", "60", "--max-rows", "300",
          "--out", out / "city-private.bundle"]),
        ("The bundle, verified again without trusting anything in it.",
         ["verify", out / "city.bundle"]),
        ("Perturbed reports, as devices would send them.",
         ["perturb", out / "city.bundle", "--walks", out / "walks-250.parquet", "--roads", out / "city.roads",
          "--out", out / "released.parquet"]),
        ("Which mechanism to use: all of them, compared on taxis that none of them has seen.",
         ["evaluate", "--roads", out / "city.roads", "--walks", out / "walks-250.parquet",
          "--predictor", out / "city.blanket", "--findings", out / "findings.parquet", "--quick",
          "--city", "synthetic city", "--out", out / "comparison"]),
        ("The second story, a trip across the city. From the map alone, in seconds: a lattice that discloses no zone.",
         ["lattice", "--roads", out / "city.roads", "--epsilon", "4", "--no-anchor", "--out", out / "trips.bundle"]),
        ("Its promise, between any two coordinates, verified again.",
         ["verify", out / "trips.bundle"]),
        ("The taxis' trips, reported by it: no traces were learned from, and none are matched to roads.",
         ["perturb", out / "trips.bundle", "--traces", out / "traces.parquet", "--out", out / "trips.parquet"]),
        ("How vehicles move, from the map alone: nobody drove these trips.",
         ["model", "--roads", out / "city.roads", "--out", out / "roads.model"]),
        ("Whoever receives the reports follows each taxi, at no cost in privacy. How far off is that?",
         ["track", out / "trips.bundle", out / "trips.parquet", "--model", out / "roads.model",
          "--truth", out / "traces.parquet", "--out", out / "tracked-by-map.parquet"]),
        ("The same with what walks tell about how taxis move, and as far back as the Markov blanket says.",
         ["model", "--roads", out / "city.roads", "--walks", out / "walks-250.parquet",
          "--findings", out / "findings.parquet", "--out", out / "city.model"]),
        ("Nearer still.",
         ["track", out / "trips.bundle", out / "trips.parquet", "--model", out / "city.model",
          "--truth", out / "traces.parquet", "--out", out / "tracked.parquet"]),
        ("Vehicles also park. With an anchor, a secret shift that stays for an hour, all reports of an hour at one "
         "place cost 4 per km together.",
         ["lattice", "--roads", out / "city.roads", "--epsilon", "4", "--out", out / "anchored.bundle"]),
    ]  # fmt: skip
    written = [path for _, words in steps for flag, path in pairwise(words) if flag in _OUTPUTS]
    options.check_folder(out, *(str(Path(path).relative_to(out)) for path in written), overwrite=overwrite)
    make_folder(out)
    root = context.find_root().command
    for number, (title, arguments) in enumerate(steps, 1):
        words = [str(word) for word in arguments] + (_again(arguments) if overwrite else [])
        say(typer.style(f"\n{number}. {title}", bold=True))
        say(typer.style(f"   $ geoblanket {shlex.join(words)}\n", fg="cyan"))
        code = root.main(words, prog_name="geoblanket", standalone_mode=False)
        if isinstance(code, int) and code:
            raise typer.Exit(code)
    from geoblanket.city.agreement import share_of_true_places

    share = share_of_true_places(out / "walks.parquet", roads=out / "city.roads", city=city)
    print_table(
        f"Done in {time.perf_counter() - start:.0f} s",
        [
            ("steps that put the taxi where it truly was", f"{share:.2%}"),
            ("the city, its districts and some true routes", str(out / "city.png")),
            ("the zones", str(out / "zones.png")),
            ("the walks found from noisy GPS", str(out / "walks.png")),
            ("the mechanisms, verified", str(out / "city.bundle")),
            ("what was built, what it costs and what it promises", str(out / "report" / "report.html")),
            ("perturbed reports", str(out / "released.parquet")),
            ("the lattice of the whole city, verified", str(out / "trips.bundle")),
            ("where a recipient thinks that the taxis are", str(out / "tracked.parquet")),
            ("which mechanism, at what cost, and would an attacker win", str(out / "comparison/report/report.html")),
        ],
    )
    bundles = [str(out / "city.bundle"), str(out / "city-private.bundle")]
    local = ["--roads", str(out / "city.roads"), "--walks", str(out / "walks-250.parquet")]
    say("\nTo look at both bundles on a map, and at trips as they are reported:\n")
    say(typer.style(f"   $ geoblanket serve {shlex.join([*bundles, *local])}\n", fg="cyan"))


def _again(words: Sequence[str | Path]) -> list[str]:
    """Return what lets a step run where an earlier demonstration, finished or interrupted, left its files."""
    if words[0] == "verify":
        return []
    resumable = any(" ".join(map(str, words)).startswith(command) for command in _RESUMABLE)
    return ["--overwrite", "--resume"] if resumable else ["--overwrite"]
