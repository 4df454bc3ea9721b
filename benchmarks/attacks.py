"""The attacks and the privacy measures: time and memory, against a plain loop and against hmmlearn.

Run `python -m benchmarks.attacks`. Vehicles move on a grid of places 400 m apart. The attacker sees 20 reports of each
of 2,000 vehicles. Where states are pairs of places the peers do a slice, and their time for all is worked out from
that. Times are those of the processor, on one thread, so that other work on the machine does not count; they leave
imports and the making of models out. Each line is a process of its own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks._measure import measure, show
from geoblanket._arrays import Floats, Ints, Positions
from geoblanket.mobility.histories import HistoryCounts
from geoblanket.roads.places import Places
from geoblanket.tracking.filtering import BeliefFilter, Sequences, smooth
from geoblanket.tracking.learning import model_of_counts
from geoblanket.tracking.motion_model import Singles
from geoblanket.tracking.observation import Reports

PITCH_M = 400.0
SEQUENCES = 2_000
REPORTS = 20
SIZES = ((40, 0), (100, 0), (40, 1), (100, 1))
PEER_WORK = 40_000_000
"""Entries of transition matrices that a peer gets at least once for each step."""
COMPARED = 10
EPSILON = 2.0


def made(place_count: int, memory: int) -> tuple[BeliefFilter, Floats, Ints]:
    """Return the filter, emissions of an exponential mechanism by state, and reports, shape (T, B)."""
    from geoblanket.lab.evaluate.tracking import place_distance_km

    places, walks = wandering(place_count)
    model = model_of_counts(places, counted(walks), None, order=1 + memory, interval_s=30.0, learned={})
    weight = np.exp(-EPSILON * place_distance_km(model))
    emissions = (weight / weight.sum(axis=1, keepdims=True))[model.present]
    reports = np.random.default_rng(1).integers(0, place_count, (REPORTS, SEQUENCES))
    return BeliefFilter(model, Emissions(emissions.astype(np.float32))), emissions, reports


@dataclass(frozen=True, eq=False)
class Emissions:
    """How probable reports are from each state: an `ObservationModel`."""

    table: Singles
    interval_s: float = 30.0

    @property
    def outputs(self) -> int:
        """How many there are."""
        return int(self.table.shape[1])

    def likelihood(self, reports: Reports) -> Singles:
        """Return how probable each report is from each state."""
        return self.table[:, reports.output]


def wandering(place_count: int) -> tuple[Places, Ints]:
    """Return places on a grid and 2,000 walks of 50 steps to near places."""
    from geoblanket._geodesy import local_degrees

    columns = int(np.ceil(np.sqrt(place_count)))
    x, y = (np.arange(place_count) % columns) * PITCH_M, (np.arange(place_count) // columns) * PITCH_M
    lat, lon = local_degrees(x, y, origin_lat=41.15, origin_lon=-8.62)
    places = Places(np.arange(place_count, dtype=np.int32), lat, lon, spacing_m=PITCH_M, roads_identity="made")
    near = np.argsort(np.hypot(x[:, None] - x, y[:, None] - y), axis=1)[:, :6]
    rng = np.random.default_rng(0)
    walks = np.empty((2_000, 50), np.int64)
    walks[:, 0] = rng.integers(0, place_count, len(walks))
    for step in range(1, walks.shape[1]):
        walks[:, step] = near[walks[:, step - 1], rng.integers(0, 6, len(walks))]
    return places, walks


def counted(walks: Ints) -> HistoryCounts:
    """Count the histories of walks with one earlier place."""
    windows = np.lib.stride_tricks.sliding_window_view(walks, 3, axis=1).reshape(-1, 3)
    rows, count = np.unique(windows[:, [1, 0, 2]], axis=0, return_counts=True)
    ones = np.ones(len(rows), np.uint8)
    return HistoryCounts(rows[:, :2].astype(np.int32), ones, 0 * ones, rows[:, 2].astype(np.int32), count)


def ours(place_count: int, memory: int) -> tuple[float, int, Floats]:
    """Return the seconds of all sequences, the states, and the posteriors of the first sequences."""
    beliefs, _, reports = made(place_count, memory)
    posteriors = np.empty((SEQUENCES * REPORTS, place_count), np.float32)

    def take(positions: Positions, smoothed: Singles) -> None:
        posteriors[positions] = beliefs.places(smoothed).T

    slots = np.arange(SEQUENCES * REPORTS)
    start = time.process_time()
    smooth(beliefs, Sequences(slots, reports.T.ravel(), slots[::REPORTS]), take)
    seconds = time.process_time() - start
    shown = posteriors.reshape(SEQUENCES, REPORTS, place_count).transpose(1, 2, 0)[:, :, :COMPARED]
    return seconds, len(beliefs.model), shown.astype(np.float64)


def transitions(beliefs: BeliefFilter) -> Floats:
    """Return the whole matrix, with the little chance of being anywhere."""
    identity = np.eye(len(beliefs.model), dtype=np.float32)
    return beliefs.predicted_back(identity, 1).astype(np.float64)


def slice_of(states: int) -> int:
    """Return how many sequences a peer does."""
    return max(COMPARED, min(SEQUENCES, PEER_WORK // states**2))


def by_a_loop(place_count: int, memory: int) -> tuple[float, int, Floats]:
    """Return the same of one sequence after the other, in NumPy, with the whole matrix."""
    beliefs, emissions, reports = made(place_count, memory)
    model, table = beliefs.model, transitions(beliefs)
    to_places = model.to_places.toarray()
    done = slice_of(len(model))
    posteriors = np.empty((REPORTS, place_count, done))
    start = time.process_time()
    for sequence in range(done):
        likelihood = emissions[:, reports[:, sequence]].T
        forward, backward = np.empty_like(likelihood), np.ones_like(likelihood)
        for step in range(REPORTS):
            now = (model.start if step == 0 else forward[step - 1] @ table) * likelihood[step]
            forward[step] = now / now.sum()
        for step in range(REPORTS - 2, -1, -1):
            later = table @ (likelihood[step + 1] * backward[step + 1])
            backward[step] = later / later.max()
        belief = (forward * backward) @ to_places.T
        posteriors[:, :, sequence] = belief / belief.sum(axis=1, keepdims=True)
    return (time.process_time() - start) * SEQUENCES / done, len(model), posteriors[:, :, :COMPARED]


def by_hmmlearn(place_count: int, memory: int) -> tuple[float, int, Floats]:
    """Return the same by hmmlearn, whose forward–backward is C++."""
    from hmmlearn.hmm import CategoricalHMM

    beliefs, emissions, reports = made(place_count, memory)
    model, table = beliefs.model, transitions(beliefs)
    peer = CategoricalHMM(n_components=len(model), n_features=place_count, implementation="scaling")
    start_chance = model.start.astype(np.float64)
    peer.startprob_, peer.emissionprob_ = start_chance / start_chance.sum(), emissions
    peer.transmat_ = table / table.sum(axis=1, keepdims=True)
    done = slice_of(len(model))
    start = time.process_time()
    states = peer.predict_proba(reports[:, :done].T.reshape(-1, 1), lengths=np.full(done, REPORTS))
    posteriors = (states @ model.to_places.T.toarray()).reshape(done, REPORTS, place_count).transpose(1, 2, 0)
    return (time.process_time() - start) * SEQUENCES / done, len(model), posteriors[:, :, :COMPARED]


def on_one_thread(job: Callable[..., Any], *arguments: Any) -> Any:
    """Run a job with one thread for linear algebra."""
    with threadpool_limits(1):
        return job(*arguments)


def tracking_lines(place_count: int, memory: int) -> list[tuple[str, ...]]:
    """Measure one size, and check that all agree."""
    mine = measure(on_one_thread, ours, place_count, memory)
    seconds, states, truth = mine.result
    name = f"{place_count} places, {states:,} states"
    lines: list[tuple[str, ...]] = [(name, "ours", f"{seconds:.2f}", "1", f"{mine.peak_mb:,.0f}", "")]
    jobs: dict[str, Callable[..., Any]] = {"loop over sequences": by_a_loop, "hmmlearn": by_hmmlearn}
    for peer, job in jobs.items():
        run = measure(on_one_thread, job, place_count, memory)
        taken, _, found = run.result
        apart = float(np.abs(found - truth).max())
        lines.append(("", peer, f"{taken:.2f}", f"{taken / seconds:.1f}", f"{run.peak_mb:,.0f}", f"{apart:.0e}"))
    return lines


def measured(what: str) -> float:
    """Return the seconds of one measure of a mechanism of 900 rows and 100 outputs."""
    from geoblanket.lab.evaluate import Cases, attack_report, posterior_leakage, worst_pair

    rng = np.random.default_rng(0)
    points, targets = rng.random((900, 2)) * 4, rng.random((100, 2)) * 4
    q = np.exp(-np.linalg.norm(points[:, None] - targets, axis=2))
    q /= q.sum(axis=1, keepdims=True)
    prior, apart = rng.dirichlet(np.ones(900)), np.linalg.norm(points[:, None] - points, axis=2)
    weights, distance_mm = (q * 2.0**62).astype(np.int64), (apart * 1e6).astype(np.int64)
    known = rng.integers(0, 200, 900)
    cases = Cases(np.arange(900), rng.integers(0, 100, 900), prior, known)
    between = np.linalg.norm(targets[:, None] - targets, axis=2)
    jobs: dict[str, Callable[[], object]] = {
        "effective ε": lambda: worst_pair(weights, distance_mm=distance_mm, eta_mm=5_000_000),
        "posterior leakage": lambda: posterior_leakage(q, prior, apart, eta_km=5.0),
        "attacker on one report": lambda: attack_report(q, cases, between),
    }
    start = time.process_time()
    jobs[what]()
    return time.process_time() - start


def main() -> None:
    """Measure everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="nothing more to do here; taken for `python -m benchmarks`")
    parser.parse_args()
    show(
        f"Forward–backward over {SEQUENCES:,} sequences of {REPORTS} reports",
        ("", "by", "CPU seconds", "× ours", "peak MB", "largest difference"),
        [line for size in SIZES for line in tracking_lines(*size)],
    )
    runs = {
        name: measure(on_one_thread, measured, name)
        for name in ("effective ε", "posterior leakage", "attacker on one report")
    }
    show(
        "Measures of a mechanism of 900 rows and 100 outputs",
        ("", "CPU seconds", "peak MB"),
        [(name, f"{run.result:.2f}", f"{run.peak_mb:,.0f}") for name, run in runs.items()],
    )


if __name__ == "__main__":
    main()
