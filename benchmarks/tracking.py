"""How far off a tracker is by what it knows of the city: roads, walks, and how much of the past matters where.

Run `python -m benchmarks.tracking ROADS WALKS` with a road graph and walks (`geoblanket match`); `--city FOLDER` adds
the true blankets of a synthetic city (`geoblanket city`), whose true walks are written to WALKS if there is no such
file; `--trips N` tracks N trips; `--quick` leaves out ε = 8. Models of more than two million moves are left
out. `python -m benchmarks.tracking ROADS [WALKS] --speed ORDER` measures streaming instead. `--traces TRACES`, from
`geoblanket traces import`, tracks held-out vehicles through all of their trips instead, wherever these lead, by reports
of their coordinates: with and without the surroundings of the map. Errors are then from coordinates.

A fifth of the vehicles is held out; blankets are discovered and models learned from the others. Each trip of five steps
or more is tracked alone, by reports of a lattice without hold, the same for all models. Errors are straight lines
from the estimate to the true place after each report, in km, followed by standard errors over vehicles; differences are
paired by vehicle.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks._measure import machine, measure, show
from benchmarks.true_blankets import write_true_walks
from geoblanket import DiscoveryOptions, RoadGraph, choose_places
from geoblanket._arrays import Bools, Floats, Indices, Ints, Positions
from geoblanket._geodesy import haversine_m
from geoblanket._tables import write_table
from geoblanket.blanket.discovery import discover
from geoblanket.build.blanket_lengths import KnownLengths, read_found_blankets, regions_of_source
from geoblanket.mechanism.bundle.storage import LatticeBundle, load_bundle, save_lattice
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.limit import tracking_limit_km
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.mobility.histories import count_histories
from geoblanket.mobility.walks import Split, scan_walks, split_walks
from geoblanket.roads.places import Places
from geoblanket.roads.zones import partition_zones
from geoblanket.tracking.estimate import Estimator
from geoblanket.tracking.filtering import BeliefFilter, Sequences, follow
from geoblanket.tracking.learning import DEFAULT_INTERVAL_S, Lengths, learn_motion, model_of_counts
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.observation import LatticeObservations, Reports
from geoblanket.tracking.surroundings import surrounded
from geoblanket.tracking.synthetic_walks import count_steps, drive
from geoblanket.tracking.tracker import Tracker

SPLIT = Split(held_out=0.2, seed=1)
LEAST_STEPS = 5
LARGEST_BLANKET = 3
NEGLIGIBLE = 0.1
"""A true order counts at a node if so large a share of the steps from there was drawn by it or a higher one."""
MOST_MOVES = 2_000_000
ENOUGH_FOR_REGIONS = 50_000  # steps: with fewer, groups by speed and region are too small to be tested
ALONE = {"roads alone, order 1": "one report, roads alone", "roads and walks, order 1": "one report, roads and walks"}
"""Best guesses from one report, by the model that knows which places are usual."""
STREAMED = 64
"""Vehicles that report in one slot."""
INSIDE_M = 250.0
"""A vehicle is inside the map if a road node is so near."""
STREAMED_SLOTS, PEER_REPORTS, DRIVEN_TRIPS = 100, 200, 20_000


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of a city, and trips that nobody learned from."""

    graph: RoadGraph
    places: Places
    walks: str
    interval_s: float
    place: Indices
    """Of all steps of held-out trips, trip after trip."""
    starts: Ints
    vehicle: Ints
    """Of each step."""
    training: pl.DataFrame


def load(roads: str, walks: str, trips: int | None = None) -> Known:
    """Read a city, and hold vehicles out; keep at most `trips` of their trips."""
    table, about = scan_walks(walks)
    graph = RoadGraph.load(roads)
    parts = split_walks(table, path=walks, part="held_out", split=SPLIT)
    rows = table.collect()
    unseen = rows["walk"].is_in(parts.walks[parts.chosen])
    long = rows.filter(unseen).filter(pl.len().over("walk") >= LEAST_STEPS).sort("walk", "step")
    if trips is not None:
        there = long["walk"].unique(maintain_order=True)
        long = long.filter(pl.col("walk").is_in(there.sample(min(trips, len(there)), seed=0).implode()))
    walk = long["walk"].to_numpy()
    return Known(
        graph,
        choose_places(graph, spacing_m=about["spacing_m"]),
        walks,
        float(about["interval_s"]),
        long["place"].to_numpy(),
        np.flatnonzero(np.append(True, walk[1:] != walk[:-1])),
        long["vehicle"].rank("dense").to_numpy().astype(np.int64) - 1,
        rows.filter(~unseen),
    )


def discovered(known: Known, roads: str, by: list[str]) -> Lengths:
    """Return the orders that discovery finds in the training walks."""
    _, about = scan_walks(known.walks)
    with tempfile.TemporaryDirectory() as folder:
        walks, findings = Path(folder) / "walks", Path(folder) / "findings"
        write_table(known.training, walks, kind="walks", about=about)
        options = DiscoveryOptions(by=by, largest=LARGEST_BLANKET)
        discover(walks, roads, options, workers=1, out=findings)
        source = read_found_blankets(findings)
    region = regions_of_source(source, known.places, partition_zones(known.graph, known.places, max_places=200))
    return KnownLengths(source, known.places, region, (12,), known.interval_s)


def true_lengths(known: Known, city: str) -> Lengths:
    """Return the orders by which steps from each node were truly drawn."""
    steps = pl.read_parquet(Path(city) / "true_walks.parquet").sort("trip", "step")
    left = steps.with_columns(source=pl.col("node").shift(1).over("trip")).drop_nulls(["source", "order"])
    order = np.ones(known.graph.node_count, np.int64)
    number = {node: index for index, node in enumerate(known.graph.node_ids.tolist())}
    for (node,), part in left.group_by("source"):
        drawn = part["order"].to_numpy()
        order[number[int(str(node))]] = max(m for m in (1, 2, 3) if (drawn >= m).mean() >= NEGLIGIBLE)
    of_place = order[known.places.nodes]
    return lambda now, _before: of_place[now]


def models(known: Known, blankets: dict[str, Lengths]) -> Iterator[tuple[str, MotionModel]]:
    """Yield motion models, from one that knows nothing but distances to one that knows most."""
    places, interval_s = known.places, known.interval_s
    yield "distance alone", MotionModel.by_distance(places.coordinates_e7, interval_s=interval_s)
    driven = count_steps(drive(known.graph, places, interval_s=interval_s), largest=2)
    walked = count_histories(known.walks, places, largest=2, part="train", split=SPLIT)
    orders: dict[str, int | Lengths] = {f"order {order}": order for order in (1, 2, 3)} | blankets
    for evidence, counts in (("roads alone", None), ("roads and walks", walked)):
        for name, order in orders.items():
            if counts is not None or isinstance(order, int):
                model = model_of_counts(places, driven, counts, order=order, interval_s=interval_s, learned={})
                yield f"{evidence}, {name}", model


def tracked(known: Known, model: MotionModel, lattice: Lattice, cells: Ints) -> Floats:
    """Return the error after each report, km."""
    beliefs = BeliefFilter(model, LatticeObservations(lattice, model, interval_s=known.interval_s))
    errors = np.empty(len(cells))

    def seen(positions: Positions, belief: Singles) -> None:
        errors[positions] = _off(known, model, beliefs.places(belief), positions)

    follow(beliefs, Sequences(np.arange(len(cells)), cells, known.starts), seen)
    return errors


def single(known: Known, model: MotionModel, lattice: Lattice, cells: Ints) -> Floats:
    """Return the error of the best guess from each report alone, km, by a model of order 1."""
    observations = LatticeObservations(lattice, model, interval_s=known.interval_s)
    errors = np.empty(len(cells))
    for positions in np.array_split(np.arange(len(cells)), len(cells) // 500 + 1):
        none = np.zeros(len(positions), np.int64)
        likelihood = observations.likelihood(Reports(cells[positions], none, none))
        errors[positions] = _off(known, model, model.usual[:, None] * likelihood, positions)
    return errors


def _off(known: Known, model: MotionModel, places: Singles, positions: Positions) -> Floats:
    estimates, truth = Estimator(model).estimates(places), known.place[positions]
    off: Floats = haversine_m(estimates.lat, estimates.lon, model.lat[truth], model.lon[truth]) / 1000
    return off


def everywhere(roads: str, walks: str, traces: str) -> None:
    """Print errors over all trips of held-out vehicles, inside the map and outside, and how many circles hold them."""
    table, about = scan_walks(walks)
    graph, interval_s = RoadGraph.load(roads), float(about["interval_s"])
    places = choose_places(graph, spacing_m=about["spacing_m"])
    parts = split_walks(table, path=walks, part="held_out", split=SPLIT)
    unseen = table.filter(pl.col("walk").is_in(parts.walks[parts.chosen].tolist())).select("vehicle").unique().collect()
    points = (
        pl.read_parquet(traces, columns=["vehicle", "time", "lat", "lon"])
        .filter(pl.col("vehicle").is_in(unseen["vehicle"].implode()))
        .with_columns(slot=pl.col("time").dt.epoch("ms") // round(1000 * interval_s))
        .unique(["vehicle", "slot"], keep="first", maintain_order=True)
        .sort("vehicle", "slot")
    )
    lat, lon = (points[name].to_numpy() for name in ("lat", "lon"))
    inside = choose_places(graph, spacing_m=0).nearest(lat, lon)[1] <= INSIDE_M
    vehicle = points["vehicle"].rank("dense").to_numpy().astype(np.int64) - 1
    sequences, order = Sequences.of(points["slot"].to_numpy(), np.arange(points.height), vehicle)
    learned = {memory: learn_motion(graph, places, walks=walks, split=SPLIT, order=memory) for memory in (1, 2)}
    rows = []
    for epsilon in (1.0, 2.0, 4.0, 8.0, 16.0):
        area = Area(graph.lat.min(), graph.lon.min(), graph.lat.max(), graph.lon.max())
        lattice = Lattice.verified(spec_over(area, epsilon=epsilon))
        cells, spec = lattice.draw_many(lat, lon), lattice.spec
        row, column = np.divmod(cells, spec.cells_across)
        half = spec.cell_units // 2
        reported = spec.plane.degrees(column * spec.cell_units + half, row * spec.cell_units + half)
        raw_m = haversine_m(*reported, lat, lon)
        for memory, model in learned.items():
            for used in (model, surrounded(model, epsilon=epsilon)):
                observations = LatticeObservations(lattice, used, interval_s=interval_s)
                beliefs = BeliefFilter(used, observations, keeps_direction=used is not model)
                errors, held = _judged(beliefs, replace(sequences, output=cells[order]), lat[order], lon[order])
                errors, held = errors[np.argsort(order)], held[np.argsort(order)]
                rows.append((
                    f"ε = {epsilon:g}, order {memory}, " + ("map alone" if used is model else "with surroundings"),
                    *(f"{raw_m[some].mean():,.0f} → {errors[some].mean():,.0f} m, {held[some].mean():.1%}"
                      for some in (np.ones_like(inside), inside, ~inside)),
                    f"{errors.mean() / raw_m.mean():.2f}",
                ))  # fmt: skip
    show(
        f"Reports → estimates, and circles of 90 % that hold: {points.height:,} reports of {unseen.height} held-out "
        f"vehicles every {interval_s:g} s, {inside.mean():.0%} of them within {INSIDE_M:g} m of the map",
        ("", "all trips", "inside the map", "outside", "estimate / report"),
        rows,
    )


def _judged(beliefs: BeliefFilter, reports: Sequences, lat: Floats, lon: Floats) -> tuple[Floats, Bools]:
    """Return the error after each report, metres, and whether the circle holds the vehicle."""
    estimator, errors, held = Estimator(beliefs.model), np.empty(len(lat)), np.empty(len(lat), bool)

    def seen(positions: Positions, belief: Singles) -> None:
        found = estimator.estimates(beliefs.places(belief))
        errors[positions] = haversine_m(found.lat, found.lon, lat[positions], lon[positions])
        held[positions] = errors[positions] <= found.radius_m

    follow(beliefs, reports, seen)
    return errors, held


def by_vehicle(values: Floats, vehicle: Ints) -> str:
    """Return a mean over reports, and its standard error over vehicles."""
    count, total = np.bincount(vehicle), np.bincount(vehicle, values)
    mean = total.sum() / count.sum()
    return f"{mean:.3f} ± {np.sqrt(((total - mean * count) ** 2).sum()) / count.sum():.3f}"


def report(known: Known, blankets: dict[str, Lengths], epsilons: Sequence[float]) -> None:
    """Print the error of all models."""
    places = known.places
    area = Area(places.lat.min(), places.lon.min(), places.lat.max(), places.lon.max())
    lattices = [Lattice.verified(spec_over(area, epsilon=epsilon)) for epsilon in epsilons]
    cells = [lattice.draw_many(places.lat[known.place], places.lon[known.place]) for lattice in lattices]
    errors: dict[str, list[Floats]] = {}
    states: dict[str, int] = {}
    for name, model in models(known, blankets):
        if len(model.chances) > MOST_MOVES:
            print(f"{name}: {len(model):,} states, {len(model.chances):,} moves, left out")
            continue
        states[name] = len(model)
        errors[name] = [tracked(known, model, *drawn) for drawn in zip(lattices, cells, strict=True)]
        if name in ALONE:
            states[ALONE[name]] = len(model)
            errors[ALONE[name]] = [single(known, model, *drawn) for drawn in zip(lattices, cells, strict=True)]
    usual = errors["roads and walks, order 2"]
    header = [f"ε = {epsilon:g}" for epsilon in epsilons]
    show(
        f"Error, km: {len(places)} places, {len(known.starts):,} trips of {len(known.place):,} reports, "
        f"{known.vehicle.max() + 1} held-out vehicles",
        ("model", "states", *header, *(f"{name}, minus order 2" for name in header)),
        [
            (
                name,
                f"{states[name]:,}",
                *(by_vehicle(error, known.vehicle) for error in found),
                *(by_vehicle(error - order_2, known.vehicle) for error, order_2 in zip(found, usual, strict=True)),
            )
            for name, found in errors.items()
        ],
    )
    for number, epsilon in enumerate(epsilons):
        for alone in ALONE.values():
            from_one = errors[alone][number].mean()
            taken = (f"{name} {1 - errors[name][number].mean() / from_one:.0%}" for name in errors if "order 2" in name)
            print(f"ε = {epsilon:g}: tracking takes off {alone}: " + ", ".join(taken))
        print(
            f"  root mean square error by walks, order 2: {_rms(usual[number]):.3f} km. By the bound of van Trees, no "
            "tracker and no mechanism with this promise follows a Gaussian walk of the same steps "
            f"({_rms(_steps_km(known)):.3f} km) to less than "
            f"{tracking_limit_km(epsilon, _rms(_steps_km(known))):.3f} km."
        )


def _steps_km(known: Known) -> Floats:
    """Return how far apart the places of a trip are from one report to the next, km."""
    lat, lon = known.places.lat[known.place], known.places.lon[known.place]
    apart: Floats = haversine_m(lat[1:], lon[1:], lat[:-1], lon[:-1]) / 1000
    return np.delete(apart, known.starts[1:] - 1)


def _rms(values: Floats) -> float:
    return float(np.sqrt((values**2).mean()))


def streamed(roads: str, walks: str | None, order: int, peer: bool) -> tuple[int, int, float]:
    """Return the numbers of places and states, and reports a second of CPU time: tracker, or dense NumPy."""
    graph = RoadGraph.load(roads)
    places = choose_places(graph, spacing_m=250 if walks is None else scan_walks(walks)[1]["spacing_m"])
    kept = Path(roads + f".{order}.motion")
    if not kept.exists():
        interval_s = DEFAULT_INTERVAL_S if walks is None else float(scan_walks(walks)[1]["interval_s"])
        driven = count_steps(drive(graph, places, interval_s=interval_s, trips=DRIVEN_TRIPS), largest=2)
        walked = None if walks is None else count_histories(walks, places, largest=2)
        model_of_counts(places, driven, walked, order=order, interval_s=interval_s, learned={}).save(kept)
    model = MotionModel.load(kept)
    rng = np.random.default_rng(0)
    spec = spec_over(Area(places.lat.min(), places.lon.min(), places.lat.max(), places.lon.max()), epsilon=4.0)
    with tempfile.TemporaryDirectory() as folder:
        save_lattice(Path(folder) / "bundle", spec, version=1, interval_s=model.interval_s)
        bundle = load_bundle(Path(folder) / "bundle")
    assert isinstance(bundle, LatticeBundle)
    state, outputs = rng.choice(len(model), STREAMED, p=model.usual / model.usual.sum(dtype=np.float64)), []
    for _ in range(STREAMED_SLOTS):
        outputs.append(bundle.lattice.draw_many(model.lat[model.present[state]], model.lon[model.present[state]]))
        ends = np.cumsum(model.chances)[model.offsets[state + 1] - 1]
        state = model.targets[np.searchsorted(np.cumsum(model.chances), ends - rng.random(STREAMED)).clip(0)]
    names = [str(number) for number in range(STREAMED)]
    if not peer:
        tracker = Tracker(bundle, model)
        tracker.see_many(names, np.zeros(STREAMED, np.int64), outputs[0])
        start = time.process_time()
        for slot in range(1, STREAMED_SLOTS):
            tracker.see_many(names, np.full(STREAMED, slot), outputs[slot])
        return len(places), len(model), (STREAMED_SLOTS - 1) * STREAMED / (time.process_time() - start)
    moves = model.moves_into.toarray()
    observations = LatticeObservations(bundle.lattice, model, interval_s=model.interval_s)
    belief = model.start
    start = time.process_time()
    for number in range(PEER_REPORTS):
        here = Reports(outputs[number % STREAMED_SLOTS][:1], np.zeros(1, np.int64), np.ones(1, bool))
        belief = (moves @ belief) * observations.likelihood(here)[:, 0]
        belief = belief / belief.sum()
        Estimator(model).estimates(model.to_places @ belief[:, None])
    return len(places), len(model), PEER_REPORTS / (time.process_time() - start)


def main(arguments: list[str]) -> None:
    """Print the tables."""
    options = {
        name: arguments[arguments.index(name) + 1]
        for name in ("--city", "--speed", "--traces", "--trips")
        if name in arguments
    }
    paths = [argument for argument in arguments if not argument.startswith("--") and argument not in options.values()]
    if not 2 - ("--speed" in options) <= len(paths) <= 2:
        print("Usage: python -m benchmarks.tracking ROADS WALKS [--city FOLDER] [--trips N] [--quick]")
        print("       python -m benchmarks.tracking ROADS WALKS --traces TRACES")
        print("       python -m benchmarks.tracking ROADS [WALKS] --speed ORDER")
        return
    print(machine())
    roads, walks = paths[0], paths[1] if len(paths) > 1 else None
    if "--speed" in options:
        order = int(options["--speed"])
        measure(streamed, roads, walks, order, False)  # learns the model, which the others load
        ours, peer = (measure(streamed, roads, walks, order, which) for which in (False, True))
        show(
            f"Streaming, order {order}: {ours.result[0]:,} places, {ours.result[1]:,} states, one core",
            ("", "reports a second of CPU time", "peak memory"),
            [
                (name, f"{took.result[2]:,.0f}", f"{took.peak_mb:,.0f} MB")
                for name, took in ((f"Tracker, {STREAMED} vehicles", ours), ("dense NumPy, one vehicle", peer))
            ],
        )
        return
    assert walks is not None
    if "--traces" in options:
        everywhere(roads, walks, options["--traces"])
        return
    if "--city" in options and not Path(walks).exists():
        write_true_walks(options["--city"], roads, walks)
    known = load(roads, walks, int(options["--trips"]) if "--trips" in options else None)
    by = ["speed", "region"] if len(known.training) >= ENOUGH_FOR_REGIONS else ["speed"]
    blankets = {f"order by blanket found by {' and '.join(by)}": discovered(known, roads, by)}
    if "--city" in options:
        blankets["order by true blanket"] = true_lengths(known, options["--city"])
    report(known, blankets, (2.0, 4.0) if "--quick" in arguments else (2.0, 4.0, 8.0))


if __name__ == "__main__":
    main(sys.argv[1:])
