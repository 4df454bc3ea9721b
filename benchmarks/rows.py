"""The optimiser on few outputs and many rows, the paper's shape; run `python -m benchmarks.rows [--full] [CASE ...]`.

Places are nodes of Porto's road network at least 250 m apart (../shared/data; without it, random points). A row is one
of the 40 central places, a place near it before, and one near that before (which counts half); the loss is the distance
from where the vehicle is heading to the place that is reported; ε = 2 per km for all pairs. "porto" is the whole
municipality without history, every place a row and an output. The gap asked for is 1 %; it is proven for the mechanism
after exact repair and verification. The peer is HiGHS's interior-point method on the plain linear program, where that
is small enough. "before" is what version 0.2 took on the same problem, as it was measured then.
"""

from __future__ import annotations

import argparse
import csv
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._measure import machine, measure, show
from geoblanket._arrays import Floats

PORTO = Path(__file__).parents[2] / "shared" / "data" / "porto" / "nodes.csv"
SPACING_KM = 0.25
GAP = 0.01
LIMIT_S = 600.0


@dataclass(frozen=True)
class Case:
    """How many places are now, near them before, and near those before; what version 0.2 took."""

    now: int
    past: int
    before_that: int
    before: str = ""
    peer: bool = False
    full: bool = False


CASES = {
    "rows30": Case(6, 5, 1, peer=True),
    "rows400": Case(40, 10, 1, "0.85 % in 6.5 CPU s"),
    "rows960": Case(40, 6, 4, "0.81 % in 43 CPU s", full=True),
    "rows3200": Case(40, 10, 8, "4.1 % in 263 CPU s", full=True),
    "porto": Case(0, 0, 0, full=True),
}


def places() -> Floats:
    """Return places in kilometres, at least `SPACING_KM` apart."""
    rng = np.random.default_rng(0)
    if PORTO.exists():
        with PORTO.open() as file:
            degrees = np.array([(float(node["x"]), float(node["y"])) for node in csv.DictReader(file)])
        centre = degrees.mean(axis=0)
        points = (degrees - centre) * 111.195 * np.array([np.cos(np.radians(centre[1])), 1.0])
    else:
        points = rng.uniform(0.0, 6.0, (5000, 2))
    kept: list[int] = []
    for point in rng.permutation(len(points)):
        if not kept or np.linalg.norm(points[kept] - points[point], axis=1).min() > SPACING_KM:
            kept.append(int(point))
    chosen: Floats = points[kept]
    return chosen


def make_problem(key: str) -> Any:
    """Return the problem of a case."""
    from geoblanket.mechanism.problem import Problem

    case, points = CASES[key], places()
    if not case.now:
        distance = between(points, points)
        prior = np.random.default_rng(1).gamma(1.0, 1.0, len(points))
        return Problem(loss=distance, prior=prior / prior.sum(), distance_km=distance, epsilon=2.0, eta_km=np.inf)
    near = np.argsort(between(points, points), axis=1, kind="stable")
    central = np.argsort(np.linalg.norm(points - points.mean(axis=0), axis=1), kind="stable")[: case.now]
    histories = [
        (now, one, two) for now in central for one in near[now, : case.past] for two in near[one, : case.before_that]
    ]
    now, one, two = np.moveaxis(points[np.array(histories)], 1, 0)
    weight = 0.5 if case.before_that > 1 else 0.0
    heading = now + 0.7 * (now - one) + 0.2 * (one - two)
    prior = np.exp(-np.linalg.norm(now - one, axis=1) / 0.4)
    return Problem(
        loss=between(heading, points[central]),
        prior=prior / prior.sum(),
        distance_km=between(now, now) + between(one, one) + weight * between(two, two),
        epsilon=2.0,
        eta_km=np.inf,
    )


def between(one: Floats, other: Floats) -> Floats:
    """Return the distances between two sets of points in the plane."""
    distances: Floats = np.linalg.norm(one[:, None] - other[None, :], axis=2)
    return distances


def solve(key: str, method: str) -> tuple[Any, float, str]:
    """Optimise a case; return the result's figures, processor seconds of all threads, and the size."""
    from geoblanket.mechanism import optimise

    problem = make_problem(key)
    start = time.process_time()
    result = optimise(problem, gap=GAP, time_limit_s=LIMIT_S, method=method)  # type: ignore[arg-type] # a literal
    figures = result.loss, result.gap, result.seconds
    return figures, time.process_time() - start, f"{problem.row_count:,} × {problem.output_count:,}"


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the large cases too: about half an hour")
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], help="only these")
    arguments = parser.parse_args()
    lines = []
    for key, case in CASES.items():
        if key not in (arguments.cases or [name for name, one in CASES.items() if arguments.full or not one.full]):
            continue
        if key == "porto" and not PORTO.exists():
            print("porto: skipped, as ../shared/data/porto/nodes.csv is absent", flush=True)
            continue
        ran = measure(solve, key, "structured")
        (loss, gap, seconds), processor, size = ran.result
        compared = ""
        if case.peer:
            other = measure(solve, key, "highs").result[1]
            compared = f"{other:.1f} CPU s, {other / processor:.0f}×"
        found = f"{loss:.4f}", f"{gap:.2%}", f"{processor:.1f} s", f"{seconds:.1f} s", f"{ran.peak_mb:,.0f} MB"
        lines.append((key, size, *found, case.before, compared))
        print(lines[-1], flush=True)
    header = ("problem", "rows × outputs", "loss", "gap", "CPU", "wall", "peak", "before", "HiGHS")
    show(f"Few outputs, many rows, on {machine()}", header, lines)


if __name__ == "__main__":
    main()
