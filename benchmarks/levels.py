"""How often each test of conditional independence rejects: true hypotheses (its level) and false ones (its power).

Run `python -m benchmarks.levels`, or with `--full` for the table of docs/benchmarks.md (half an hour on two cores; with
`--journal FILE` it can be interrupted, and goes on where it was). Windows come from processes of known Markov order m
or m + 1 (`geoblanket.blanket.processes`), and the hypothesis is that given the last m locations, the one before does
not matter: true for order m, false for order m + 1.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

from benchmarks._measure import show

ALPHA = 0.05
FIELDS: tuple[Literal["smooth", "rough"], ...] = ("smooth", "rough")
NOISES: tuple[Literal["gaussian", "heavy"], ...] = ("gaussian", "heavy")
BATCH = 25


class Line(NamedTuple):
    """Lines of the table: a test at some number of samples, for each m, and how often true and false hypotheses."""

    test: str
    samples: int
    true: int
    false: int


QUICK = (Line("analytic", 200, 50, 50), Line("analytic", 500, 50, 50), Line("scetbon", 200, 25, 25))
FULL = (
    Line("analytic", 200, 500, 200),
    Line("analytic", 500, 500, 200),
    Line("analytic", 1000, 500, 100),
    Line("analytic", 2000, 500, 50),
    Line("scetbon", 200, 50, 50),
    Line("scetbon", 500, 25, 25),
)


class Setting(NamedTuple):
    """Which windows are tested by which test."""

    test: str
    samples: int
    m: int
    field: Literal["smooth", "rough"]
    noise: Literal["gaussian", "heavy"]
    order: int


def rejections(setting: Setting, first: int, last: int) -> int:
    """Return how many samples, seeded from first to last - 1, reject the hypothesis of order m."""
    from threadpoolctl import threadpool_limits

    from geoblanket.blanket.hypotheses import lagged
    from geoblanket.blanket.independence import find_test
    from geoblanket.blanket.processes import simulate_windows

    run, count, m = find_test(setting.test), 0, setting.m
    with threadpool_limits(1):
        for seed in range(first, last):
            # The same seed gives every test the same vehicles.
            windows = simulate_windows(
                setting.order, setting.samples, field=setting.field, noise=setting.noise, length=m + 2, seed=seed
            )
            count += run(*lagged(windows, m), seed=seed).p_value <= ALPHA
    return count


Task = tuple[Setting, int, int]


def tasks(line: Line) -> list[Task]:
    """Return a setting and the range of its seeds, for all batches of a line."""
    return [
        (Setting(line.test, line.samples, m, field, noise, m + more), first, min(first + BATCH, repetitions))
        for m, field, noise in product((1, 2, 3), FIELDS, NOISES)
        for more, repetitions in enumerate((line.true, line.false))
        for first in range(0, repetitions, BATCH)
    ]


def counted(todo: list[Task], journal: Path | None) -> Counter[Setting]:
    """Return the rejections in each setting; batches that the journal knows are not run again."""
    from geoblanket._processes import map_in_order

    known = journal.read_text().splitlines() if journal and journal.exists() else []
    done = {(Setting(*setting), first, last): count for setting, first, last, count in map(json.loads, known)}
    missing = [task for task in todo if task not in done]
    for task, count in zip(missing, map_in_order(rejections, missing, workers=2), strict=True):
        done[task] = count
        if journal:
            with journal.open("a") as file:
                file.write(json.dumps([*task, count]) + "\n")
    total = Counter[Setting]()
    for task in todo:
        total[task[0]] += done[task]
    return total


def rows(line: Line, count: Counter[Setting]) -> list[tuple[str, ...]]:
    """Return the rows of the table: level and power in each kind of process."""
    table = []
    for m in (1, 2, 3):
        cells = []
        for field, noise in product(FIELDS, NOISES):
            true, false = (Setting(line.test, line.samples, m, field, noise, m + more) for more in (0, 1))
            cells.append(f"{count[true] / line.true:.3f} | {count[false] / line.false:.3f}")
        table.append((line.test, f"{line.samples:,}", str(m), f"{line.true} | {line.false}", *cells))
    return table


def main() -> None:
    """Measure every setting and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="all settings, with as many repetitions as in the docs")
    parser.add_argument("--test", choices=("analytic", "scetbon"), help="only the lines of this test")
    parser.add_argument("--samples", type=int, help="only the lines with as many samples")
    parser.add_argument("--journal", type=Path, help="keep what has been counted here; delete it if a test changes")
    options = parser.parse_args()
    plan = [
        line
        for line in (FULL if options.full else QUICK)
        if options.test in (None, line.test) and options.samples in (None, line.samples)
    ]
    table = [row for line in plan for row in rows(line, counted(tasks(line), options.journal))]
    kinds = (f"{field}, {noise}" for field, noise in product(FIELDS, NOISES))
    show(f"Rejected at {ALPHA}: level | power", ("", "samples", "m", "repetitions", *kinds), table)


if __name__ == "__main__":
    main()
