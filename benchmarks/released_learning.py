"""What a tracker gains by learning from the reports that it is sent anyway.

Run `python -m benchmarks.released_learning ROADS WALKS` with a road graph and walks (`geoblanket match`). It prints the
error of a tracker after five rounds over 5,000 to 200,000 reports of drawn trips, and over those of the walks. A start
from roads alone stands beside one from a model that was learned privately from the walks (ε-train = 1, δ = 1e-6), and
beside the true walks behind the same reports, which nobody would have. `--only 5000,sample` takes some of the rows.

Reports are those of a lattice with ε = 2 without hold. Drawn trips are from the chain of order 3 of all walks, as
are the 1,000 others that are judged; of the walks, a fifth of the vehicles is held out and judged. All models have
order 2. *Share* is the part that is gained of what the true walks gain over roads alone. Errors are in km, as in
`benchmarks.private_learning`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from benchmarks._measure import machine, show
from benchmarks.chains import mean_steps
from benchmarks.private_learning import EPSILON_REPORT, Fleet, drawn_fleet, sample_fleet
from geoblanket import RoadGraph
from geoblanket.learning.from_released import learn_from_released
from geoblanket.learning.noise import TrainingBudget
from geoblanket.learning.private import learn_privately
from geoblanket.mechanism.bundle.storage import load_bundle, save_lattice
from geoblanket.release.bulk import perturb_walk_points
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel

REPORTS = (5_000, 20_000, 80_000, 200_000)
VEHICLES = 100
ROUNDS = 5


def row(fleet: Fleet, roads: str, starts: dict[str, MotionModel], folder: Path) -> tuple[str, ...]:
    """Return the figures of one fleet: reports, then errors and shares by start, true walks, and seconds a round."""
    graph, known = RoadGraph.load(roads), fleet.known
    save_lattice(folder / "bundle", fleet.lattice.spec, version=1, interval_s=known.interval_s)
    bundle = load_bundle(folder / "bundle")
    reports = perturb_walk_points(fleet.walks, roads, folder / "reports.parquet", bundle=bundle).reports
    walked, _ = fleet.errors(learn_motion(graph, known.places, walks=fleet.walks, order=2))
    before = {name: fleet.errors(model)[0] for name, model in starts.items()}
    figures, seconds = [], 0.0
    for name, model in starts.items():
        begun = time.perf_counter()
        learned = learn_from_released(folder / "reports.parquet", bundle, model, rounds=ROUNDS)
        seconds += time.perf_counter() - begun
        error, _ = fleet.errors(learned)
        share = (before["roads"] - error) / (before["roads"] - walked)
        print(f"{reports:,} reports, from {name}: {before[name]:.4f}, then {error:.4f} ({share:.0%})", flush=True)
        figures += [f"{before[name]:.3f}", f"{error:.3f}", f"{share:.0%}"]
    return f"{reports:,} ({fleet.name})", *figures, f"{walked:.3f}", f"{seconds / ROUNDS / len(starts):.1f}"


def main(arguments: list[str]) -> None:
    """Print the table."""
    only = arguments[arguments.index("--only") + 1] if "--only" in arguments else None
    chosen = [*map(str, REPORTS), "sample"] if only is None else only.split(",")
    paths = [argument for argument in arguments if not argument.startswith("--") and argument != only]
    if len(paths) != 2:
        print("Usage: python -m benchmarks.released_learning ROADS WALKS [--only N,...,sample]")
        return
    roads, walks = paths
    print(f"{machine()}: python -m benchmarks.released_learning {' '.join(arguments)}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sample = sample_fleet(roads, walks, folder)
        graph, places = RoadGraph.load(roads), sample.known.places
        truth = learn_motion(graph, places, walks=walks, order=3)
        private = learn_privately(graph, places, sample.walks, budget=TrainingBudget.of(1.0, 1e-6), order=2)
        starts = {"roads": learn_motion(graph, places, order=2, interval_s=truth.interval_s), "private": private}
        rows = []
        for which in chosen:
            fleet = sample
            if which != "sample":
                trips = round(int(which) / mean_steps(truth.trips))
                fleet = drawn_fleet("drawn", truth, sample.known, folder, vehicles=VEHICLES, trips=trips, habits=False)
            rows.append(row(fleet, roads, starts, folder))
        show(
            f"Tracked error, km, order 2, after {ROUNDS} rounds over reports with ε = {EPSILON_REPORT:g}",
            (
                "reports",
                *(f"{what}{start}" for start in ("roads", "private") for what in ("", "+ reports, ", "share, ")),
                "true walks",
                "s a round",
            ),
            rows,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
