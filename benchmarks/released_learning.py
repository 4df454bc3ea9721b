"""What a tracker gains by learning from the reports that it is sent anyway.

Run `python -m benchmarks.released_learning ROADS WALKS` with a road graph and walks (`geoblanket match`). It prints the
error of a tracker after five rounds over 5,000 to 200,000 reports of drawn trips, and over those of the walks. A start
from roads alone stands beside one from a model that was learned privately from the walks (ε-train = 1, δ = 1e-6), and
beside the true walks behind the same reports, which nobody would have. `--only 5000,sample` takes some of the rows.
`--days 1,7,21` takes the reports of the walks in their first days instead, of the first `--vehicles N` if so asked, and
`--trips N` judges N trips. `--order 1` takes another order, `--epsilon 4` another ε of reports, and `--start roads`
leaves out the private start.

Reports are those of a lattice without hold, by default with ε = 2. Drawn trips are from the chain of order 3 of all
walks, as are the 1,000 others that are judged; of the walks, a fifth of the vehicles is held out and judged. Models
have order 2. *Share* is the part that is gained of what the true walks gain over roads alone. Errors are in km, as in
`benchmarks.private_learning`, with standard errors over judged vehicles; differences are paired by vehicle.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import polars as pl

from benchmarks._measure import machine, show
from benchmarks.chains import mean_steps
from benchmarks.private_learning import EPSILON_REPORT, Fleet, drawn_fleet, sample_fleet
from benchmarks.tracking import by_vehicle
from geoblanket import RoadGraph
from geoblanket._display import counted
from geoblanket._tables import write_table
from geoblanket.learning.from_released import learn_from_released
from geoblanket.learning.noise import TrainingBudget
from geoblanket.learning.private import learn_privately
from geoblanket.mechanism.bundle.storage import load_bundle, save_lattice
from geoblanket.mobility.walks import scan_walks
from geoblanket.release.bulk import perturb_walk_points
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel

REPORTS = (5_000, 20_000, 80_000, 200_000)
VEHICLES = 100
ROUNDS = 5
WHAT = ("", "+ reports, ", "share, ", "minus true walks, ")


def first_days(fleet: Fleet, days: int, vehicles: int | None, folder: Path) -> Fleet:
    """Return the same fleet, to learn from what some of it drove in the first days."""
    frame, about = scan_walks(fleet.walks)
    names = frame.select(pl.col("vehicle").unique()).collect()["vehicle"].sort()[:vehicles]
    begin = frame.select(pl.col("time").min()).collect().item()
    early = pl.col("time").min().over("walk") < begin + timedelta(days=days)
    kept = frame.filter(pl.col("vehicle").is_in(names.implode())).filter(early).collect()
    write_table(kept, folder / f"days{days}.parquet", kind="walks", about=about)
    return replace(
        fleet, name=f"{counted(days, 'day')} of {counted(len(names), 'vehicle')}", walks=folder / f"days{days}.parquet"
    )


def row(fleet: Fleet, roads: str, starts: dict[str, MotionModel], folder: Path, order: int) -> tuple[str, ...]:
    """Return the figures of one fleet: reports, then errors and shares by start, true walks, and seconds a round."""
    graph, known = RoadGraph.load(roads), fleet.known
    save_lattice(folder / "bundle", fleet.lattice.spec, version=1, interval_s=known.interval_s)
    bundle = load_bundle(folder / "bundle")
    reports = perturb_walk_points(fleet.walks, roads, folder / "reports.parquet", bundle=bundle).reports
    walked = fleet.tracked(learn_motion(graph, known.places, walks=fleet.walks, order=order))
    before = {name: fleet.tracked(model) for name, model in starts.items()}
    on_roads = before["roads"]
    figures, seconds = [], 0.0
    for name, model in starts.items():
        begun = time.perf_counter()
        learned = learn_from_released(folder / "reports.parquet", bundle, model, rounds=ROUNDS)
        seconds += time.perf_counter() - begun
        error = fleet.tracked(learned)
        share = (on_roads - error).mean() / (on_roads - walked).mean()
        less = by_vehicle(error - walked, known.vehicle)
        print(f"{reports:,} reports, from {name}: {before[name].mean():.4f}, then {error.mean():.4f}, minus true walks")
        print(f"  {less} ({share:.0%})", flush=True)
        figures += [f"{before[name].mean():.3f}", by_vehicle(error, known.vehicle), f"{share:.0%}", less]
    walks = by_vehicle(walked, known.vehicle)
    return f"{reports:,} ({fleet.name})", *figures, walks, f"{seconds / ROUNDS / len(starts):.1f}"


def main(arguments: list[str]) -> None:
    """Print the table."""
    named = ("--only", "--days", "--vehicles", "--trips", "--order", "--epsilon", "--start")
    options = {name: arguments[arguments.index(name) + 1] for name in named if name in arguments}
    chosen = options["--only"].split(",") if "--only" in options else [*map(str, REPORTS), "sample"]
    days = [int(number) for number in options["--days"].split(",")] if "--days" in options else []
    order, epsilon = int(options.get("--order", 2)), float(options.get("--epsilon", EPSILON_REPORT))
    given = {position for name in options for position in (arguments.index(name), arguments.index(name) + 1)}
    paths = [argument for position, argument in enumerate(arguments) if position not in given]
    if len(paths) != 2:
        print("Usage: python -m benchmarks.released_learning ROADS WALKS [--only N,...,sample | --days N,...]")
        print("       [--vehicles N] [--trips N] [--order N] [--epsilon E] [--start roads]")
        return
    roads, walks = paths
    print(f"{machine()}: python -m benchmarks.released_learning {' '.join(arguments)}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trips_judged = int(options["--trips"]) if "--trips" in options else None
        sample = replace(sample_fleet(roads, walks, folder, trips_judged), epsilon=epsilon)
        graph, places = RoadGraph.load(roads), sample.known.places
        starts = {"roads": learn_motion(graph, places, order=order, interval_s=sample.known.interval_s)}
        if options.get("--start") != "roads":
            budget = TrainingBudget.of(1.0, 1e-6)
            starts["private"] = learn_privately(graph, places, sample.walks, budget=budget, order=order)
        vehicles = int(options["--vehicles"]) if "--vehicles" in options else None
        rows = [row(first_days(sample, count, vehicles, folder), roads, starts, folder, order) for count in days]
        truth = None if days or chosen == ["sample"] else learn_motion(graph, places, walks=walks, order=3)
        for which in [] if days else chosen:
            fleet = sample
            if truth is not None and which != "sample":
                trips = round(int(which) / mean_steps(truth.trips))
                fleet = drawn_fleet("drawn", truth, sample.known, folder, vehicles=VEHICLES, trips=trips, habits=False)
                fleet = replace(fleet, epsilon=epsilon)
            rows.append(row(fleet, roads, starts, folder, order))
        show(
            f"Tracked error, km, order {order}, after {ROUNDS} rounds over reports with ε = {epsilon:g}",
            (
                "reports",
                *(f"{what}{start}" for start in starts for what in WHAT),
                "true walks",
                "s a round",
            ),
            rows,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
