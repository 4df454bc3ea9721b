"""How good the predictor is where the truth is known: trained on what discovery found in a synthetic city.

Run `python -m benchmarks.predictor_truth`. A medium city and its true walks; groups by hour, speed and district. Judged
on groups that no model has seen, on tested labels and with imputed ones; `true length` is the share of these groups
whose length is the order by which their samples were drawn.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks._measure import show
from benchmarks.blanket_truth import TRIPS, prepare
from benchmarks.true_blankets import compare_blankets, district_regions
from geoblanket.blanket.discovery import DiscoveryOptions, discover
from geoblanket.blanket.findings import read_labels, scan_findings, split_by_group
from geoblanket.blanket.training import ModelEvaluation, train

BY = ("hour", "speed", "region")
MEASURES = ("bce", "accuracy", "precision", "recall", "f1", "negative_precision", "negative_recall", "negative_f1")
SEEDS = 3


def measures(one: ModelEvaluation) -> dict[str, float]:
    """Return what is printed of one model; a measure that is not defined is not a number."""
    found = {"gain over m alone": one.gain}
    for kind, scores in one.scores.items():
        for name in (*MEASURES, "calibration_error"):
            value = getattr(scores, name)
            found[f"{name}, {kind}"] = np.nan if value is None else value
    return found | {"length as discovered": np.nan if one.right_length is None else one.right_length}


def main() -> None:
    """Make the city, discover, train with several seeds, print means."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trips", type=int, default=TRIPS)
    parser.add_argument("--folder", type=Path, help="keep the city and the findings here")
    options, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        walks = prepare(folder, trips=options.trips, size="medium", matched=False)["true walks"]
        roads = folder / "city.roads"
        regions = district_regions(folder, roads)
        if not (folder / "findings.parquet").exists():
            discover(walks, roads, DiscoveryOptions(by=BY, regions=regions), out=folder / "findings.parquet")
        rows, about = scan_findings(folder / "findings.parquet")
        findings = rows.collect()
        compared = compare_blankets(findings, walks=walks, roads=roads, city=folder, by=BY, regions=regions)
    table: dict[str, list[dict[str, float]]] = {}
    seconds, epochs = [], []
    for seed in range(SEEDS):
        start = time.perf_counter()
        result = train(findings, about=about, seed=seed)
        seconds.append(time.perf_counter() - start)
        epochs.append(result.epochs)
        judged = np.unique(split_by_group(read_labels(findings), seed=seed).test.group).tolist()
        groups = compared.filter(pl.col("group").is_in(judged))
        lengths = result.predictor.lengths(
            hour=groups["hour"].to_numpy(), speed_mph=groups["speed_mph"].to_numpy(), region=groups["region"].to_numpy()
        )
        for one in result.evaluations:
            if one.trained_on == "all":
                table.setdefault(one.model, []).append(measures(one))
        truth = groups["true_order"].to_numpy()
        table["network"][-1]["true length"] = float((lengths == truth).mean())
        table.setdefault("discovery", []).append({"true length": float((groups["order"].to_numpy() == truth).mean())})
    names = list(table["network"][0])
    show(
        f"The predictor: {sum(result.groups.values())} groups with a decision, means over {SEEDS} splits; "
        f"{np.mean(epochs):.0f} epochs, {np.mean(seconds):.1f} s",
        ("", *table),
        [(name, *(_mean(runs, name) for runs in table.values())) for name in names],
    )
    show(
        "Lengths of blankets (last split)",
        ("length", "cells of the grid", "samples", "samples, as discovered"),
        [
            (f"{length}", *(f"{part.get(length, 0) / sum(part.values()):.1%}" for part in parts))
            for parts in [(result.length_by_cell, result.length_by_sample, result.found_by_sample)]
            for length in sorted(set().union(*parts))
        ],
    )


def _mean(runs: list[dict[str, float]], name: str) -> str:
    values = [run[name] for run in runs if np.isfinite(run.get(name, np.nan))]
    return f"{np.mean(values):.4f}" if values else ""


if __name__ == "__main__":
    main()
