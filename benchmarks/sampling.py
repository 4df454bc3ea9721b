"""Exact draws with the operating system's randomness, against NumPy's pseudo-random ones.

Run `python -m benchmarks.sampling`. Times leave imports and set-up out; each line is a process of its own.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks._measure import measure, show
from geoblanket._arrays import Ints

OUTPUTS = 400
DRAWS = 10_000_000
ONE_BY_ONE = 50_000


def weights(rows: int) -> Ints:
    """Return random rows of weights that sum to 2^62."""
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(OUTPUTS), rows)
    table: Ints = np.floor(shares * 2**62).astype(np.int64)
    table[:, 0] += 2**62 - table.sum(axis=1)
    return table


def ours(rows: int, draws: int) -> float:
    """Return the seconds of exact draws, many at once."""
    from geoblanket.mechanism.sampling import draw_many

    table, asked = weights(rows), np.random.default_rng(1).integers(0, rows, draws)
    start = time.perf_counter()
    draw_many(table, asked)
    return time.perf_counter() - start


def numpy_search(rows: int, draws: int) -> float:
    """Return the seconds of NumPy's floats in cumulative probabilities: not exact, not secret."""
    table, rng = weights(rows) / 2**62, np.random.default_rng(1)
    asked = rng.integers(0, rows, draws)
    start = time.perf_counter()
    cumulative = np.cumsum(table, axis=1) + np.arange(rows)[:, None]
    np.searchsorted(cumulative.ravel(), rng.random(draws) + asked, side="right")
    return time.perf_counter() - start


def numpy_choice(rows: int, draws: int) -> float:
    """Return the seconds of `Generator.choice`, one call for each row; its draws are left sorted by row."""
    table, rng = weights(rows) / 2**62, np.random.default_rng(1)
    table /= table.sum(axis=1, keepdims=True)
    counts = np.bincount(rng.integers(0, rows, draws), minlength=rows)
    start = time.perf_counter()
    for row, count in enumerate(counts):
        rng.choice(OUTPUTS, size=count, p=table[row])
    return time.perf_counter() - start


def ours_one_by_one(rows: int, draws: int) -> float:
    """Return the seconds of exact draws, one call for each."""
    from geoblanket.mechanism.sampling import draw

    table = weights(rows)
    start = time.perf_counter()
    for index in range(draws):
        draw(table[index % rows])
    return time.perf_counter() - start


def choice_one_by_one(rows: int, draws: int) -> float:
    """Return the seconds of `Generator.choice`, one call for each draw."""
    table, rng = weights(rows) / 2**62, np.random.default_rng(1)
    table /= table.sum(axis=1, keepdims=True)
    start = time.perf_counter()
    for index in range(draws):
        rng.choice(OUTPUTS, p=table[index % rows])
    return time.perf_counter() - start


def main() -> None:
    """Measure everything and print the table."""
    table = []
    for what, job, rows, draws in (
        ("many from 1 row", ours, 1, DRAWS),
        ("  NumPy searchsorted, floats", numpy_search, 1, DRAWS),
        ("  NumPy Generator.choice, floats", numpy_choice, 1, DRAWS),
        ("many from 1,000 rows", ours, 1000, DRAWS),
        ("  NumPy searchsorted, floats", numpy_search, 1000, DRAWS),
        ("  NumPy Generator.choice, floats", numpy_choice, 1000, DRAWS),
        ("one by one", ours_one_by_one, 1000, ONE_BY_ONE),
        ("  NumPy Generator.choice, floats", choice_one_by_one, 1000, ONE_BY_ONE),
    ):
        measured = measure(job, rows, draws)
        rate = f"{draws / measured.result / 1e6:,.2f}"
        table.append((what, f"{draws:,}", f"{measured.result:.2f}", rate, f"{measured.peak_mb:,.0f}"))
    show(f"Draws from rows of {OUTPUTS} outputs", ("", "draws", "seconds", "million/s", "peak MB"), table)


if __name__ == "__main__":
    main()
