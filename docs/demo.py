"""The demonstration: the whole pipeline on a synthetic city, as the commands that a user would type.

`make demo` runs it. By hand: `python docs/demo.py [FOLDER]`. It replaces what an earlier run left there, and goes on
with what was interrupted.
"""

from __future__ import annotations

import io
import itertools
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from geoblanket.cli._output import print_table, say
from geoblanket.cli.main import app

if TYPE_CHECKING:
    from geoblanket.mechanism.lattice.lattice import Lattice
    from geoblanket.roads.graph import RoadGraph

__all__ = ["found_homes_m", "main"]

_RESUMABLE = ("blanket discover", "build", "evaluate")
_LATTICE = "lattice-4.bundle"
_NIGHTS = (1, 7, 30)
_HOMES = 200
_FENCE_KM = 1.0


@dataclass(frozen=True)
class _Step:
    """A command of the demonstration, or a loop over one."""

    title: str
    arguments: Sequence[str | Path]
    each: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Values for the names in the arguments, written as {name}: the command runs silently for all combinations."""
    to: Path | None = None
    """The file for what it prints; None: the screen."""

    def commands(self) -> Iterator[list[str]]:
        """Yield the arguments with each combination of values."""
        for values in itertools.product(*self.each.values()):
            words = [str(word) for word in self.arguments]
            for name, value in zip(self.each, values, strict=True):
                words = [word.replace(f"{{{name}}}", value) for word in words]
            yield words

    def typed(self) -> str:
        """Return what somebody would type into a shell."""
        (words,) = _Step("", self.arguments, {name: [f"${name}"] for name in self.each}).commands()
        line = " ".join(["geoblanket", *(f'"{word}"' if "$" in word else shlex.quote(word) for word in words)])
        line += "" if self.to is None else f" > {shlex.quote(str(self.to))}"
        for name, values in reversed(list(self.each.items())):
            line = f"for {name} in {' '.join(values)}; do {line}; done"
        return line


def main(out: Path) -> None:
    """Run every command, showing it first, and end with where the results are."""
    start = time.perf_counter()
    (out / "bundles").mkdir(parents=True, exist_ok=True)
    for number, step in enumerate(map(_again, _steps(out)), 1):
        say(typer.style(f"\n{number}. {step.title}", bold=True))
        say(typer.style(f"   $ {step.typed()}\n", fg="cyan"))
        _run(step)
    _show_homes(out)
    share = _share_of_true_places(out / "walks.parquet", roads=out / "city.roads", city=out / "city")
    print_table(
        f"Done in {time.perf_counter() - start:.0f} s",
        [
            ("steps that put the taxi where it truly was", f"{share:.2%}"),
            ("the city, its districts and some true routes", str(out / "city.png")),
            ("lattices and zones, verified", str(out / "bundles")),
            ("perturbed reports of trips, by a lattice", str(out / "trips.parquet")),
            ("where a recipient thinks that the taxis are", str(out / "tracked.parquet")),
            ("which ε and how often, judged on trips", str(out / "plan.json")),
            ("the walks found from noisy GPS", str(out / "walks.png")),
            ("the zones", str(out / "zones.png")),
            ("perturbed reports, by zones", str(out / "released.parquet")),
            ("zones: what they cost and what they promise", str(out / "report" / "report.html")),
            ("which mechanism, at what cost, and would an attacker win", str(out / "comparison/report/report.html")),
        ],
    )
    city = {"--roads": "city.roads", "--walks": "walks-250.parquet"}
    given = " ".join(f"{option} {shlex.quote(str(out / name))}" for option, name in city.items())
    say("\nTo choose what suits you, and to see on a map what it does:\n")
    command = "geoblanket" if shutil.which("geoblanket") else str(Path(sys.executable).with_name("geoblanket"))
    say(typer.style(f"   $ {command} serve {shlex.quote(str(out))}/bundles/*.bundle {given}\n", fg="cyan"))


def _share_of_true_places(walks: Path, *, roads: Path, city: Path) -> float:
    """Return the share of steps at which the vehicle truly was at the matched place."""
    import polars as pl

    from geoblanket.mobility.walks import MatchedWalks

    matched = MatchedWalks.open(walks, roads)
    places = pl.LazyFrame({"found": matched.graph.node_ids[matched.places.nodes]}).with_row_index("place")
    truth = pl.scan_parquet(city / "true_walks.parquet").select("vehicle", "time", "node")
    steps = matched.frame.join(places.cast({"place": pl.Int32}), on="place")
    steps = steps.join(truth, on=["vehicle", "time"], how="left")
    right = pl.col("found").eq_missing(pl.col("node")).mean()
    return float(steps.select(right).collect(engine="streaming").item())


def _show_homes(out: Path) -> None:
    """Show how near the reports of nights lead to a home, without and with a fence."""
    from geoblanket.mechanism.bundle.storage import ZoneBundle, load_bundle
    from geoblanket.roads.graph import RoadGraph

    bundle, roads = load_bundle(out / "bundles" / _LATTICE), RoadGraph.load(out / "city.roads")
    if isinstance(bundle, ZoneBundle):
        raise typer.Exit(1)
    header = ("the attacker sees the reports of", *(f"{n} {'night' if n == 1 else 'nights'}" for n in _NIGHTS))
    rows = [
        (name, *(f"{metres:,.0f} m off" for metres in found_homes_m(bundle.lattice, roads, fence_km=fence_km)))
        for name, fence_km in (("a home without a fence", None), (f"with a fence of {_FENCE_KM:g} km", _FENCE_KM))
    ]
    say("")
    print_table(f"Home: how near reports lead to {_HOMES} parked cars, on average", rows, header=header)
    say("At rest a report is repeated, so that a night is one draw. For a home of yours: `geoblanket fence add`.")


def found_homes_m(lattice: Lattice, roads: RoadGraph, *, fence_km: float | None) -> list[float]:
    """Return how far off the most probable point is from homes after 1, 7 and 30 nights, on average, metres.

    Parameters
    ----------
    lattice
        What draws a report for each night.
    roads
        Homes are nodes of these.
    fence_km
        The radius of each home's fence, kilometres; None: without fences.
    """
    import numpy as np

    from geoblanket._geodesy import haversine_m
    from geoblanket.release.fence import Fence
    from geoblanket.tracking.estimate import geometric_median

    homes = np.linspace(0, len(roads.lat) - 1, _HOMES).astype(int)
    lat, lon = roads.lat[homes], roads.lon[homes]
    told_lat, told_lon = lat, lon
    if fence_km is not None:
        fences = [Fence.draw(*home, radius_km=fence_km) for home in zip(lat.tolist(), lon.tolist(), strict=True)]
        told_lat, told_lon = np.array([(fence.lat_e7 / 1e7, fence.lon_e7 / 1e7) for fence in fences]).T
    cells = lattice.draw_many(np.repeat(told_lat, max(_NIGHTS)), np.repeat(told_lon, max(_NIGHTS)))
    row, column = (part.reshape(_HOMES, -1) for part in np.divmod(cells, lattice.spec.cells_across))
    units = (np.stack([column, row], axis=-1) + 0.5) * lattice.spec.cell_units
    errors = []
    for nights in _NIGHTS:
        # With planar Laplace noise, the geometric median of the reports is the most probable place.
        x, y = geometric_median(units[:, :nights], nearest=1e-6).T
        errors.append(float(np.mean(haversine_m(lat, lon, *lattice.spec.plane.degrees(x, y)))))
    return errors


def _run(step: _Step) -> None:
    root = typer.main.get_command(app)
    for words in step.commands():
        printed = io.StringIO()
        with ExitStack() as quiet:
            if step.each or step.to is not None:
                quiet.enter_context(redirect_stdout(printed))
            if step.each:
                quiet.enter_context(redirect_stderr(io.StringIO()))
            code = root.main(words, prog_name="geoblanket", standalone_mode=False)
        if step.to is not None:
            step.to.write_text(printed.getvalue(), encoding="utf-8")
        if isinstance(code, int) and code:
            raise typer.Exit(code)


def _again(step: _Step) -> _Step:
    """Return a step that can run where an earlier run, finished or interrupted, left its files."""
    words = [str(word) for word in step.arguments]
    if words[0] == "verify":
        return step
    resumable = " ".join(words).startswith(_RESUMABLE)
    return replace(step, arguments=[*step.arguments, "--overwrite", *(["--resume"] if resumable else [])])


def _steps(out: Path) -> list[_Step]:
    return [*_of_the_city(out), *_of_lattices(out), *_of_zones(out)]


def _of_the_city(out: Path) -> list[_Step]:
    city = out / "city"
    return [
        _Step("A city: streets, taxis, and the truth about how they move.",
              ["city", "--out", city, "--picture", out / "city.png"]),
        _Step("Its map, as OpenStreetMap would have it.",
              ["roads", "import", city / "roads.osm.pbf", "--out", out / "city.roads"]),
        _Step("The taxis' GPS points, in the format of the Porto data set, with its faults.",
              ["traces", "import", "--format", "porto", city / "porto.csv", "--out", out / "traces.parquet"]),
    ]  # fmt: skip


def _of_lattices(out: Path) -> list[_Step]:
    lattice = out / "bundles" / _LATTICE
    return [
        _Step("The first story, a trip across the city. From the map alone, in seconds: a lattice that discloses no "
              "zone.",
              ["lattice", "--roads", out / "city.roads", "--epsilon", "4", "--out", lattice]),
        _Step("Its promise, between any two coordinates, verified again without trusting anything in it.",
              ["verify", lattice]),
        _Step("The taxis' trips, reported by it: no traces were learned from, and none are matched to roads.",
              ["perturb", lattice, "--traces", out / "traces.parquet", "--out", out / "trips.parquet"]),
        _Step("How vehicles move, from the map alone: the trips are synthetic.",
              ["model", "--roads", out / "city.roads", "--out", out / "roads.model"]),
        _Step("Whoever receives the reports follows each taxi, at no cost in privacy. How far off is that?",
              ["track", lattice, out / "trips.parquet", "--model", out / "roads.model",
               "--truth", out / "traces.parquet", "--out", out / "tracked-by-map.parquet"]),
        _Step("The same with more and with less privacy, to look at them side by side.",
              ["lattice", "--roads", out / "city.roads", "--epsilon", "{epsilon}",
               "--out", out / "bundles" / "lattice-{epsilon}.bundle"],
              each={"epsilon": ("0.5", "1", "2", "8")}),
        _Step("Which ε, and how often? Schedules, judged by how far off somebody is who follows all reports.",
              ["plan", "--roads", out / "city.roads", "--sure", "90%", "--set", "trips=60", "--json"],
              to=out / "plan.json"),
    ]  # fmt: skip


def _of_zones(out: Path) -> list[_Step]:
    bundle = out / "bundles" / "zones-4-w1.bundle"
    return [
        _Step("The second story, the best single report. The public parts of the city, each of which will share one "
              "mechanism.",
              ["roads", "zones", out / "city.roads", "--max-places", "100", "--picture", out / "zones.png"]),
        _Step("The points on the roads, as walks: a place every 30 seconds.",
              ["match", "--traces", out / "traces.parquet", "--roads", out / "city.roads",
               "--out", out / "walks.parquet", "--picture", out / "walks.png"]),
        _Step("How far back a taxi's next place depends on its past: the Markov blanket, by speed and part of the "
              "city.",
              ["blanket", "discover", "--walks", out / "walks.parquet", "--roads", out / "city.roads",
               "--out", out / "findings.parquet", "--by", "speed,region"]),
        _Step("A small network that predicts the blanket, for devices.",
              ["blanket", "train", "--findings", out / "findings.parquet", "--out", out / "city.blanket"]),
        _Step("Walks again, between places 250 m apart: the places that will be reported.",
              ["match", "--traces", out / "traces.parquet", "--roads", out / "city.roads", "--spacing", "250",
               "--out", out / "walks-250.parquet"]),
        _Step("A mechanism for each zone: the least loss for the privacy asked for, proven in exact arithmetic.",
              ["build", "--roads", out / "city.roads", "--walks", out / "walks-250.parquet", "--epsilon", "4",
               "--set", f"predictor={out / 'city.blanket'}", "--set", "max_places=60", "--set", "max_rows=300",
               "--set", "compare=true",
               "--out", bundle, "--report", out / "report"]),
        _Step("Its promise, verified again.",
              ["verify", bundle]),
        _Step("Smaller ones of the same places, to look at them side by side: more and less privacy, with a past that "
              "counts (w = 1) and one that must make no difference (w = 0).",
              ["build", "--roads", out / "city.roads", "--walks", out / "walks-250.parquet",
               "--epsilon", "{epsilon}", "--set", "history_weights=[{w}]", "--set", "context=order:1",
               "--set", "loss=straight", "--set", "max_places=60", "--set", "max_rows=50", "--set", "gap=0.2",
               "--out", out / "bundles" / "zones-{epsilon}-w{w}.bundle"],
              each={"epsilon": ("1", "8"), "w": ("0", "1")}),
        _Step("Perturbed reports, as devices would send them.",
              ["perturb", bundle, "--walks", out / "walks-250.parquet", "--roads", out / "city.roads",
               "--out", out / "released.parquet"]),
        _Step("Which mechanism to use: all of them, compared on taxis that none of them has seen.",
              ["evaluate", "--roads", out / "city.roads", "--walks", out / "walks-250.parquet",
               "--predictor", out / "city.blanket", "--findings", out / "findings.parquet", "--quick",
               "--set", "city=synthetic city", "--out", out / "comparison"]),
        _Step("What walks tell about how taxis move, as far back as the Markov blanket says, helps a recipient of the "
              "lattice's reports too.",
              ["model", "--roads", out / "city.roads", "--walks", out / "walks-250.parquet",
               "--findings", out / "findings.parquet", "--out", out / "city.model"]),
        _Step("Nearer than with the map alone.",
              ["track", out / "bundles" / _LATTICE, out / "trips.parquet", "--model", out / "city.model",
               "--truth", out / "traces.parquet", "--out", out / "tracked.parquet"]),
    ]  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("demo"))
