"""Walks perturbed in bulk, against a plain loop over steps with NumPy's `choice`.

Run `python -m benchmarks.perturb`. The town, its walks and its mechanisms are made up: 2,000 places in 20 zones, and
histories of two earlier places. Times include reading the walks and writing the reports; each line is a process of its
own.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from benchmarks._measure import machine, measure, show
from geoblanket._arrays import Indices
from geoblanket.roads.graph import Edges, Nodes, RoadGraph

SIDE = 45
ZONES = 20
WALK_STEPS = 30
STEPS = 3_000_000
LOOP_STEPS = 60_000
ROWS = 300


def make_town(folder: Path, steps: int) -> None:
    """Write roads, walks of so many steps, and a bundle, without any optimisation: only the speed matters here."""
    from geoblanket.build.rows import make_rows
    from geoblanket.mechanism import BundledMechanism, Mechanism, Problem, save_bundle
    from geoblanket.mechanism.bundle.header import Clock
    from geoblanket.mobility.histories import count_histories
    from geoblanket.roads.places import choose_places
    from geoblanket.roads.zones import partition_zones

    graph = _grid()
    graph.save(folder / "town.roads")
    _write_walks(folder / "walks.parquet", graph.identity, steps)
    places = choose_places(graph)
    zones = partition_zones(graph, places, max_places=len(places) // ZONES + 5)
    counts = count_histories(folder / "walks.parquet", places, largest=2, part="all")
    rng = np.random.default_rng(0)
    parts = []
    for number, name in enumerate(zones.ids):
        for regime, context in (("all day", "order:2"), ("start", "none")):
            rows = make_rows(
                places,
                zones.members(number),
                counts,
                reach_m=900.0,
                context=context,
                history_weights=(1.0, 0.5),
                max_rows=ROWS,
            )
            problem = Problem(np.ones((len(rows), len(rows.zone))), rows.prior, rows.distance_km, epsilon=2.0)
            own = np.exp(-rng.uniform(0, 5, len(rows.zone)))
            mechanism = Mechanism.from_probabilities(np.tile(own / own.sum(), (len(rows), 1)), problem)
            parts.append(
                BundledMechanism.of(
                    mechanism,
                    zone=name,
                    regime=regime,
                    history_weights=rows.history_weights,
                    histories=rows.histories,
                    output_places=rows.zone,
                )
            )
    clock = Clock(30_000, "UTC", (("all day", tuple(range(24))),))
    save_bundle(folder / "town.bundle", parts, version=1, places_e7=places.coordinates_e7, clock=clock)


def _write_walks(path: Path, roads: str, steps: int) -> None:
    from geoblanket._tables import write_table
    from geoblanket.mobility.walks import WALKS_SCHEMA

    walk, step = np.divmod(np.arange(steps), WALK_STEPS)
    start = int(datetime(2024, 7, 1, tzinfo=UTC).timestamp() * 1e6)
    frame = pl.DataFrame(
        {
            "walk": walk,
            "vehicle": pl.Series([f"taxi {number}" for number in range(500)]).gather(walk % 500),
            "trip": walk,
            "step": step.astype(np.int32),
            "time": pl.Series(start + 30_000_000 * (walk + step)).cast(WALKS_SCHEMA["time"]),
            "place": _places(np.random.default_rng(1), steps // WALK_STEPS),
            "speed_m_s": np.full(steps, 8.0, np.float32),
        },
        schema=WALKS_SCHEMA,
    )
    write_table(frame, path, kind="walks", about={"roads": roads, "spacing_m": 0.0, "interval_s": 30.0})


def _grid() -> RoadGraph:
    index = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
    one = np.concatenate([index[:, :-1].ravel(), index[:-1].ravel()])
    other = np.concatenate([index[:, 1:].ravel(), index[1:].ravel()])
    row, column = np.divmod(np.arange(SIDE * SIDE), SIDE)
    return RoadGraph.from_edges(
        Nodes(ids=np.arange(SIDE * SIDE), lat=41.0 + row * 2.25e-3, lon=-8.6 + column * 3e-3),
        Edges(
            sources=np.concatenate([one, other]),
            targets=np.concatenate([other, one]),
            length_m=np.full(2 * len(one), 250.0),
            speed_m_s=np.full(2 * len(one), 10.0),
            road_class=np.zeros(2 * len(one)),
        ),
        length_model="given",
    )


def _places(rng: np.random.Generator, count: int) -> Indices:
    """Return the places of random walks on the grid, one after the other."""
    move = rng.integers(-1, 2, (count, WALK_STEPS, 2))
    move[:, 0] = rng.integers(0, SIDE, (count, 2))
    at = np.clip(np.cumsum(move, axis=1), 0, SIDE - 1)
    return (at[..., 0] * SIDE + at[..., 1]).ravel().astype(np.int32)


def ours(folder: Path) -> tuple[float, float]:
    """Return the seconds of `perturb_walks` by the clock and of all cores; the bundle is loaded and verified before."""
    from geoblanket.mechanism import load_bundle
    from geoblanket.release.bulk import perturb_walks

    bundle = load_bundle(folder / "town.bundle")
    start, cpu = time.perf_counter(), time.process_time()
    perturb_walks(folder / "walks.parquet", folder / "town.roads", folder / "released.parquet", bundle=bundle)
    return time.perf_counter() - start, time.process_time() - cpu


def plain_loop(folder: Path, steps: int) -> tuple[float, float]:
    """Return the seconds of a loop over steps: a dictionary from histories to rows, `choice` for each: not exact."""
    from geoblanket.mechanism import ZoneBundle, load_bundle

    bundle = load_bundle(folder / "town.bundle")
    assert isinstance(bundle, ZoneBundle)
    rng = np.random.default_rng(0)
    rules = [
        (one, {tuple(history): row for history, row in zip(one.histories.tolist(), one.history_rows, strict=True)})
        for one in bundle
        if one.regime == "all day"
    ]
    zone = {int(place): number for number, (one, _) in enumerate(rules) for place in np.unique(one.histories[:, 0])}
    start, cpu = time.perf_counter(), time.process_time()
    frame = pl.read_parquet(folder / "walks.parquet").head(steps)
    places, number = frame["place"].to_list(), frame["step"].to_list()
    reported = []
    for index, place in enumerate(places):
        past = [places[index - min(lag, number[index])] for lag in (1, 2)]
        one, rows = rules[zone[place]]
        row = next((rows[key] for key in ((place, *past), (place, past[0], -1), (place, -1, -1)) if key in rows), 0)
        probabilities = one.mechanism.weights[row] / 2**62
        reported.append(rng.choice(one.output_places, p=probabilities / probabilities.sum()))
    frame.with_columns(place=pl.Series(reported)).write_parquet(folder / "loop.parquet")
    return time.perf_counter() - start, time.process_time() - cpu


def main() -> None:
    """Measure everything and print the table."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        make_town(folder, STEPS)
        table = []
        for what, job, arguments, steps in (
            ("geoblanket perturb", ours, (folder,), STEPS),
            ("plain loop, NumPy choice for each step", plain_loop, (folder, LOOP_STEPS), LOOP_STEPS),
        ):
            measured = measure(job, *arguments)
            seconds, cpu = measured.result
            table.append(
                (
                    what,
                    f"{steps:,}",
                    f"{seconds:.2f}",
                    f"{steps / seconds:,.0f}",
                    f"{cpu:.2f}",
                    f"{steps / cpu:,.0f}",
                    f"{measured.peak_mb:,.0f}",
                )
            )
    show(
        f"Reports from walks, {SIDE * SIDE:,} places ({machine()})",
        ("", "steps", "seconds", "steps/s", "CPU seconds", "steps/CPU s", "peak MB"),
        table,
    )


if __name__ == "__main__":
    main()
