"""The exact verifier and the repair, against Python's integers; row distances over all histories, against SciPy.

Run `python -m benchmarks.verification`. The peers do a slice of the work, and their time for all of it is worked out
from that. Times leave imports and the making of the mechanisms out; each line is a process of its own.

Histories are those of a made-up town of 2,025 places in 20 zones, with two earlier places. The peer measures from each
cell of a lag to all places by SciPy's k-d tree, and from there to the other cells, in floats.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks._measure import Measured, measure, show
from geoblanket._arrays import Floats
from geoblanket.mechanism.problem import Problem

SIZES = ((100, 100), (400, 400), (1000, 1000), (3000, 60))
SLICE = 300_000
EPSILON = 1.0


def made(rows: int, outputs: int) -> tuple[Problem, Floats]:
    """Return a city of 5 km and an exponential mechanism for it."""
    rng = np.random.default_rng(0)
    places, targets = rng.random((rows, 2)) * 5, rng.random((outputs, 2)) * 5
    loss = np.linalg.norm(places[:, None] - targets, axis=2)
    distance = np.linalg.norm(places[:, None] - places, axis=2)
    problem = Problem(loss=loss, prior=np.full(rows, 1 / rows), distance_km=distance, epsilon=EPSILON)
    return problem, np.exp(-EPSILON / 2 * loss)


def repaired(rows: int, outputs: int) -> float:
    """Return the seconds of the repair."""
    from geoblanket.mechanism.repairer import repair

    problem, table = made(rows, outputs)
    start = time.perf_counter()
    repair(table, problem)
    return time.perf_counter() - start


def verified(rows: int, outputs: int) -> tuple[float, int, int]:
    """Return the seconds of the verifier, the inequalities, and those that integers had to decide."""
    from geoblanket.mechanism import verify
    from geoblanket.mechanism.repairer import repair

    problem, table = made(rows, outputs)
    weights = repair(table, problem).weights
    start = time.perf_counter()
    certificate = verify(
        weights, distance_mm=problem.distance_mm, epsilon_micro=problem.epsilon_micro, eta_mm=problem.eta_mm
    )
    return time.perf_counter() - start, certificate.checks, certificate.exact_checks


def by_integers(rows: int, outputs: int) -> float:
    """Return the seconds of plain Python for all inequalities, from a slice of them."""
    from geoblanket.mechanism.exponential_bounds import bounds_for
    from geoblanket.mechanism.repairer import repair

    problem, table = made(rows, outputs)
    weights, distance = repair(table, problem).weights.tolist(), problem.distance_mm.tolist()
    done = 0
    start = time.perf_counter()
    for row, own in enumerate(weights):
        for other, others in enumerate(weights):
            bound = bounds_for(problem.epsilon_micro).lower(distance[row][other])
            if any(weight << 96 > bound * other_weight for weight, other_weight in zip(own, others, strict=True)):
                raise RuntimeError("the mechanism is not private")
            done += outputs
            if done >= SLICE:
                return (time.perf_counter() - start) * rows * (rows - 1) * outputs / done
    return time.perf_counter() - start


def lines(rows: int, outputs: int) -> list[tuple[str, ...]]:
    """Measure one size; return its three lines."""
    ours, repairing, peer = (measure(job, rows, outputs) for job in (verified, repaired, by_integers))
    seconds, checks, exact = ours.result

    def line(what: str, measured: Measured, taken: Any, more: str) -> tuple[str, ...]:
        return what, f"{taken:,.2f}", f"{taken / checks * 1e9:,.2f}", f"{measured.peak_mb:,.0f}", more

    return [
        line(f"verify {rows} rows, {outputs} outputs", ours, seconds, f"{exact:,} of {checks:,} by integers"),
        line("  Python's integers, extrapolated", peer, peer.result, f"{peer.result / seconds:,.0f} × ours"),
        line("  repair", repairing, repairing.result, ""),
    ]


def opened(path: Path) -> float:
    """Return the processor's seconds of reading and verifying a bundle."""
    from geoblanket.mechanism import load_bundle

    start = time.process_time()
    load_bundle(path)
    return time.process_time() - start


def by_trees(path: Path) -> float:
    """Return the processor's seconds that SciPy's k-d trees need for row distances alone, from one zone."""
    from scipy.spatial import KDTree

    from geoblanket._geodesy import unit_vectors
    from geoblanket.mechanism import ZoneBundle, load_bundle
    from geoblanket.mechanism.history_verifier import PlacesOfCity, RuleTree

    bundle = load_bundle(path)
    if not isinstance(bundle, ZoneBundle):
        raise TypeError(f"{path} has no zones")
    vectors = unit_vectors(*(bundle.places_e7.T * 1e-7))
    city = PlacesOfCity(bundle.places_e7)
    zone = next(one for one in bundle if one.history_weights_micro)
    tree = RuleTree(zone.histories, zone.history_rows, city.count)
    start = time.process_time()
    for lag in tree.lags[1:]:
        nearest = [city.nearest_of(places) for places in lag.listed.values()]
        cells = [np.flatnonzero(of == number) for of in nearest for number in np.unique(of)]
        for cell in cells:
            to_places = np.asarray(KDTree(vectors[cell]).query(vectors)[0])
            for other in cells:
                to_places[other].min()
    return (time.process_time() - start) * sum(bool(one.history_weights_micro) for one in bundle)


def histories() -> list[tuple[str, ...]]:
    """Measure a whole bundle; return two lines."""
    from benchmarks.perturb import make_town

    with TemporaryDirectory() as name:
        measure(make_town, Path(name), 300_000)
        path = Path(name) / "town.bundle"
        ours, peer = measure(opened, path), measure(by_trees, path)
    more = f"{peer.result / ours.result:,.0f} × ours"
    return [
        ("open the bundle: everything", f"{ours.result:,.1f}", f"{ours.peak_mb:,.0f}", ""),
        ("  k-d trees, row distances alone, extrapolated", f"{peer.result:,.1f}", f"{peer.peak_mb:,.0f}", more),
    ]


def main() -> None:
    """Measure everything and print the tables."""
    show("All histories of 2,025 places in 20 zones", ("", "CPU seconds", "peak MB", ""), histories())
    show(
        "Exact verification and repair",
        ("", "seconds", "ns per inequality", "peak MB", ""),
        [line for size in SIZES for line in lines(*size)],
    )


if __name__ == "__main__":
    main()
