"""How often each test of conditional independence rejects: true hypotheses (its level) and false ones (its power).

Run `python -m benchmarks.levels` for families of movement (`benchmarks.families`), and with `--kinds fields`
for the fields of `benchmarks.processes`; with `--full` for the tables of docs/blanket.md and docs/benchmarks.md
(with `--journal FILE` it can be interrupted, and goes on where it was). Windows come from processes of known Markov
order m or m + 1, and the hypothesis is that given the last m locations, the one before does not matter: true for order
m, false for order m + 1. A test may refuse to decide; refusals are counted apart.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from benchmarks._measure import show
from geoblanket._arrays import Floats

if TYPE_CHECKING:
    from geoblanket._arrays import Floats

ALPHA = 0.05
Kinds = Literal["families", "fields"]
FIELDS = {f"{field}, {noise}": (field, noise) for field, noise in product(("smooth", "rough"), ("gaussian", "heavy"))}
FAMILIES = ("interacting", "compact", "roads", "regimes", "speeds", "curves")
"""Without `waves`, which is "rough, heavy"; the last three were held back."""
BATCH = 20


class Line(NamedTuple):
    """Lines of the table: a test at some number of samples, for each m, and how often true and false hypotheses."""

    test: str
    samples: int
    true: int
    false: int


QUICK: dict[Kinds, tuple[Line, ...]] = {
    "families": (Line("analytic", 300, 40, 20), Line("analytic", 1000, 20, 10)),
    "fields": (Line("analytic", 200, 50, 50), Line("analytic", 500, 50, 50), Line("scetbon", 200, 25, 25)),
}
FULL: dict[Kinds, tuple[Line, ...]] = {
    "families": (Line("analytic", 300, 300, 100), Line("analytic", 1000, 200, 40), Line("analytic", 2000, 60, 20)),
    "fields": (
        Line("analytic", 200, 500, 200),
        Line("analytic", 500, 500, 200),
        Line("analytic", 1000, 500, 100),
        Line("analytic", 2000, 500, 50),
        Line("scetbon", 200, 50, 50),
        Line("scetbon", 500, 25, 25),
    ),
}


class Setting(NamedTuple):
    """Which windows are tested by which test."""

    test: str
    samples: int
    m: int
    kind: str
    order: int


class Count(NamedTuple):
    """How often a hypothesis was rejected, and how often the test refused."""

    rejected: int
    refused: int


def simulate(setting: Setting, seed: int) -> Floats:
    """Return windows of a setting; the same seed gives every test the same vehicles."""
    from benchmarks.families import simulate_family
    from benchmarks.processes import simulate_windows

    length = setting.m + 2
    if setting.kind in FAMILIES:
        return simulate_family(setting.kind, setting.order, setting.samples, length=length, seed=seed)
    field, noise = FIELDS[setting.kind]
    return simulate_windows(
        setting.order,
        setting.samples,
        field="smooth" if field == "smooth" else "rough",
        noise="gaussian" if noise == "gaussian" else "heavy",
        length=length,
        seed=seed,
    )


def decisions(setting: Setting, first: int, last: int) -> Count:
    """Return what became of the hypothesis of order m in samples seeded from first to last - 1."""
    from threadpoolctl import threadpool_limits

    from geoblanket.blanket.independence import find_test, lagged
    from geoblanket.errors import UntestableError

    run, rejected, refused = find_test(setting.test), 0, 0
    with threadpool_limits(1):
        for seed in range(first, last):
            x, y, z = lagged(simulate(setting, seed), setting.m)
            try:
                rejected += run(x, y, z, seed=seed).p_value <= ALPHA
            except UntestableError:
                refused += 1
    return Count(rejected, refused)


Task = tuple[Setting, int, int]


def tasks(line: Line, kinds: Kinds) -> list[Task]:
    """Return a setting and the range of its seeds, for all batches of a line."""
    return [
        (Setting(line.test, line.samples, m, kind, m + more), first, min(first + BATCH, repetitions))
        for m, kind in product((1, 2, 3), FAMILIES if kinds == "families" else FIELDS)
        for more, repetitions in enumerate((line.true, line.false))
        for first in range(0, repetitions, BATCH)
    ]


def counted(todo: list[Task], journal: Path | None, workers: int) -> tuple[Counter[Setting], Counter[Setting]]:
    """Return the rejections and refusals in each setting; batches that the journal knows are not run again."""
    from geoblanket._workers import map_in_order

    known = journal.read_text().splitlines() if journal and journal.exists() else []
    done = {(Setting(*setting), first, last): Count(*count) for setting, first, last, count in map(json.loads, known)}
    missing = [task for task in todo if task not in done]
    for task, count in zip(missing, map_in_order(decisions, missing, workers=workers), strict=True):
        done[task] = count
        if journal:
            with journal.open("a") as file:
                file.write(json.dumps([*task, count]) + "\n")
    rejected, refused = Counter[Setting](), Counter[Setting]()
    for task in todo:
        rejected[task[0]] += done[task].rejected
        refused[task[0]] += done[task].refused
    return rejected, refused


def rows(line: Line, kinds: Kinds, rejected: Counter[Setting], refused: Counter[Setting]) -> list[tuple[str, ...]]:
    """Return the rows of the table: level and power in each kind of process, and refusals in brackets."""
    table = []
    for m in (1, 2, 3):
        cells = []
        for kind in FAMILIES if kinds == "families" else FIELDS:
            shares = []
            for more, repetitions in enumerate((line.true, line.false)):
                setting = Setting(line.test, line.samples, m, kind, m + more)
                doubt = f" ({refused[setting] / repetitions:.2f})" if refused[setting] else ""
                shares.append(f"{rejected[setting] / repetitions:.3f}{doubt}")
            cells.append(" / ".join(shares))
        table.append((line.test, f"{line.samples:,}", str(m), f"{line.true} / {line.false}", *cells))
    return table


def main() -> None:
    """Measure every setting and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", choices=("families", "fields"), default="families", help="which processes")
    parser.add_argument("--full", action="store_true", help="all settings, with as many repetitions as in the docs")
    parser.add_argument("--test", choices=("analytic", "scetbon"), help="only the lines of this test")
    parser.add_argument("--samples", type=int, help="only the lines with as many samples")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--journal", type=Path, help="keep what has been counted here; delete it if a test changes")
    options = parser.parse_args()
    plan = [
        line
        for line in (FULL if options.full else QUICK)[options.kinds]
        if options.test in (None, line.test) and options.samples in (None, line.samples)
    ]
    table = [
        row
        for line in plan
        for row in rows(line, options.kinds, *counted(tasks(line, options.kinds), options.journal, options.workers))
    ]
    kinds = FAMILIES if options.kinds == "families" else FIELDS
    show(f"Rejected at {ALPHA}: level / power (refused)", ("", "samples", "m", "repetitions", *kinds), table)


if __name__ == "__main__":
    main()
