"""The exact verifier and the repair, against Python's integers on every inequality.

Run `python -m benchmarks.verification`. The peer does a slice of the work, and its time for all of it is worked out
from that. Times leave imports and the making of the mechanism out; each line is a process of its own.
"""

from __future__ import annotations

import time
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


def main() -> None:
    """Measure all sizes and print the table."""
    show(
        "Exact verification and repair",
        ("", "seconds", "ns per inequality", "peak MB", ""),
        [line for size in SIZES for line in lines(*size)],
    )


if __name__ == "__main__":
    main()
