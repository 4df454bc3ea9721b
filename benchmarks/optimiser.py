"""The optimiser against HiGHS on the whole linear program; run `python -m benchmarks.optimiser [--full] [CASE ...]`.

Every line is a process of its own. Problems are synthetic: road cities whose rows are (place, place before) or places
alone, and square grids. "gap" is proven, over all outputs and all pairs, for the mechanism after exact repair and
verification. The peer is HiGHS's interior-point method (without crossover) on the plain linear program, stopped after
`PEER_LIMIT_S`: its time is then a lower bound, said by ">". Without `--full`, only cases of seconds are run.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._measure import machine, measure, show
from geoblanket._arrays import Floats

PEER_LIMIT_S = 300.0


@dataclass(frozen=True)
class Case:
    """A problem and what is asked of it."""

    name: str
    kind: str
    size: int
    epsilon: float
    gap: float
    limit_s: float
    spacing_km: float = 0.2
    peer: bool = False
    full: bool = False


CASES = {
    "paper": Case("the paper's size", "places", 50, 1.0, 1e-6, 60.0, peer=True),
    "context": Case("context, small", "context", 40, 0.5, 1e-6, 60.0, peer=True),
    "grid10": Case("10×10 grid", "grid", 10, 1.0, 1e-3, 60.0, 0.5, peer=True),
    "context100": Case("context, 100 places", "context", 100, 0.5, 1e-3, 60.0),
    "context100far": Case("the same, ε·d 4 times as large", "context", 100, 1.0, 1e-3, 120.0, 0.4, full=True),
    "context300": Case("context, 300 places", "context", 300, 0.5, 1e-2, 180.0, full=True),
    "places1000": Case("1,000 places", "places", 1000, 0.5, 1e-2, 300.0, full=True),
    "grid20": Case("20×20 grid", "grid", 20, 1.0, 1e-2, 300.0, 0.5, full=True),
    "context1000": Case("context, 1,000 places", "context", 1000, 0.5, 1e-2, 560.0, full=True),
}


def make_problem(case: Case) -> Any:
    """Return the problem of a case."""
    from geoblanket.mechanism.problem import Problem

    if case.kind == "grid":
        axis = np.arange(case.size) * case.spacing_km
        points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        distance = np.linalg.norm(points[:, None] - points[None], axis=2)
        prior = np.full(len(points), 1.0 / len(points))
        return Problem(loss=distance, prior=prior, distance_km=distance, epsilon=case.epsilon)
    loss, prior, distance = _city(case.size, spacing_km=case.spacing_km, context=case.kind == "context")
    return Problem(loss=loss, prior=prior, distance_km=distance, epsilon=case.epsilon)


def _city(places: int, *, spacing_km: float, context: bool, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Return loss, prior and row distances of the central places of a road city with some streets missing or one-way.

    The loss of an output is the mean error of the road distance to a random task; with context, a row is a place and
    the one before it, weighs both, and costs what the next place would.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components, dijkstra

    rng = np.random.default_rng(seed)
    side = int(np.ceil(1.3 * np.sqrt(places))) + 2
    across, down = np.meshgrid(np.arange(side), np.arange(side))
    points = np.stack([across.ravel(), down.ravel()], axis=1) * spacing_km
    points = points + rng.normal(0.0, 0.15 * spacing_km, points.shape)
    number = np.arange(side * side).reshape(side, side)
    one = np.concatenate([number[:, :-1].ravel(), number[:-1].ravel()])
    other = np.concatenate([number[:, 1:].ravel(), number[1:].ravel()])
    there = rng.random(len(one)) < 0.9
    one, other = one[there], other[there]
    back = rng.random(len(one)) < 0.7
    tail, head = np.concatenate([one, other[back]]), np.concatenate([other, one[back]])
    length = np.linalg.norm(points[tail] - points[head], axis=1) * rng.uniform(1.0, 1.3, len(tail))
    roads = csr_array((length, (tail, head)), shape=(side * side, side * side))
    _, label = connected_components(roads, connection="strong")
    joined = np.flatnonzero(label == np.bincount(label).argmax())
    points, roads = points[joined], roads[joined][:, joined]
    chosen = np.argsort(np.linalg.norm(points - points.mean(axis=0), axis=1), kind="stable")[:places]
    road = dijkstra(roads)
    task = rng.dirichlet(np.ones(len(points)))
    error = np.stack([np.abs(road[place] - road[chosen]) @ task for place in range(len(points))])
    popularity = rng.gamma(2.0, 1.0, len(points))
    if not context:
        loss, weight = error[chosen], popularity[chosen]
        now = before = chosen
    else:
        incoming = roads.T.tocsr()
        pairs = [
            (place, back) for place in chosen for back in incoming.indices[slice(*incoming.indptr[[place, place + 1]])]
        ]
        now, before = np.array(pairs).T
        loss = np.stack([_next_place_error(roads, points, error, *pair) for pair in pairs])
        weight = popularity[now] * popularity[before]
    distance = np.linalg.norm(points[now][:, None] - points[now], axis=2)
    if context:
        distance = distance + 0.5 * np.linalg.norm(points[before][:, None] - points[before], axis=2)
    return loss, weight / weight.sum(), distance


def _next_place_error(roads: Any, points: Floats, error: Floats, now: int, before: int) -> Floats:
    onward = roads.indices[roads.indptr[now] : roads.indptr[now + 1]]
    ahead = points[now] - points[before]
    turn = points[onward] - points[now]
    straight = turn @ ahead / (np.linalg.norm(turn, axis=1) * np.linalg.norm(ahead) + 1e-9)
    chance = np.exp(2.0 * straight)
    mean: Floats = chance @ error[onward] / chance.sum()
    return mean


def ours(key: str) -> dict[str, Any]:
    """Run our optimiser on a case."""
    from geoblanket.mechanism import optimise

    case = CASES[key]
    problem = make_problem(case)
    start = time.perf_counter()
    result = optimise(problem, gap=case.gap, time_limit_s=case.limit_s)
    return {
        "seconds": time.perf_counter() - start,
        "rows": problem.row_count,
        "outputs": problem.output_count,
        "exponent": float(problem.log_bound.max()),
        "loss": result.loss,
        "gap": result.gap,
        "used": result.outputs_used,
        "outcome": result.outcome.name,
    }


def peer(key: str) -> tuple[float, bool]:
    """Run HiGHS's interior-point method on the plain linear program; return its seconds and whether it finished."""
    import highspy

    problem = make_problem(CASES[key])
    rows, outputs = problem.loss.shape
    low, high = np.nonzero(problem.constrained)
    ratio = np.minimum(np.exp(problem.log_bound[low, high]), 1e9)
    first = rows * np.arange(outputs)[:, None]
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = rows * outputs, len(low) * outputs + rows
    program.col_cost_ = (problem.prior[:, None] * problem.loss).T.ravel()
    program.col_lower_, program.col_upper_ = np.zeros(rows * outputs), np.ones(rows * outputs)
    program.row_lower_ = np.concatenate([np.zeros(len(low) * outputs), np.ones(rows)])
    program.row_upper_ = np.concatenate([np.full(len(low) * outputs, np.inf), np.ones(rows)])
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.concatenate(
        [2 * np.arange(len(low) * outputs), 2 * len(low) * outputs + outputs * np.arange(rows + 1)]
    )
    program.a_matrix_.index_ = np.concatenate(
        [
            np.stack([first + high, first + low], axis=-1).ravel(),
            (np.arange(rows)[:, None] + rows * np.arange(outputs)).ravel(),
        ]
    )
    program.a_matrix_.value_ = np.concatenate(
        [np.tile(np.stack([ratio, -np.ones(len(low))], axis=-1).ravel(), outputs), np.ones(rows * outputs)]
    )
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("solver", "ipm")
    solver.setOptionValue("run_crossover", "off")
    solver.setOptionValue("time_limit", PEER_LIMIT_S)
    start = time.perf_counter()
    solver.passModel(program)
    solver.run()
    seconds = time.perf_counter() - start
    return seconds, solver.getModelStatus() == highspy.HighsModelStatus.kOptimal


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
        ran = measure(ours, key)
        found = ran.result
        compared = ""
        if case.peer:
            seconds, finished = measure(peer, key).result
            sign = "" if finished else "> "
            compared = f"{sign}{seconds:.1f} s, {sign}{seconds / found['seconds']:.0f}×"
        lines.append(
            (
                case.name,
                f"{found['rows']:,} × {found['outputs']:,}",
                f"{found['exponent']:.1f}",
                f"{found['loss']:.4f}",
                f"{found['gap']:.1e} ({case.gap:.0e})",
                f"{found['used']}",
                f"{found['seconds']:.2f} s",
                f"{ran.peak_mb:,.0f} MB",
                compared,
            )
        )
        print(lines[-1], found["outcome"], flush=True)
    header = ("problem", "rows × outputs", "ε·d", "loss", "gap (asked)", "used", "time", "peak", "HiGHS IPM")
    show(f"Optimal mechanisms, on {machine()}", header, lines)


if __name__ == "__main__":
    main()
