"""Map matching, against Valhalla, leuvenmapmatching and the truth; run `python -m benchmarks.matching`.

Roads and traces are those of a medium synthetic city (points every 15 s, noise of 5 m), of which every true edge is
known; no parameter was chosen by looking at this one. "Exact" leaves out the first and last points of trips, where the
vehicle stands at a junction and only one of its two edges is known; "with ends" counts them. "Thinned" keeps every
fourth point of a trip, one a minute. Times leave imports and loading out, but not the matchers' own preparation (of
Valhalla: its files of roads are made before); each line is a process of its own. Ratios are to Valhalla. Memory and
processor time are those of all processes of the job.

`python -m benchmarks.matching ROADS CABS` also matches San Francisco's cabs, with its road graph and the archive of
CRAWDAD epfl/mobility. Their true edges are not known.
"""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks._measure import Measured, ProcessTree, measure, show
from geoblanket._arrays import Bools, Floats, Indices, Ints
from geoblanket.roads.graph import ROAD_CLASSES, RoadGraph

TRIPS = 10_000
PEER_TRIPS = 40
MANY_PEER_TRIPS = 1_000
PEER = f"Valhalla, {MANY_PEER_TRIPS:,} trips"
COPIES = 4
THINNED = 4
"""The sparse trips keep every fourth point."""
RADIUS_M, SIGMA_M, CANDIDATES = 50.0, 8.0, 8


@dataclass(frozen=True)
class Truth:
    """Points and the edges by which the vehicle came to each and went on."""

    trip: Ints
    time_us: Ints
    lat: Floats
    lon: Floats
    true_lat: Floats
    true_lon: Floats
    edge_in: Indices
    edge_out: Indices
    jump: Bools

    @property
    def is_known(self) -> Bools:
        """Whether both edges are known: not at the ends of trips, where vehicles stand at a junction, nor for jumps."""
        known: Bools = (self.edge_in >= 0) & (self.edge_out >= 0) & ~self.jump
        return known

    @classmethod
    def load(cls, path: Path, *, trips: int = TRIPS, every: int = 1) -> Truth:
        """Read the points of the first trips; with `every`, each n-th of them."""
        frame = pl.read_parquet(path).filter(pl.col("trip") < trips)
        frame = frame.filter(pl.int_range(pl.len()).over("trip") % every == 0)
        return cls(**{column.name: column.to_numpy() for column in frame})


def prepare(folder: Path) -> None:
    """Write the city's roads, traces and truth."""
    from geoblanket._tables import write_table
    from geoblanket.lab.city.fleet import make_schedule, walk_blocks
    from geoblanket.lab.city.gps import regular_points
    from geoblanket.lab.city.model import make_city
    from geoblanket.traces.table import TRACES_SCHEMA

    city = make_city("medium", seed=5)
    city.graph.save(folder / "roads")
    blocks = [regular_points(city, walks, seed=6) for walks in walk_blocks(city, make_schedule(TRIPS, seed=6))]
    names = ("trip", "lat", "lon", "true_lat", "true_lon", "edge_in", "edge_out", "jump")
    columns = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in names}
    columns["time_us"] = np.concatenate([block.time_s for block in blocks]) * 1_000_000
    pl.DataFrame(columns).write_parquet(folder / "truth.parquet")
    frame = pl.DataFrame(
        {
            "vehicle": pl.repeat("taxi", len(columns["trip"]), eager=True),
            "trip": columns["trip"],
            "time": pl.Series(columns["time_us"]).cast(TRACES_SCHEMA["time"]),
            "lat": columns["lat"],
            "lon": columns["lon"],
        },
        schema=TRACES_SCHEMA,
    )
    copies = pl.concat(frame.with_columns(pl.col("trip") + TRIPS * copy) for copy in range(COPIES))
    write_table(copies, folder / "traces.parquet", kind="traces", about={})


def prepare_cabs(folder: Path, roads: str, cabs: str) -> None:
    """Write San Francisco's roads, its traces, and the points of the first trips without a truth."""
    from geoblanket.traces.importing import import_traces

    shutil.copy(roads, folder / "roads")
    import_traces(cabs, folder / "traces.parquet", format="cabspotting")
    points = pl.scan_parquet(folder / "traces.parquet").filter(pl.col("trip") < MANY_PEER_TRIPS)
    unknown = {"edge_in": pl.lit(-1), "edge_out": pl.lit(-1), "jump": pl.lit(value=False)}
    points.select(
        "trip", "lat", "lon", true_lat="lat", true_lon="lon", time_us=pl.col("time").to_physical(), **unknown
    ).sink_parquet(folder / "truth.parquet")


def match_edges(folder: Path, trips: int, every: int = 1) -> tuple[float, dict[str, float]]:
    """Match some trips from scratch; return points per second, and how right the edges are."""
    from geoblanket._geodesy import haversine_m
    from geoblanket.mobility.map_matcher import MapMatcher

    graph, truth = RoadGraph.load(folder / "roads"), Truth.load(folder / "truth.parquet", trips=trips, every=every)
    start = time.perf_counter()
    matcher = MapMatcher(graph)
    points = matcher.match(truth.trip, truth.time_us, truth.lat, truth.lon)
    speed = len(truth.trip) / (time.perf_counter() - start)
    shares, fair = how_right(truth, points.matched, is_true_edge(truth, points.edge)), points.matched & truth.is_known
    if fair.any():
        lat, lon = matcher.index.lines.locate(points.edge[fair], points.offset_m[fair])
        away = haversine_m(lat, lon, truth.true_lat[fair], truth.true_lon[fair])
        shares["within_15_m"] = float((away <= 15).mean())
        if every == 1:  # over longer steps, vehicles do not always take the shortest route
            shares["driven"] = float(is_driven_edge(graph, truth, points.edge)[fair].mean())
    return speed, shares


def how_right(truth: Truth, matched: Bools, right: Bools) -> dict[str, float]:
    """Return the shares of points that were matched, and of those the shares on the true edge where it is known."""
    shares, fair = {"matched": float(matched.mean())}, matched & truth.is_known
    if fair.any():
        shares |= {"exact": float(right[fair].mean()), "with_ends": float(right[matched & ~truth.jump].mean())}
    return shares


def is_true_edge(truth: Truth, edge: Indices) -> Bools:
    """Return whether the vehicle was on the edge at the very time of the point."""
    right: Bools = (edge == truth.edge_in) | (edge == truth.edge_out)
    return right


def is_driven_edge(graph: RoadGraph, truth: Truth, edge: Indices) -> Bools:
    """Return whether the vehicle drove the edge, in its direction, between the points before and after.

    Near a junction, noise moves a point to the edge before or after; nobody can tell. This measure forgives that, and
    nothing else.
    """
    from geoblanket.mobility.routes import RouteFinder

    right = is_true_edge(truth, edge)
    first = np.flatnonzero((np.diff(truth.trip) == 0) & (truth.edge_out[:-1] >= 0) & (truth.edge_in[1:] >= 0))
    source, target = graph.targets[truth.edge_out[first]], graph.sources[truth.edge_in[first + 1]]
    offsets, between = RouteFinder(graph).paths(
        source.astype(np.int64), target.astype(np.int64), limit_m=np.full(len(first), 1500.0)
    )
    position = np.repeat(first, np.diff(offsets))
    driven_after = [(position, between), (first, truth.edge_out[first]), (first, truth.edge_in[first + 1])]
    for point, driven in driven_after:
        for near in (point, point + 1):
            right[near[edge[near] == driven]] = True
    return right


def match_with_peer(folder: Path, trips: int, every: int = 1) -> tuple[float, dict[str, float]]:
    """Match trips by leuvenmapmatching with the same radius, noise and number of candidates."""
    from leuvenmapmatching.map.inmem import InMemMap
    from leuvenmapmatching.matcher.distance import DistanceMatcher

    from geoblanket._geodesy import local_metres

    logging.disable(logging.WARNING)  # it warns at every early stop
    graph, truth = RoadGraph.load(folder / "roads"), Truth.load(folder / "truth.parquet", trips=trips, every=every)
    origin = {"origin_lat": float(graph.lat.mean()), "origin_lon": float(graph.lon.mean())}
    roads = InMemMap("roads", use_latlon=False, use_rtree=True, index_edges=True)
    for node, (x, y) in enumerate(zip(*local_metres(graph.lat, graph.lon, **origin), strict=True)):
        roads.add_node(node, (y, x))
    for source, target in zip(graph.sources.tolist(), graph.targets.tolist(), strict=True):
        roads.add_edge(source, target)
    x, y = local_metres(truth.lat, truth.lon, **origin)
    found = np.full((len(truth.trip), 2), -1)
    start = time.perf_counter()
    for trip in np.unique(truth.trip):
        rest = np.flatnonzero(truth.trip == trip)
        while len(rest):
            matcher = DistanceMatcher(
                roads,
                max_dist=RADIUS_M,
                obs_noise=SIGMA_M,
                obs_noise_ne=2 * SIGMA_M,
                max_lattice_width=CANDIDATES,
                non_emitting_states=True,
            )
            matcher.match(list(zip(y[rest], x[rest], strict=True)))
            states = [state for state in matcher.lattice_best or [] if state.obs_ne == 0]
            for state in states:
                found[rest[state.obs]] = state.edge_m.l1, state.edge_m.l2
            # Where it stops, it starts again at the next point.
            rest = rest[max((state.obs for state in states), default=0) + 1 :]
    speed = len(truth.trip) / (time.perf_counter() - start)
    right = np.zeros(len(found), dtype=bool)
    for edge in (truth.edge_in, truth.edge_out):
        right |= (edge >= 0) & (graph.sources[edge] == found[:, 0]) & (graph.targets[edge] == found[:, 1])
    return speed, how_right(truth, found[:, 0] >= 0, right)


def prepare_valhalla(folder: Path) -> None:
    """Write the roads as Valhalla reads them. Each edge is a way with the edge's number, so that edges compare."""
    import osmium
    import valhalla
    from osmium.osm import mutable
    from valhalla.config import get_config

    graph = RoadGraph.load(folder / "roads")
    (folder / "tiles").mkdir()
    with osmium.SimpleWriter(str(folder / "roads.osm.pbf")) as file:
        lat, lon = np.append(graph.lat, graph.shape_lat), np.append(graph.lon, graph.shape_lon)
        for number, location in enumerate(zip(lon.tolist(), lat.tolist(), strict=True), start=1):
            file.add_node(mutable.Node(id=number, location=location))
        inner = 1 + graph.node_count + graph.shape_offsets
        for edge, (source, target) in enumerate(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)):
            nodes = [1 + source, *range(int(inner[edge]), int(inner[edge + 1])), 1 + target]
            speed_km_h = str(max(round(3.6 * float(graph.speed_m_s[edge])), 1))
            tags = {"highway": ROAD_CLASSES[graph.road_class[edge]], "oneway": "yes", "maxspeed": speed_km_h}
            file.add_way(mutable.Way(id=1 + edge, nodes=nodes, tags=tags))
    settings = get_config(tile_extract="", tile_dir=str(folder / "tiles"))
    # By default it cuts trips at 2 km, less than a minute's way, and refuses those of more than 200 km.
    settings["meili"]["default"]["breakage_distance"] = 20_000
    settings["service_limits"]["trace"].update(max_distance=10_000_000, max_shape=1_000_000)
    (folder / "valhalla.json").write_text(json.dumps(settings))
    program = Path(valhalla.__file__).parent / "bin" / "valhalla_build_tiles"
    subprocess.run([program, "-c", folder / "valhalla.json", folder / "roads.osm.pbf"], check=True, capture_output=True)


def match_with_valhalla(folder: Path, trips: int, every: int = 1) -> tuple[float, dict[str, float]]:
    """Match trips by Valhalla with the same radius and noise."""
    from valhalla import Actor

    truth = Truth.load(folder / "truth.parquet", trips=trips, every=every)
    actor = Actor(str(folder / "valhalla.json"))
    settings = {
        "costing": "auto",
        "shape_match": "map_snap",
        "trace_options": {"search_radius": RADIUS_M, "gps_accuracy": SIGMA_M},
        "filters": {"attributes": ["edge.way_id", "matched.edge_index", "matched.type"], "action": "include"},
    }
    edge = np.full(len(truth.trip), -1)
    start = time.perf_counter()
    for trip in np.unique(truth.trip):
        rows = np.flatnonzero(truth.trip == trip)
        columns = (truth.lat[rows], truth.lon[rows], truth.time_us[rows] / 1e6)
        points = [
            {"lat": lat, "lon": lon, "time": at_s}
            for lat, lon, at_s in zip(*(column.tolist() for column in columns), strict=True)
        ]
        try:
            answer = actor.trace_attributes({"shape": points, **settings})
        except RuntimeError:  # no point of the trip is near a road, or no way leads from one to the next
            continue
        ways = [found["way_id"] for found in answer["edges"]]
        for row, point in zip(rows.tolist(), answer["matched_points"], strict=True):
            if point["type"] != "unmatched" and point.get("edge_index", len(ways)) < len(ways):
                edge[row] = ways[point["edge_index"]] - 1
    speed = len(truth.trip) / (time.perf_counter() - start)
    return speed, how_right(truth, edge >= 0, is_true_edge(truth, edge))


def snap(folder: Path) -> tuple[float, dict[str, float]]:
    """Snap points to the nearest place."""
    from geoblanket.mobility.matching import snap_points
    from geoblanket.roads.places import choose_places

    places, truth = choose_places(RoadGraph.load(folder / "roads")), Truth.load(folder / "truth.parquet")
    start = time.perf_counter()
    points = snap_points(places, truth.trip, truth.time_us, truth.lat, truth.lon, snap_m=200.0, max_gap_s=180.0)
    return len(truth.trip) / (time.perf_counter() - start), {"matched": float(points.matched.mean())}


def whole_job(folder: Path, method: Any, workers: int) -> tuple[float, dict[str, float]]:
    """Read traces, match, resample and write walks; return points per second of all that."""
    from joblib.externals.loky import get_reusable_executor

    from geoblanket.mobility.map_matcher import MatchOptions
    from geoblanket.mobility.matching import match_traces

    start = time.perf_counter()
    with ProcessTree() as tree:
        summary = match_traces(
            folder / "traces.parquet",
            folder / "roads",
            folder / "walks.parquet",
            options=MatchOptions(method=method),
            workers=workers,
        )
    speed = summary.points / (time.perf_counter() - start)
    get_reusable_executor().shutdown()  # otherwise this process would wait for idle workers, for five minutes
    cpu_us = 1e6 * tree.cpu_s / summary.points
    return speed, {"matched": summary.matched_share, "cpu_us": cpu_us, "peak_mb": tree.peak_mb}


def main(arguments: Sequence[str]) -> None:
    """Print every figure."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure(prepare, folder)
        measure(prepare_valhalla, folder)
        others = {
            "nearest place": measure(snap, folder),
            "match --method hmm, 1 process": measure(whole_job, folder, "hmm", 1),
            "match --method hmm, 2 processes": measure(whole_job, folder, "hmm", 2),
            "match --method nearest, 1 process": measure(whole_job, folder, "nearest", 1),
        }
        _show("Map matching on the medium synthetic city", beside_peers(folder, TRIPS) | others)
        _show("The same, thinned to a point a minute", beside_peers(folder, TRIPS, THINNED))
    if len(arguments) == 2:
        match_cabs(*arguments)


def match_cabs(roads: str, cabs: str) -> None:
    """Print the figures of San Francisco."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure(prepare_cabs, folder, roads, cabs)
        measure(prepare_valhalla, folder)
        whole = {"match --method hmm, all cabs, 2 processes": measure(whole_job, folder, "hmm", 2)}
        _show("Map matching of San Francisco's cabs", beside_peers(folder, MANY_PEER_TRIPS) | whole)


def beside_peers(folder: Path, trips: int, every: int = 1) -> dict[str, Measured]:
    """Match a few trips and many by each matcher; leuvenmapmatching is too slow for many."""
    return {
        f"hidden Markov model, {PEER_TRIPS} trips, table built": measure(match_edges, folder, PEER_TRIPS, every),
        f"Valhalla, the same {PEER_TRIPS} trips": measure(match_with_valhalla, folder, PEER_TRIPS, every),
        f"leuvenmapmatching, the same {PEER_TRIPS} trips": measure(match_with_peer, folder, PEER_TRIPS, every),
        f"hidden Markov model, {trips:,} trips": measure(match_edges, folder, trips, every),
        PEER: measure(match_with_valhalla, folder, MANY_PEER_TRIPS, every),
    }


def _show(title: str, jobs: dict[str, Measured]) -> None:
    header = ("", "points/s", "× peer", "matched", "edge exact", "with ends", "edge driven", "within 15 m")
    show(
        title,
        (*header, "CPU µs/point", "peak MB"),
        [_row(label, job, jobs[PEER].result[0]) for label, job in jobs.items()],
    )


def _row(label: str, job: Measured, peer_speed: float) -> tuple[str, ...]:
    speed, shares = job.result
    names = ("matched", "exact", "with_ends", "driven", "within_15_m")
    cells = (f"{shares[name]:.1%}" if name in shares else "" for name in names)
    cpu_us = f"{shares['cpu_us']:.1f}" if "cpu_us" in shares else ""
    peak_mb = max(job.peak_mb, shares.get("peak_mb", 0.0))
    return label, f"{speed:,.0f}", f"{speed / peer_speed:,.2g}", *cells, cpu_us, f"{peak_mb:,.0f}"


if __name__ == "__main__":
    main(sys.argv[1:])
