"""Whole evaluations: how long `geoblanket evaluate` takes, and what of it the methods take.

Run `python -m benchmarks.evaluate`: the experiment `quick` on a synthetic city, on all cores. `--full` adds `geoblanket
evaluate paper --quick` on Porto and Rome, from the raw files in ../shared/data, and `--paper` the whole of it, which
takes an hour.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import polars as pl

from benchmarks._measure import show
from benchmarks.build import DATA, SPACING_M, prepare_city
from geoblanket.evaluate.city_data import CityFiles
from geoblanket.evaluate.experiment import read_experiment, shipped_experiments
from geoblanket.evaluate.running import Evaluation, evaluate_cities
from geoblanket.mobility.matching import match_traces
from geoblanket.study.cities import PAPER_CITIES
from geoblanket.study.cities import prepare_city as prepare_paper_city


def synthetic(folder: Path) -> tuple[float, Evaluation]:
    """Evaluate a synthetic city; return the seconds, those of its making not counted."""
    prepare_city(folder)
    files = CityFiles(name="synthetic", roads=folder / "roads", walks=folder / "walks.parquet")
    match_traces(folder / "traces.parquet", files.roads, files.walks, spacing_m=SPACING_M)
    started = time.perf_counter()
    found = evaluate_cities([files], [read_experiment("quick")], folder / "results")
    return time.perf_counter() - started, found


def paper(folder: Path, *, quick: bool) -> tuple[float, Evaluation]:
    """Do the paper's experiments from raw data; return the seconds of all of it."""
    started = time.perf_counter()
    cities = [prepare_paper_city(city, DATA, folder / name) for name, city in PAPER_CITIES.items()]
    names = ["paper"] if quick else [name for name in shipped_experiments() if name != "quick"]
    found = evaluate_cities(cities, [read_experiment(name, quick=quick) for name in names], folder)
    return time.perf_counter() - started, found


def row(name: str, seconds: float, found: Evaluation) -> tuple[str, ...]:
    """Return the figures of an evaluation."""
    each = found.results.filter(pl.col("zone") != -1)
    made = each.filter(measure="verified", value=1.0)
    searching = each.filter(measure="build_seconds")["value"].sum()
    return (
        name,
        f"{made.height:,}",
        f"{seconds / 60:.1f} min",
        f"{searching / 60:.1f} min",
        f"{float(each.filter(measure='peak_memory_mb')['value'].max()):,.0f} MB",  # type: ignore[arg-type]  # a number
        f"{len(found.violations)}",
    )


def main() -> None:
    """Evaluate what is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--paper", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "synthetic").mkdir()
        rows = [row("synthetic city, quick", *synthetic(folder / "synthetic"))]
        if options.full and DATA.is_dir():
            rows.append(row("Porto and Rome, --quick", *paper(folder / "quick", quick=True)))
        if options.paper and DATA.is_dir():
            rows.append(row("Porto and Rome, all experiments", *paper(folder / "paper", quick=False)))
    header = ("evaluation", "mechanisms", "time", "of it searches, on one core", "a process", "violations")
    show("Evaluations", header, rows)


if __name__ == "__main__":
    main()
