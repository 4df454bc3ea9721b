"""Tables of utility losses, against the formula written down with NetworkX and NumPy.

Run `python -m benchmarks.loss`. It uses the paper's road graph of Porto where it is in ../shared/data, and a synthetic
city. Times leave imports and loading out; each line is a process of its own. Every peer's table is compared with ours
of the same tasks, number by number. Peers take a few tasks only and are compared by the time for each task, since
theirs grows with the tasks; `--full` gives NetworkX all tasks.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks._measure import Measured, measure, show
from geoblanket.loss.tasks import TaskPrior
from geoblanket.roads.graph import RoadGraph

PORTO = Path(__file__).parents[2] / "shared" / "data" / "porto"
SPACING_M = 250.0
ZONE = 60
VEHICLES = 50
TRIALS = 10_000
TRIAL_TASKS = 20
PEER_TASKS = 200


def prepare_porto(out: Path) -> str:
    """Write the road graph of Porto; return what it is."""
    from geoblanket.roads.importer import import_roads

    graph, _ = import_roads([PORTO / "nodes.csv", PORTO / "edges.csv"])
    graph.save(out)
    return f"Porto, {graph.node_count:,} nodes"


def prepare_city(out: Path) -> str:
    """Write the road graph of a synthetic city; return what it is."""
    from geoblanket.lab.city.model import make_city

    graph = make_city("medium").graph
    graph.save(out)
    return f"the medium city, {graph.node_count:,} nodes"


Result = tuple[float, int, tuple[int, ...]]
"""Seconds, how many tasks, and the shape of the table."""


def first_tasks(graph: RoadGraph, count: int | None) -> TaskPrior:
    """Return some nodes as equally probable tasks, or all."""
    nodes = np.arange(graph.node_count)[:count]
    return TaskPrior.from_counts(nodes, np.ones(len(nodes)))


def ours(path: Path, out: Path, zone: int | None, tasks: int | None, memory_mb: int) -> Result:
    """Save our table of travel costs for all places and the reported ones of a zone."""
    from geoblanket.loss.standard import TravelCost
    from geoblanket.loss.tasks import Effort
    from geoblanket.roads.places import choose_places

    graph = RoadGraph.load(path)
    places = choose_places(graph, spacing_m=SPACING_M)
    prior = first_tasks(graph, tasks)
    start = time.perf_counter()
    loss = TravelCost(graph, places, prior, effort=Effort(memory_bytes=memory_mb << 20))
    values = loss(np.arange(len(places)), np.arange(len(places))[:zone]).values
    seconds = time.perf_counter() - start
    np.save(out, values)
    return seconds, len(prior), values.shape


def with_networkx(path: Path, out: Path, zone: int, tasks: int | None) -> Result:
    """Do the same by a search of NetworkX for each task, and NumPy for all pairs of places."""
    import networkx as nx

    from geoblanket.roads.places import choose_places

    graph = RoadGraph.load(path)
    nodes = choose_places(graph, spacing_m=SPACING_M).nodes.tolist()
    backwards = nx.MultiDiGraph()
    backwards.add_weighted_edges_from(
        zip(graph.targets.tolist(), graph.sources.tolist(), graph.length_m.tolist(), strict=True)
    )
    reported = nodes[:zone]
    count = len(first_tasks(graph, tasks))
    start = time.perf_counter()
    values = np.zeros((len(nodes), len(reported)))
    for task in range(count):
        way = nx.single_source_dijkstra_path_length(backwards, task)
        one = np.array([way[node] for node in nodes])
        other = np.array([way[node] for node in reported])
        values += np.abs(one[:, None] - other[None, :]) / count / 1000
    seconds = time.perf_counter() - start
    np.save(out, values)
    return seconds, count, values.shape


def nearest_ours(path: Path, out: Path, zone: int, tasks: int | None) -> Result:
    """Save our error rates of finding the nearest of fifty vehicles."""
    from geoblanket.loss.standard import NearestVehicle
    from geoblanket.roads.places import choose_places

    graph = RoadGraph.load(path)
    places = choose_places(graph, spacing_m=SPACING_M)
    prior = first_tasks(graph, tasks)
    anywhere = np.full(len(places), 1 / len(places))
    start = time.perf_counter()
    values = NearestVehicle(graph, places, prior, anywhere, VEHICLES)(np.arange(len(places)), np.arange(zone)).values
    seconds = time.perf_counter() - start
    np.save(out, values)
    return seconds, len(prior), values.shape


def nearest_by_trials(path: Path, out: Path, zone: int, tasks: int) -> Result:
    """Do the same by trials, and distances by NetworkX."""
    import networkx as nx

    from geoblanket.roads.places import choose_places

    graph = RoadGraph.load(path)
    nodes = choose_places(graph, spacing_m=SPACING_M).nodes.tolist()
    backwards = nx.MultiDiGraph()
    backwards.add_weighted_edges_from(
        zip(graph.targets.tolist(), graph.sources.tolist(), graph.length_m.tolist(), strict=True)
    )
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    values = np.zeros((len(nodes), zone))
    for task in range(tasks):
        way = nx.single_source_dijkstra_path_length(backwards, task)
        distance = np.array([way[node] for node in nodes])
        shortest = distance[rng.integers(0, len(nodes), (TRIALS, VEHICLES - 1))].min(axis=1)
        wins = distance[:, None] <= shortest
        for reported in range(zone):
            values[:, reported] += (wins != wins[reported]).mean(axis=1) / tasks
    seconds = time.perf_counter() - start
    np.save(out, values)
    return seconds, tasks, values.shape


def row(what: str, found: Measured, reference: Measured | None = None, apart: str = "") -> tuple[str, ...]:
    """Format a line; a peer is shown as a multiple of our time for each task."""
    seconds, tasks, (true, reported) = found.result
    ratio = ""
    if reference is not None:
        ratio = f"{seconds / tasks / (reference.result[0] / reference.result[1]):,.0f} ×"
    return what, f"{true:,} × {reported:,}", f"{tasks:,}", f"{seconds:,.2f}", f"{found.peak_mb:,.0f}", ratio, apart


def largest_difference(one: Path, other: Path) -> str:
    """Return how far the numbers of two tables are apart at most."""
    return f"{np.abs(np.load(one) - np.load(other)).max():.1e}"


def travel_rows(path: Path, folder: Path, peer_tasks: int | None) -> list[tuple[str, ...]]:
    """Measure travel costs for a zone: ours, ours with little memory, and the peer; and ours for all places."""
    table, other = folder / "ours.npy", folder / "peer.npy"
    first = measure(ours, path, table, ZONE, None, 256)
    rows = [row("travel cost", first)]
    little = measure(ours, path, other, ZONE, None, 4)
    rows.append(row("  4 MB for distances", little, first, largest_difference(table, other)))
    measure(ours, path, table, ZONE, peer_tasks, 256)
    peer = measure(with_networkx, path, other, ZONE, peer_tasks)
    rows.append(row("  NetworkX and NumPy", peer, first, largest_difference(table, other)))
    rows.append(row("travel cost, all places", measure(ours, path, table, None, None, 256)))
    return rows


def nearest_rows(path: Path, folder: Path) -> list[tuple[str, ...]]:
    """Measure the nearest of fifty vehicles: ours, and trials for a few tasks."""
    table, other = folder / "ours.npy", folder / "peer.npy"
    first = measure(nearest_ours, path, table, ZONE, None)
    measure(nearest_ours, path, table, ZONE, TRIAL_TASKS)
    trials = measure(nearest_by_trials, path, other, ZONE, TRIAL_TASKS)
    return [
        row("nearest of 50 vehicles", first),
        row(f"  {TRIALS:,} trials for each task", trials, first, largest_difference(table, other)),
    ]


def main() -> None:
    """Measure on each city and print a table."""
    header = ("", "true × reported", "tasks", "seconds", "peak MB", "against ours", "largest difference")
    peer_tasks = None if "--full" in sys.argv else PEER_TASKS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cities = [prepare_city]
        if PORTO.is_dir():
            cities.insert(0, prepare_porto)
        else:
            print(f"Porto is skipped: its roads are not in {PORTO}")
        for prepare in cities:
            path = folder / "city.roads"
            city = measure(prepare, path).result
            rows = [*travel_rows(path, folder, peer_tasks), *nearest_rows(path, folder)]
            show(f"Tables of losses ({city})", header, rows)


if __name__ == "__main__":
    main()
