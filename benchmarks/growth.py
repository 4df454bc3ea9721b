"""How the optimiser's time grows with rows, outputs and ε·diameter; run `python -m benchmarks.growth [--picture FILE]`.

Places are drawn evenly in a square of 3 km. A row is a place with one place of the past (which counts half), and the
loss is the distance from where the vehicle is heading. Each figure is one run to a gap of 1 % in a process of its own.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks._measure import measure, show
from geoblanket._arrays import Floats

ROWS = (50, 100, 200, 400)
OUTPUTS = (25, 50, 100, 200)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
SIDE_KM = 3.0
GAP = 0.01
LIMIT_S = 120.0


def solve(rows: int, outputs: int, epsilon: float) -> tuple[float, float, int, float]:
    """Optimise one problem; return seconds, gap, outputs used and ε times the largest distance."""
    from geoblanket.mechanism import optimise
    from geoblanket.mechanism.problem import Problem

    rng = np.random.default_rng([rows, outputs])
    here = rng.uniform(0.0, SIDE_KM, (rows, 2))
    before = here + rng.normal(0.0, 0.3, (rows, 2))
    reported = rng.uniform(0.0, SIDE_KM, (outputs, 2))
    distance_km = between(here, here) + 0.5 * between(before, before)
    heading = here + 0.5 * (here - before)  # the service cares where the vehicle is going
    loss = between(heading, reported)
    problem = Problem(loss=loss, prior=rng.dirichlet(np.full(rows, 5.0)), distance_km=distance_km, epsilon=epsilon)
    result = optimise(problem, gap=GAP, time_limit_s=LIMIT_S)
    return result.seconds, result.gap, result.outputs_used, float(epsilon * distance_km.max())


def between(one: Floats, other: Floats) -> Floats:
    """Return the distances between two sets of points in the plane."""
    distances: Floats = np.linalg.norm(one[:, None] - other[None, :], axis=2)
    return distances


def main() -> None:
    """Print the figures, and draw them if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--full", action="store_true", help="nothing more to do here; taken for `python -m benchmarks`")
    options = parser.parse_args()
    series: dict[str, list[tuple[float, tuple[int, int, float]]]] = {
        "rows S (100 outputs, ε = 1/km)": [(rows, (rows, 100, 1.0)) for rows in ROWS],
        "outputs K (200 rows, ε = 1/km)": [(outputs, (200, outputs, 1.0)) for outputs in OUTPUTS],
        "ε per km (200 rows, 100 outputs)": [(epsilon, (200, 100, epsilon)) for epsilon in EPSILONS],
    }
    figures = {title: [(x, measure(solve, *case)) for x, case in cases] for title, cases in series.items()}
    for title, runs in figures.items():
        show(
            f"Time to a gap of 1 %, by {title}",
            ("", "seconds", "gap", "outputs used", "ε · largest distance", "peak MB"),
            [
                (
                    f"{x:g}",
                    f"{run.result[0]:.2f}",
                    f"{run.result[1]:.2%}",
                    f"{run.result[2]}",
                    f"{run.result[3]:.1f}",
                    f"{run.peak_mb:.0f}",
                )
                for x, run in runs
            ],
        )
    if options.picture is not None:
        draw({title: [(x, run.result[0]) for x, run in runs] for title, runs in figures.items()}, options.picture)


def draw(series: dict[str, list[tuple[float, float]]], path: Path) -> None:
    """Draw seconds against each quantity, on logarithmic axes."""
    from geoblanket._picture import new_figure, save_figure

    figure = new_figure(width_in=10, height_in=3.2)
    for number, (title, points) in enumerate(series.items()):
        axes = figure.add_subplot(1, 3, number + 1)
        x, seconds = zip(*points, strict=True)
        axes.loglog(x, seconds, "o-", color="#2f4b9b")
        axes.set_xticks(x, [f"{value:g}" for value in x])
        axes.set_xlabel(title, fontsize=9)
        axes.minorticks_off()
        axes.grid(visible=True, color="#e4e6ea")
        axes.set_ylim(0.01, 200)
        if number == 0:
            axes.set_ylabel("seconds to a gap of 1 %", fontsize=9)
    save_figure(figure, path, dpi=100)


if __name__ == "__main__":
    main()
