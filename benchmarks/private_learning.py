"""What privacy for those who drove costs a tracker, and what it costs in time and memory.

Run `python -m benchmarks.private_learning ROADS WALKS` with a road graph and walks (`geoblanket match`). It prints, for
three fleets, the error of a tracker by the ε of learning, beside that of roads alone, of walks without privacy, and of
what OpenDP alone would give: noisy counts of all moves, in one Gaussian measurement of the same cost.

    the sample      WALKS; a fifth of the vehicles is held out and judged
    a taxi fleet    448 vehicles with 500 trips each; `--full`: 1.7 million trips, as Porto's taxis made in a year
    a large fleet   10,000 vehicles with 20 trips each

Trips of the last two are drawn from the chain of order 3 of all walks, and so are those that are judged, with another
seed. Half of the trips of a vehicle start at one of five places of its own. `--only sample` (or `taxis`, `large`) takes
one fleet; `--draws N` takes so many draws of the noise, by default 3, and `--judged N` draws so many trips that are
judged, by default 1,000. Of the sample, `--trips N` judges N held-out trips. `--orders 1,2` takes these
orders of the chain, by default 2 and 3.

Each trip of five steps or more is tracked alone, by reports of a lattice with ε = 2 without hold, the same for all
models. Errors are straight lines from the estimate to the true place, in km, as the mean over draws and, in brackets,
how far the draws lie apart: *tracked* after each report, *single* from one report alone.

`python -m benchmarks.private_learning ROADS WALKS --speed` measures `geoblanket learn` on 40 million steps instead.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks._measure import machine, measure, show
from benchmarks.chains import mean_steps, of_order_1
from benchmarks.tracking import LEAST_STEPS, Known, load, single, tracked
from geoblanket import RoadGraph, choose_places
from geoblanket._arrays import Floats, Ints
from geoblanket._tables import write_table
from geoblanket.learning.chain_cells import ChainCells
from geoblanket.learning.estimating import estimated, normalised, summed
from geoblanket.learning.noise import BOUND, TrainingBudget, noisy
from geoblanket.learning.private import with_noise
from geoblanket.learning.unit_counts import UnitWalks, counted, kinds_of, split_budget
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.mobility.walks import scan_walks
from geoblanket.roads.places import Places
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.synthetic_walks import draw_walks

EPSILON_REPORT = 2.0
EPSILONS_TRAIN = (0.1, 0.3, 1.0, 4.0, 16.0)
PEER_EPSILONS = (1.0, 4.0)
DELTA = 1e-6
ORDERS = (2, 3)
TAXIS, TAXI_TRIPS, ALL_TAXI_TRIPS = 448, 224_000, 1_700_000
LARGE, LARGE_TRIPS = 10_000, 200_000
JUDGED_TRIPS = 1_000
HABITS = 5
"""Places of its own at which half of the trips of a vehicle start."""
MANY_STEPS = 40_000_000


@dataclass(frozen=True, eq=False)
class Fleet:
    """Walks to learn from, and trips of others that are judged."""

    name: str
    walks: Path
    known: Known
    """Of the judged trips."""
    epsilon: float = EPSILON_REPORT
    """Of a report, per km."""

    @cached_property
    def lattice(self) -> Lattice:
        """The lattice that all report by."""
        places = self.known.places
        area = Area(places.lat.min(), places.lon.min(), places.lat.max(), places.lon.max())
        return Lattice.verified(spec_over(area, epsilon=self.epsilon))

    @cached_property
    def cells(self) -> Ints:
        """What was reported on the judged trips."""
        places = self.known.places
        return self.lattice.draw_many(places.lat[self.known.place], places.lon[self.known.place])

    def tracked(self, model: MotionModel) -> Floats:
        """Return the error of a model after each report, km."""
        return tracked(self.known, model, self.lattice, self.cells)

    def errors(self, model: MotionModel) -> tuple[float, float]:
        """Return the mean errors of a model, tracked and single, km."""
        alone = single(self.known, of_order_1(model), self.lattice, self.cells)
        return float(self.tracked(model).mean()), float(alone.mean())


def sample_fleet(roads: str, walks: str, folder: Path, trips: int | None = None) -> Fleet:
    """Return the walks of the training vehicles, and trips of the others, at most `trips` of them."""
    known = load(roads, walks, trips)
    _, about = scan_walks(walks)
    write_table(known.training, folder / "sample.parquet", kind="walks", about=about)
    return Fleet(f"the sample, {known.training['vehicle'].n_unique()} vehicles", folder / "sample.parquet", known)


def drawn_fleet(
    name: str,
    truth: MotionModel,
    sample: Known,
    folder: Path,
    *,
    vehicles: int,
    trips: int,
    habits: bool,
    judged_trips: int = JUDGED_TRIPS,
) -> Fleet:
    """Draw a fleet, whose vehicles may have habits, and trips that are judged."""
    drawn, walks, judged = (folder / f"{name}.{part}.parquet" for part in ("drawn", "walks", "judged"))
    draw_walks(truth, sample.places, drawn, trips=trips, vehicles=vehicles, seed=1)
    if habits:
        with_habits(drawn, walks, truth, vehicles)
        drawn.unlink()
    else:
        drawn.replace(walks)
    draw_walks(truth, sample.places, judged, trips=judged_trips, vehicles=judged_trips, seed=2)
    rows = pl.read_parquet(judged).filter(pl.len().over("walk") >= LEAST_STEPS)
    known = replace(
        sample,
        walks=str(walks),
        place=rows["place"].to_numpy(),
        starts=np.flatnonzero(rows["step"].to_numpy() == 0),
        vehicle=rows["walk"].rank("dense").to_numpy().astype(np.int64) - 1,
    )
    return Fleet(f"{name}, {vehicles:,} vehicles", walks, known)


def with_habits(drawn: Path, out: Path, truth: MotionModel, vehicles: int) -> None:
    """Deal drawn trips to vehicles anew: half of them to one that often starts where they start.

    Trips of a vehicle may then overlap, which learning does not mind.
    """
    rng = np.random.default_rng(3)
    frame, about = scan_walks(drawn)
    place = frame.filter(pl.col("step") == 0).select("walk", "place").collect().sort("walk")["place"].to_numpy()
    starts = (truth.to_places @ truth.start).astype(np.float64)
    habit = rng.choice(len(starts), HABITS * vehicles, p=starts / starts.sum())
    by_place = np.argsort(habit, kind="stable")
    first, many = np.searchsorted(habit[by_place], place), np.bincount(habit, minlength=len(starts))[place]
    own = by_place[np.minimum(first + (rng.random(len(place)) * many).astype(np.int64), len(habit) - 1)] // HABITS
    vehicle = np.where((rng.random(len(place)) < 0.5) & (many > 0), own, rng.integers(vehicles, size=len(place)))
    names = pl.Series([f"drawn {number}" for number in range(vehicles)]).gather(vehicle)
    whose = pl.LazyFrame({"walk": np.arange(len(place)), "vehicle": names})
    columns = frame.collect_schema().names()
    dealt = frame.drop("vehicle").join(whose, on="walk", how="left", maintain_order="left").select(columns)
    write_table(dealt, out, kind="walks", about=about)


class Learner:
    """The stages of `learn_privately` for one order; walks are counted once for all ε."""

    def __init__(self, graph: RoadGraph, fleet: Fleet, order: int) -> None:
        frame, about = scan_walks(fleet.walks)
        whose = UnitWalks.read(frame, path=fleet.walks, unit="vehicle")
        self.units, self.steps = int(whose.unit.max()) + 1, int(whose.steps.sum())
        self.road = learn_motion(graph, fleet.known.places, order=order, interval_s=float(about["interval_s"]))
        self.cells = ChainCells(self.road)
        self.kinds = dict(kinds_of(self.cells))
        self.sums = counted(frame, whose, self.cells, self.kinds, path=fleet.walks)

    def private(self, budget: TrainingBudget) -> MotionModel:
        """Return a model with (ε, δ)."""
        shares = split_budget(budget.rho, self.units, self.kinds)
        counts, _ = with_noise({name: self.sums[name] for name in shares}, shares)
        return estimated(self.cells, counts)

    def noisy_counts_alone(self, budget: TrainingBudget) -> Iterator[tuple[str, MotionModel]]:
        """Yield what OpenDP alone would give: all of the budget for the counts of runs of the chain's length.

        It gets as presents what it would have to find: vehicles scaled to the same length, the runs that roads allow,
        and how many steps there are.
        """
        kind = "runs" if self.cells.runs else "moves"
        drawn, _ = noisy(self.sums[kind], name=kind, rho=budget.rho)
        counts = np.maximum(drawn / BOUND, 0.0)
        counts *= self.steps / max(counts.sum(), 1e-9)
        states = len(self.road)
        state = np.repeat(np.arange(states), np.diff(self.road.offsets))
        yield "counts alone", self._chain(counts, normalised(counts, state, states), 0.0)
        total, different = (summed(values, state, states) for values in (counts, np.where(counts > 0, 1.0, 0.0)))
        mixed = (counts + different[state] * self.road.chances) / np.maximum(total + different, 1e-9)[state]
        chances = np.where((total > 0)[state], mixed, self.road.chances)
        yield "mixed with roads", self._chain(counts, normalised(chances, state, states), 0.5)

    def _chain(self, counts: Floats, chances: Floats, besides: float) -> MotionModel:
        start = summed(counts, self.road.targets.astype(np.int64), len(self.road)) + besides
        return replace(self.road, chances=chances.astype(np.float32), start=(start / start.sum()).astype(np.float32))


def report(graph: RoadGraph, fleet: Fleet, draws: int, orders: Sequence[int] = ORDERS) -> None:
    """Print what learning with privacy costs a fleet."""
    budgets = {epsilon: TrainingBudget.of(epsilon, DELTA) for epsilon in EPSILONS_TRAIN}
    learners = {order: Learner(graph, fleet, order) for order in {1, *orders}}
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    peers: dict[tuple[str, float, int], list[tuple[float, float]]] = {}
    for order in orders:
        learner = learners[order]
        found["roads alone", order] = [fleet.errors(learner.road)]
        for epsilon, budget in budgets.items():
            found[f"ε-train = {epsilon:g}", order] = [fleet.errors(learner.private(budget)) for _ in range(draws)]
        walked = learn_motion(graph, fleet.known.places, walks=fleet.walks, order=order)
        found["walks, no privacy", order] = [fleet.errors(walked)]
    for order in {1, 2} & learners.keys():
        learner = learners[order]
        for epsilon in PEER_EPSILONS:
            for _ in range(draws):
                for name, model in learner.noisy_counts_alone(budgets[epsilon]):
                    peers.setdefault((name, epsilon, order), []).append(fleet.errors(model))
    best = min(np.mean(found["walks, no privacy", order], axis=0)[0] for order in orders)
    names = dict.fromkeys(name for name, _ in found)
    title = (
        f"Error, km, {fleet.name}, {learner.steps:,} steps; {len(fleet.known.starts):,} judged trips of "
        f"{len(fleet.known.place):,} reports with ε = {EPSILON_REPORT:g}; δ = {DELTA:g}; {draws} draws of the noise"
    )
    show(
        title,
        (
            "learned from",
            *(f"order {order}, {what}" for order in orders for what in ("tracked", "single")),
            "tracked, best order over best without privacy",
        ),
        [
            (
                name,
                *(spread([pair[what] for pair in found[name, order]]) for order in orders for what in (0, 1)),
                f"{min(np.mean(found[name, order], axis=0)[0] for order in orders) / best - 1:+.1%}",
            )
            for name in names
        ],
    )
    ours = {
        epsilon: min(np.mean(found[f"ε-train = {epsilon:g}", order], axis=0)[0] for order in orders)
        for epsilon in PEER_EPSILONS
    }
    show(
        f"The same by OpenDP's noise alone, {fleet.name}: tracked",
        ("counted", "counts are", "ε-train", "tracked", "single", "geoblanket, tracked", "ratio"),
        [
            (
                ("moves", "runs of three")[order - 1],
                name,
                f"{epsilon:g}",
                *(spread([pair[what] for pair in pairs]) for what in (0, 1)),
                f"{ours[epsilon]:.3f}",
                f"{ours[epsilon] / np.mean(pairs, axis=0)[0]:.2f}",
            )
            for (name, epsilon, order), pairs in sorted(peers.items(), key=lambda item: item[0][::-1])
        ],
    )


def spread(values: list[float]) -> str:
    """Return the mean of some values, and how far they lie apart."""
    width = f" ({max(values) - min(values):.3f})" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{width}"


def learn_by_command(walks: str, roads: str, order: int) -> str:
    """Run `geoblanket learn`; return its command."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "geoblanket", "learn", "--walks", walks, "--roads", roads, "--epsilon-train", "1",
            "--set", f"order={order}", "--set", f"ledger={folder}/spent.json", "--out", f"{folder}/model",
        ]  # fmt: skip
        subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True)
    return " ".join(command[:2])


def speed(truth: MotionModel, places: Places, roads: str, folder: Path) -> None:
    """Print what learning from many steps takes."""
    walks = folder / "many.parquet"
    start = time.perf_counter()
    drawn = draw_walks(truth, places, walks, trips=round(MANY_STEPS / mean_steps(truth.trips)), vehicles=TAXIS)
    print(f"{drawn.steps:,} steps drawn in {time.perf_counter() - start:.0f} s")
    taken = {order: measure(learn_by_command, str(walks), roads, order) for order in ORDERS}
    show(
        f"geoblanket learn: {drawn.steps:,} steps of {drawn.vehicles} vehicles, ε-train = 1",
        ("", "seconds", "peak memory"),
        [(f"order {order}", f"{took.seconds:.0f}", f"{took.peak_mb:,.0f} MB") for order, took in taken.items()],
    )


def main(arguments: list[str]) -> None:
    """Print the tables."""
    named = ("--only", "--draws", "--judged", "--trips", "--orders")
    options = {name: arguments[arguments.index(name) + 1] for name in named if name in arguments}
    paths = [argument for argument in arguments if not argument.startswith("--") and argument not in options.values()]
    if len(paths) != 2:
        print(
            "Usage: python -m benchmarks.private_learning ROADS WALKS [--full] [--only sample|taxis|large] [--draws N] "
            "[--judged N] [--trips N] [--orders 1,2] [--speed]"
        )
        return
    roads, walks = paths
    print(f"{machine()}: python -m benchmarks.private_learning {' '.join(arguments)}", flush=True)
    graph = RoadGraph.load(roads)
    places = choose_places(graph, spacing_m=scan_walks(walks)[1]["spacing_m"])
    only, draws = options.get("--only"), int(options.get("--draws", 3))
    orders = [int(order) for order in options["--orders"].split(",")] if "--orders" in options else ORDERS
    drawn = only != "sample" or "--speed" in arguments
    truth = learn_motion(graph, places, walks=walks, order=3) if drawn else None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "--speed" in arguments and truth is not None:
            speed(truth, places, roads, folder)
            return
        sample = sample_fleet(roads, walks, folder, int(options["--trips"]) if "--trips" in options else None)
        trips = ALL_TAXI_TRIPS if "--full" in arguments else TAXI_TRIPS
        if only in (None, "sample"):
            report(graph, sample, draws, orders)
        for which, title, vehicles, count in (
            ("taxis", "a taxi fleet", TAXIS, trips),
            ("large", "a large fleet", LARGE, LARGE_TRIPS),
        ):
            if only in (None, which) and truth is not None:
                fleet = drawn_fleet(
                    title, truth, sample.known, folder, vehicles=vehicles, trips=count, habits=True,
                    judged_trips=int(options.get("--judged", JUDGED_TRIPS)),
                )  # fmt: skip
                report(graph, fleet, draws, orders)


if __name__ == "__main__":
    main(sys.argv[1:])
