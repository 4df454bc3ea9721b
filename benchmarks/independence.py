"""Seconds for one test of conditional independence, against causal-learn's KCI and RCIT.

Run `python -m benchmarks.independence`. All tests get the same windows of 1,000 vehicles, on one core, and each runs in
a process of its own; imports and one test to warm up are left out. Seconds are those of the processor, which on a quiet
machine are those of the clock: nothing here waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks._measure import measure, show

SAMPLES = 1_000
TESTS = 9
LARGEST_M = 3


def ours(name: str) -> list[float]:
    """Return the median seconds of a test of ours for each m."""
    from geoblanket.blanket.independence import find_test

    test = find_test(name)
    return _seconds(lambda x, y, z: test(x, y, z, seed=0))


def fixed_scetbon() -> list[float]:
    """Return the median seconds of the paper's test without optimised hyper-parameters."""
    from geoblanket.blanket.scetbon import scetbon_test

    return _seconds(lambda x, y, z: scetbon_test(x, y, z, seed=0, optimise=False))


def kci() -> list[float]:
    """Return the median seconds of causal-learn's KCI."""
    from causallearn.utils.KCI.KCI import KCI_CInd

    return _seconds(KCI_CInd().compute_pvalue)


def rcit() -> list[float]:
    """Return the median seconds of causal-learn's RCIT."""
    from causallearn.utils.RCIT.RCIT import RCIT

    return _seconds(RCIT().compute_pvalue)


def _seconds(test: Callable[..., object]) -> list[float]:
    import numpy as np
    from threadpoolctl import threadpool_limits

    from benchmarks.processes import simulate_windows
    from geoblanket.blanket.independence import lagged

    medians = []
    with threadpool_limits(1):
        for m in range(1, LARGEST_M + 1):
            taken = []
            for seed in range(TESTS + 1):
                # Each test gets its own copies: some peers work in place.
                sample = [np.array(part) for part in lagged(simulate_windows(m, SAMPLES, seed=seed), m)]
                start = time.process_time()
                test(*sample)
                taken.append(time.process_time() - start)
            medians.append(float(np.median(taken[1:])))
    return medians


def main() -> None:
    """Measure every test and print the table."""
    jobs = {
        "analytic": measure(ours, "analytic"),
        "scetbon, optimised": measure(ours, "scetbon"),
        "scetbon, fixed": measure(fixed_scetbon),
        "causal-learn KCI": measure(kci),
        "causal-learn RCIT": measure(rcit),
    }
    first = jobs["analytic"].result
    rows = [
        (
            name,
            *(f"{seconds:.3f}" for seconds in job.result),
            *(f"{seconds / reference:.1f} ×" for seconds, reference in zip(job.result, first, strict=True)),
            f"{job.peak_mb:,.0f}",
        )
        for name, job in jobs.items()
    ]
    given = [f"m = {m}" for m in range(1, LARGEST_M + 1)]
    header = ("seconds per test", *given, *(f"against ours, {part}" for part in given), "peak MB")
    show(f"Conditional independence, {SAMPLES:,} samples, one core", header, rows)


if __name__ == "__main__":
    main()
