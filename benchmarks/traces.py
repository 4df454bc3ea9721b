"""Importing a Porto-shaped file, against pandas and json; run `python -m benchmarks.traces [--full]`."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks._measure import measure, show
from geoblanket._arrays import Floats

FULL_TRIPS = 1_700_000
POINTS_PER_TRIP = 48
SLICE_TRIPS = 100_000
_CHUNK = 20_000


def import_porto(path: Path, out: Path) -> int:
    """Import a file: parsed, cleaned, counted and written as Parquet; return the number of points."""
    from geoblanket.traces.importing import import_traces

    return import_traces([path], out, format="porto").points


def read_with_pandas(path: Path) -> int:
    """Read the same columns by pandas and json, neither cleaned nor written; return the number of points."""
    import pandas as pd

    trips = pd.read_csv(path, usecols=["TAXI_ID", "TIMESTAMP", "POLYLINE"])
    trips["POLYLINE"] = trips["POLYLINE"].map(json.loads)
    trips["trip"] = np.arange(len(trips))
    points = trips.explode("POLYLINE").dropna(subset=["POLYLINE"])
    lon_lat = np.array(points["POLYLINE"].tolist())
    step = points.groupby("trip").cumcount().to_numpy()
    table = pd.DataFrame(
        {
            "vehicle": points["TAXI_ID"].astype(str).to_numpy(),
            "trip": points["trip"].to_numpy(),
            "time": pd.to_datetime(points["TIMESTAMP"].to_numpy() + 15 * step, unit="s", utc=True),
            "lat": lon_lat[:, 1],
            "lon": lon_lat[:, 0],
        }
    )
    return len(table)


def write_porto_file(path: Path, trips: int, *, seed: int = 0) -> None:
    """Write random walks in the format of Porto's train.csv, quickly and in bounded memory."""
    rng = np.random.default_rng(seed)
    with path.open("wb") as file:
        for first in range(0, trips, _CHUNK):
            chunk = _porto_rows(rng, min(_CHUNK, trips - first), 1_372_636_800 + 20 * first)
            chunk.write_csv(file, include_header=first == 0, quote_style="always")


def _porto_rows(rng: np.random.Generator, trips: int, start_s: int) -> pl.DataFrame:
    sizes = rng.poisson(POINTS_PER_TRIP, trips)
    first = np.repeat(np.cumsum(sizes) - sizes, sizes)

    def walk(centre: float, step: float) -> Floats:
        steps = np.cumsum(rng.normal(0.0, step, int(sizes.sum())))
        origin = np.repeat(rng.normal(centre, 0.02, trips), sizes)
        rounded: Floats = np.round(origin + steps - steps[first], 6)
        return rounded

    points = pl.DataFrame(
        {"trip": np.repeat(np.arange(trips), sizes), "lon": walk(-8.62, 8e-4), "lat": walk(41.16, 6e-4)}
    )
    polylines = (
        points.select("trip", point=pl.format("[{},{}]", "lon", "lat"))
        .group_by("trip", maintain_order=True)
        .agg(pl.col("point").str.join(","))
    )
    rows = pl.DataFrame(
        {
            "trip": np.arange(trips),
            "TAXI_ID": 20_000_000 + rng.integers(1, 449, trips),
            "TIMESTAMP": start_s + 20 * np.arange(trips),
        }
    ).join(polylines, on="trip", how="left", maintain_order="left")
    return rows.select(
        pl.format("{}6{}", "TIMESTAMP", "TAXI_ID").alias("TRIP_ID"),
        pl.lit("C").alias("CALL_TYPE"),
        pl.lit("").alias("ORIGIN_CALL"),
        pl.lit("").alias("ORIGIN_STAND"),
        "TAXI_ID",
        "TIMESTAMP",
        pl.lit("A").alias("DAY_TYPE"),
        pl.lit("False").alias("MISSING_DATA"),
        pl.format("[{}]", pl.col("point").fill_null("")).alias("POLYLINE"),
    )


def _copy_head(source: Path, target: Path, rows: int) -> None:
    with source.open("rb") as lines, target.open("wb") as out:
        out.writelines(islice(lines, rows + 1))


def main(arguments: list[str] | None = None) -> None:
    """Make the file, import it, and import a slice of it by both readers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trips", type=int, default=200_000, help="trips of the file")
    parser.add_argument("--full", action="store_true", help=f"as many trips as the real file: {FULL_TRIPS:,}")
    parser.add_argument("--folder", type=Path, help="where the files go for the time of the run (up to 4 GB)")
    options = parser.parse_args(arguments)
    trips = FULL_TRIPS if options.full else options.trips

    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        whole, part = folder / "train.csv", folder / "slice.csv"
        start = time.perf_counter()
        write_porto_file(whole, trips)
        made_s = time.perf_counter() - start
        _copy_head(whole, part, min(trips, SLICE_TRIPS))
        size = whole.stat().st_size
        runs = [
            ("geoblanket, whole file", measure(import_porto, whole, folder / "whole.parquet")),
            (f"geoblanket, {SLICE_TRIPS:,} trips", measure(import_porto, part, folder / "slice.parquet")),
            (f"pandas + json, {SLICE_TRIPS:,} trips", measure(read_with_pandas, part)),
        ]
    rates = [run.result / run.seconds for _, run in runs]
    show(
        f"Traces: a Porto-shaped file of {trips:,} trips, {size / 1e9:.2f} GB (made in {made_s:.0f} s)",
        ("reader", "points", "seconds", "points/s", "against pandas", "peak memory"),
        [
            (
                name,
                f"{run.result:,}",
                f"{run.seconds:.1f}",
                f"{rate:,.0f}",
                f"{rate / rates[-1]:.1f}×",
                f"{run.peak_mb / 1024:.2f} GB",
            )
            for (name, run), rate in zip(runs, rates, strict=True)
        ],
    )


if __name__ == "__main__":
    main()
