"""Discovery of blankets against a plain loop: filter the table for each group and order, and test one after the other.

Run `python -m benchmarks.discovery`. Walks of a synthetic city, groups by hour, speed and region. Both use the same
test, so what differs is how samples are found and how many cores work. The loop does a slice of the groups, and its
time for all of them is worked out from that. `--full` takes walks enough for 5,000 groups that can be tested. A second
table says what 40 million steps (as many as in the whole Porto data) take before the first test.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks._measure import measure, show

FULL = "--full" in sys.argv
TRIPS = 450_000 if FULL else 25_000
SIDE = 8 if FULL else 4
"""Rows and columns of regions."""
SLICE = 40
PORTO_STEPS = 40_000_000
LARGEST, ALPHA, SMALLEST, MOST = 5, 0.05, 200, 2000


def grid(roads: Path) -> str:
    """Return a grid over the roads as text."""
    from geoblanket.roads.graph import RoadGraph

    graph = RoadGraph.load(roads)
    return f"grid:{graph.lat.min()},{graph.lat.max()},{graph.lon.min()},{graph.lon.max()},{SIDE},{SIDE}"


def prepare(folder: Path) -> None:
    """Make a city, its roads and true walks."""
    from benchmarks.true_blankets import write_true_walks
    from geoblanket.lab.city.folder import write_city
    from geoblanket.lab.city.model import make_city
    from geoblanket.roads.importer import import_roads

    write_city(make_city("medium"), folder, trips=TRIPS, formats=[])
    import_roads([folder / "roads.osm.pbf"])[0].save(folder / "city.roads")
    write_true_walks(folder, folder / "city.roads", folder / "walks.parquet")


def ours(folder: Path, workers: int) -> tuple[int, int]:
    """Discover all blankets; return how many groups were tested, and how many tests that took."""
    from joblib.externals.loky import get_reusable_executor

    from geoblanket.blanket.discovery import DiscoveryOptions, discover

    roads = folder / "city.roads"
    options = DiscoveryOptions(regions=grid(roads), largest=LARGEST)
    found = discover(folder / "walks.parquet", roads, options, workers=workers)
    counts = found.summary()["hour+speed+region"]
    # This process is a child, and would wait for its idle workers for minutes before it ends.
    get_reusable_executor().shutdown()
    return counts["tested"], counts["tests"]


def plain_loop(folder: Path) -> tuple[int, int, float]:
    """Test some groups one by one; return how many, of how many, and the seconds without the table's preparation."""
    from geoblanket._geodesy import haversine_m, local_metres
    from geoblanket.blanket.groups import find_regions
    from geoblanket.blanket.independence import find_test, lagged
    from geoblanket.errors import UntestableError
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.roads.places import choose_places

    graph = RoadGraph.load(folder / "city.roads")
    places = choose_places(graph)
    region = find_regions(grid(folder / "city.roads"), places).region
    x, y = local_metres(graph.lat, graph.lon, origin_lat=graph.lat.mean(), origin_lon=graph.lon.mean())
    frame = pl.read_parquet(folder / "walks.parquet", columns=["walk", "step", "time", "place"])
    place = frame["place"].to_numpy()
    before = np.append(place[:1], place[:-1])
    moved = haversine_m(graph.lat[before], graph.lon[before], graph.lat[place], graph.lon[place])
    frame = frame.with_columns(
        pl.col("time").dt.hour().alias("hour"), region=region[place], moved=np.where(frame["step"] > 0, moved, 0.0)
    ).drop("time")
    for lag in range(1, LARGEST + 2):
        frame = frame.with_columns(pl.col("place").shift(lag).over("walk").alias(f"place_{lag}"))
    for m in range(1, LARGEST + 1):
        mean = pl.sum_horizontal(pl.col("moved").shift(lag).over("walk") for lag in range(m)) / (30 * m)
        frame = frame.with_columns((mean / (5 * 0.44704)).floor().alias(f"speed_{m}"))
    start = time.perf_counter()
    keys = frame.drop_nulls("place_2").group_by("hour", "speed_1", "region").len().filter(pl.col("len") >= SMALLEST)
    some = keys.sort("hour", "speed_1", "region").gather_every(max(1, keys.height // SLICE)).rows()
    test = find_test("analytic")
    for hour, speed, cell, _ in some:
        for m in range(1, LARGEST + 1):
            group = frame.filter(
                (pl.col("hour") == hour)
                & (pl.col(f"speed_{m}") == speed)
                & (pl.col("region") == cell)
                & pl.col(f"place_{m + 1}").is_not_null()
            )
            if group.height < SMALLEST:
                break
            window = group.sample(min(MOST, group.height), seed=0).select(
                "place", *(f"place_{lag}" for lag in range(1, m + 2))
            )
            at = window.to_numpy()
            try:
                p_value = test(*lagged(np.stack([x[at], y[at]], axis=-1), m), seed=0).p_value
            except UntestableError:
                break
            if p_value > ALPHA:
                break
    return len(some), keys.height, time.perf_counter() - start


def write_porto_size(folder: Path) -> None:
    """Write as many steps as the whole Porto data has, on the city's roads."""
    from geoblanket._tables import lazy_batches, write_table
    from geoblanket.mobility.walks import WALKS_SCHEMA
    from geoblanket.roads.graph import RoadGraph

    graph = RoadGraph.load(folder / "city.roads")
    start_us = int(datetime(2013, 7, 1, tzinfo=UTC).timestamp() * 1e6)

    def part(number: int, rows: int = 1_000_000, length: int = 25) -> pl.DataFrame:
        rng = np.random.default_rng(number)
        walk = np.arange(rows) // length + number * (rows // length)
        step = np.arange(rows) % length
        begin = rng.integers(0, 365 * 86_400, rows // length).repeat(length)
        return pl.DataFrame(
            {
                "walk": walk,
                "vehicle": pl.Series(walk % 442).cast(pl.String),
                "trip": walk,
                "step": step,
                "time": pl.Series(start_us + (begin + 30 * step) * 1_000_000).cast(WALKS_SCHEMA["time"]),
                "place": rng.integers(0, graph.node_count, rows),
                "speed_m_s": np.zeros(rows),
            }
        ).cast(pl.Schema(WALKS_SCHEMA))

    parts = (part(number) for number in range(PORTO_STEPS // 1_000_000))
    about = {"roads": graph.identity, "spacing_m": 0.0, "interval_s": 30.0, "method": "made up"}
    write_table(lazy_batches(parts, schema=WALKS_SCHEMA), folder / "porto_size.parquet", kind="walks", about=about)


def porto_size(folder: Path) -> tuple[float, float]:
    """Load 40 million steps and sort them into groups at order 2; return the seconds of each."""
    from geoblanket.blanket.groups import Grouping, find_regions, find_samples, load_walks

    start = time.perf_counter()
    walks = load_walks(folder / "porto_size.parquet", folder / "city.roads", time_zone="Europe/Lisbon")
    loaded = time.perf_counter()
    find_samples(walks, Grouping(("hour", "speed", "region"), find_regions(None, walks.places)), m=2, length=4)
    return loaded - start, time.perf_counter() - loaded


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        measure(prepare, folder)
        cores = os.cpu_count() or 1
        lines = []
        for workers in sorted({1, cores}):
            done = measure(ours, folder, workers)
            groups, tests = done.result
            lines.append((f"geoblanket, {workers} process(es)", groups, tests, done.seconds, done.peak_mb))
        peer = measure(plain_loop, folder)
        some, groups, seconds = peer.result
        lines.append(("plain loop, extrapolated", groups, 0, seconds * groups / some, peer.peak_mb))
        show(
            "Groups by hour, speed and region, up to order 5",
            ("", "groups tested", "tests", "seconds", "groups/s", "peak MB"),
            [
                (name, f"{groups:,}", f"{tests:,}" if tests else "", f"{seconds:,.1f}", f"{groups / seconds:,.1f}",
                 f"{peak:,.0f}")
                for name, groups, tests, seconds, peak in lines
            ],
        )  # fmt: skip
        measure(write_porto_size, folder)
        large = measure(porto_size, folder)
        show(
            f"{PORTO_STEPS:,} steps, before the first test",
            ("reading, s", "sorting into groups at one order, s", "peak MB"),
            [(f"{large.result[0]:.1f}", f"{large.result[1]:.1f}", f"{large.peak_mb:,.0f}")],
        )


if __name__ == "__main__":
    main()
