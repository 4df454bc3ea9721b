"""Road distances, nearest places and zones, against NetworkX, plain SciPy and brute force.

Run `python -m benchmarks.distances`. It uses the road network of Rome where it is in ../shared/data, else the large
synthetic city. Times leave imports and loading out; each line is a process of its own.
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._measure import Measured, measure, show
from geoblanket._arrays import Floats, Ints
from geoblanket.roads.graph import RoadGraph

DATA = Path(__file__).parents[2] / "shared" / "data"
MANY = 2_000
NEAR_M = 1_500.0
POINTS = 1_000_000


def prepare(out: Path) -> str:
    """Write the road graph to measure on; return the city's name."""
    from geoblanket.roads.importer import import_roads

    if (DATA / "rome").is_dir():
        files, city = [DATA / "rome" / "nodes.csv", DATA / "rome" / "edges.csv.gz"], "Rome"
    else:
        from geoblanket.lab.city.folder import write_osm
        from geoblanket.lab.city.model import make_city

        files, city = [out.with_name("large.osm.pbf")], "the large city"
        write_osm(make_city("large"), files[0])
    graph, _ = import_roads(files)
    graph.save(out)
    return f"{city}, {graph.node_count:,} nodes"


def some_nodes(graph: RoadGraph, count: int) -> Ints:
    """Return `count` different nodes, the same each time."""
    return np.random.default_rng(0).permutation(graph.node_count)[:count]


def ours(path: Path, sources: int, targets: int | None, workers: int | None) -> tuple[float, float]:
    """Return the seconds of our matrix, and the mean of its finite distances."""
    from geoblanket.roads.distances import road_distances

    graph = RoadGraph.load(path)
    rows = some_nodes(graph, sources)
    columns = None if targets is None else some_nodes(graph, targets)
    start = time.perf_counter()
    matrix = road_distances(graph, rows, columns, workers=workers)
    return time.perf_counter() - start, float(matrix[np.isfinite(matrix)].mean())


def plain_scipy(path: Path, sources: int, targets: int | None) -> tuple[float, float]:
    """Do the same by one call of SciPy's Dijkstra."""
    from scipy.sparse.csgraph import dijkstra

    from geoblanket.roads.distances import weight_matrix

    graph = RoadGraph.load(path)
    start = time.perf_counter()
    matrix = dijkstra(weight_matrix(graph), indices=some_nodes(graph, sources))
    if targets is not None:
        matrix = matrix[:, some_nodes(graph, targets)]
    return time.perf_counter() - start, float(matrix[np.isfinite(matrix)].mean())


def with_networkx(path: Path, sources: int, targets: int | None) -> tuple[float, float]:
    """Do the same by NetworkX, one search for each source."""
    import networkx as nx

    graph = RoadGraph.load(path)
    roads = nx.MultiDiGraph()
    roads.add_weighted_edges_from(
        zip(graph.sources.tolist(), graph.targets.tolist(), graph.length_m.tolist(), strict=True)
    )
    columns = range(graph.node_count) if targets is None else some_nodes(graph, targets).tolist()
    found = []
    start = time.perf_counter()
    for node in some_nodes(graph, sources).tolist():
        lengths = nx.single_source_dijkstra_path_length(roads, node)
        found += [lengths[column] for column in columns if column in lengths]
    return time.perf_counter() - start, float(np.mean(found))


def near_ours(path: Path, sources: int) -> tuple[float, float]:
    """Return the seconds to find all nodes within 1.5 km of each source, and their mean distance."""
    from geoblanket.roads.distances import distances_within

    graph = RoadGraph.load(path)
    start = time.perf_counter()
    table = distances_within(graph, some_nodes(graph, sources), limit=NEAR_M)
    return time.perf_counter() - start, float(table.distances.mean())


def near_scipy(path: Path, sources: int) -> tuple[float, float]:
    """Do the same by SciPy's bounded Dijkstra, a hundred sources at a time."""
    from scipy.sparse.csgraph import dijkstra

    from geoblanket.roads.distances import weight_matrix

    graph = RoadGraph.load(path)
    start = time.perf_counter()
    matrix = weight_matrix(graph)
    found = []
    for nodes in np.array_split(some_nodes(graph, sources), max(1, sources // 100)):
        rows, _ = dijkstra(matrix, indices=nodes, limit=NEAR_M, return_predecessors=True)
        found.append(rows[np.isfinite(rows)])
    return time.perf_counter() - start, float(np.concatenate(found).mean())


def points(graph: RoadGraph, count: int) -> tuple[Floats, Floats]:
    """Return GPS-like points: near nodes, in no order."""
    rng = np.random.default_rng(1)
    node = rng.integers(0, graph.node_count, count)
    return graph.lat[node] + rng.normal(0, 3e-4, count), graph.lon[node] + rng.normal(0, 3e-4, count)


def nearest_ours(path: Path, count: int) -> tuple[float, float]:
    """Return the seconds to find the nearest place of each point, and the mean distance."""
    from geoblanket.roads.places import choose_places

    graph = RoadGraph.load(path)
    places, (lat, lon) = choose_places(graph), points(graph, count)
    start = time.perf_counter()
    _, distance = places.nearest(lat, lon)
    return time.perf_counter() - start, float(distance.mean())


def nearest_by_numpy(path: Path, count: int) -> tuple[float, float]:
    """Do the same by the distances to all places, a point at a time."""
    from geoblanket._geodesy import haversine_m

    graph = RoadGraph.load(path)
    lat, lon = points(graph, count)
    start = time.perf_counter()
    distance = [haversine_m(lat[i], lon[i], graph.lat, graph.lon).min() for i in range(count)]
    return time.perf_counter() - start, float(np.mean(distance))


def nearest_by_a_loop(path: Path, count: int) -> tuple[float, float]:
    """Do the same in plain Python."""
    graph = RoadGraph.load(path)
    lat, lon = points(graph, count)
    nodes = [(math.radians(a), math.radians(b)) for a, b in zip(graph.lat.tolist(), graph.lon.tolist(), strict=True)]
    start = time.perf_counter()
    distance = []
    for i in range(count):
        phi, lam = math.radians(lat[i]), math.radians(lon[i])
        least = min(
            math.sin((a - phi) / 2) ** 2 + math.cos(phi) * math.cos(a) * math.sin((b - lam) / 2) ** 2 for a, b in nodes
        )
        distance.append(2 * 6_371_008.8 * math.asin(math.sqrt(least)))
    return time.perf_counter() - start, float(np.mean(distance))


def zones(path: Path, spacing_m: float, max_places: int) -> tuple[float, tuple[int, int, int, int]]:
    """Return the seconds to choose places and cut zones; how many places and zones, the smallest and the largest."""
    from geoblanket.roads.places import choose_places
    from geoblanket.roads.zones import partition_zones

    graph = RoadGraph.load(path)
    start = time.perf_counter()
    places = choose_places(graph, spacing_m=spacing_m)
    cut = partition_zones(graph, places, max_places=max_places)
    return time.perf_counter() - start, (len(places), len(cut), int(cut.sizes.min()), int(cut.sizes.max()))


def row(what: str, measured: Measured, count: int, unit: str, ours_each: float | None) -> tuple[str, ...]:
    """Format a line; a peer is also shown as a multiple of ours, by the time for each source or point."""
    seconds, mean = measured.result
    each = seconds / count
    rate = f"{1 / each:,.0f} points/s" if unit == "points" else f"{1000 * each:,.3f} ms"
    ratio = "" if ours_each is None else f"{each / ours_each:,.1f} ×"
    return what, f"{count:,}", f"{seconds:.2f}", rate, f"{mean:,.2f}", f"{measured.peak_mb:,.0f}", ratio


def compared(lines: list[tuple[str, Any, int, tuple[Any, ...]]], *, unit: str, path: Path) -> list[tuple[str, ...]]:
    """Measure jobs on so many sources or points each; the first is ours, the others its peers."""
    rows: list[tuple[str, ...]] = []
    ours_each = None
    for what, job, count, options in lines:
        measured = measure(job, path, count, *options)
        rows.append(row(what, measured, count, unit, ours_each))
        ours_each = ours_each or measured.result[0] / count
    return rows


def main() -> None:
    """Measure everything and print three tables."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "city.roads"
        city = measure(prepare, path).result
        header = ("", "sources", "seconds", "each", "mean m", "peak MB", "against ours")
        distances = [
            *compared(
                [
                    ("to all nodes, one call", ours, 50, (None, 1)),
                    ("  SciPy", plain_scipy, 50, (None,)),
                    ("  NetworkX", with_networkx, 5, (None,)),
                ],
                unit="sources",
                path=path,
            ),
            *compared(
                [
                    (f"to {MANY:,} nodes, all cores", ours, MANY, (MANY, None)),
                    (f"to {MANY:,} nodes, one process", ours, MANY, (MANY, 1)),
                    ("  SciPy, one process", plain_scipy, MANY, (MANY,)),
                    ("  NetworkX", with_networkx, 5, (MANY,)),
                ],
                unit="sources",
                path=path,
            ),
            *compared(
                [
                    ("to 50 nodes", ours, MANY, (50, 1)),
                    ("  SciPy", plain_scipy, MANY, (50,)),
                ],
                unit="sources",
                path=path,
            ),
            *compared(
                [
                    ("within 1.5 km, with the ways", near_ours, 10_000, ()),
                    ("  SciPy", near_scipy, 10_000, ()),
                ],
                unit="sources",
                path=path,
            ),
        ]
        show(f"Road distances ({city})", header, distances)
        nearest = compared(
            [
                ("nearest place", nearest_ours, POINTS, ()),
                ("  NumPy, all places of a point", nearest_by_numpy, 500, ()),
                ("  plain Python", nearest_by_a_loop, 20, ()),
            ],
            unit="points",
            path=path,
        )
        show(
            f"Nearest place ({city})",
            ("", "points", "seconds", "", "mean m", "peak MB", "against ours"),
            nearest,
        )
        made = [
            (spacing, most, measure(zones, path, spacing, most)) for spacing, most in ((0, 200), (0, 50), (250, 200))
        ]
        show(
            f"Places and zones ({city})",
            ("", "places", "zones", "smallest", "largest", "seconds", "peak MB"),
            [
                (
                    f"{spacing} m apart, at most {most} in a zone"
                    if spacing
                    else f"every node, at most {most} in a zone",
                    *(f"{count:,}" for count in measured.result[1]),
                    f"{measured.result[0]:.2f}",
                    f"{measured.peak_mb:,.0f}",
                )
                for spacing, most, measured in made
            ],
        )


if __name__ == "__main__":
    main()
