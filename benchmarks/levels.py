"""How often each test of conditional independence rejects: true hypotheses (its level) and false ones (its power).

Run `python -m benchmarks.levels`, or with `--full` for the table of docs/benchmarks.md (an hour on two cores). Windows
come from processes of known Markov order m or m + 1 (`geoblanket.blanket.processes`), and the hypothesis is that given
the last m locations, the one before does not matter: true for order m, false for order m + 1.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import Literal, NamedTuple

from benchmarks._measure import show

ALPHA = 0.05
FIELDS: tuple[Literal["smooth", "rough"], ...] = ("smooth", "rough")
NOISES: tuple[Literal["gaussian", "heavy"], ...] = ("gaussian", "heavy")
BATCH = 25

QUICK = (("analytic", 200, 50), ("analytic", 500, 50), ("scetbon", 200, 25))
FULL = (
    ("analytic", 200, 500),
    ("analytic", 500, 500),
    ("analytic", 1000, 500),
    ("analytic", 2000, 500),
    ("scetbon", 200, 100),
    ("scetbon", 500, 100),
)
"""Test, samples and repetitions."""


class Setting(NamedTuple):
    """Which windows are tested by which test."""

    test: str
    samples: int
    m: int
    field: Literal["smooth", "rough"]
    noise: Literal["gaussian", "heavy"]
    order: int


def rejections(setting: Setting, seeds: range) -> int:
    """Return how many of the seeded samples reject the hypothesis of order m."""
    from threadpoolctl import threadpool_limits

    from geoblanket.blanket.hypotheses import lagged
    from geoblanket.blanket.independence import find_test
    from geoblanket.blanket.processes import simulate_windows

    run, count, m = find_test(setting.test), 0, setting.m
    with threadpool_limits(1):
        for seed in seeds:
            # The same seed gives every test the same vehicles.
            windows = simulate_windows(
                setting.order, setting.samples, field=setting.field, noise=setting.noise, length=m + 2, seed=seed
            )
            count += run(*lagged(windows, m), seed=seed).p_value <= ALPHA
    return count


def rates(test: str, samples: int, m: int, repetitions: int) -> tuple[str, ...]:
    """Return a row of the table: level and power in each kind of process."""
    from geoblanket._processes import map_in_order

    settings = [Setting(test, samples, m, *kind, m + more) for kind in product(FIELDS, NOISES) for more in (0, 1)]
    batches = [range(start, min(start + BATCH, repetitions)) for start in range(0, repetitions, BATCH)]
    counts = list(map_in_order(rejections, product(settings, batches), workers=2))
    rate = [sum(counts[start : start + len(batches)]) / repetitions for start in range(0, len(counts), len(batches))]
    cells = (f"{level:.3f} | {power:.3f}" for level, power in zip(rate[::2], rate[1::2], strict=True))
    return (test, f"{samples:,}", str(m), str(2 * m), str(repetitions), *cells)


def main() -> None:
    """Measure every setting and print the table."""
    plan = FULL if "--full" in sys.argv else QUICK
    table = [rates(test, samples, m, repetitions) for test, samples, repetitions in plan for m in (1, 2, 3)]
    kinds = (f"{field}, {noise}" for field, noise in product(FIELDS, NOISES))
    header = ("", "samples", "m", "columns of z", "repetitions", *kinds)
    show(f"Rejected at {ALPHA}: level | power", header, table)


if __name__ == "__main__":
    main()
