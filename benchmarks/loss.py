"""Tables of utility losses, against the formula written down with NetworkX and NumPy.

Run `python -m benchmarks.loss`. It uses the paper's road graph of Porto where it is in ../shared/data, and a synthetic
city. Times leave imports and loading out; each line is a process of its own. Every peer's table is compared with ours,
number by number.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks._measure import Measured, measure, show
from geoblanket.roads.graph import RoadGraph

PORTO = Path(__file__).parents[2] / "shared" / "data" / "porto"
SPACING_M = 250.0
ZONE = 60
VEHICLES = 50
TRIALS = 10_000
TRIAL_TASKS = 20


def prepare_porto(out: Path) -> str:
    """Write the road graph of Porto; return what it is."""
    from geoblanket.roads.importer import import_roads

    graph, _ = import_roads([PORTO / "nodes.csv", PORTO / "edges.csv"])
    graph.save(out)
    return f"Porto, all {graph.node_count:,} nodes as tasks"


def prepare_city(out: Path) -> str:
    """Write the road graph of a synthetic city; return what it is."""
    from geoblanket.city.model import make_city

    graph = make_city("medium").graph
    graph.save(out)
    return f"the medium city, all {graph.node_count:,} nodes as tasks"


def ours(path: Path, zone: int | None, out: Path, memory_mb: int, workers: int | None) -> tuple[float, tuple[int, int]]:
    """Save our table of travel costs for all places and the reported ones of a zone; return its seconds and shape."""
    from geoblanket.loss.over_tasks import Effort
    from geoblanket.loss.tasks import TaskPrior
    from geoblanket.loss.travel_cost import TravelCost
    from geoblanket.roads.places import choose_places

    graph = RoadGraph.load(path)
    places = choose_places(graph, spacing_m=SPACING_M)
    tasks = TaskPrior.uniform(graph)
    reported = np.arange(len(places))[:zone]
    start = time.perf_counter()
    loss = TravelCost(graph, places, tasks, effort=Effort(memory_bytes=memory_mb << 20, workers=workers))
    values = loss(np.arange(len(places)), reported).values
    seconds = time.perf_counter() - start
    np.save(out, values)
    return seconds, (len(places), len(reported))


def with_networkx(path: Path, zone: int, out: Path) -> tuple[float, tuple[int, int]]:
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
    start = time.perf_counter()
    values = np.zeros((len(nodes), len(reported)))
    for task in range(graph.node_count):
        way = nx.single_source_dijkstra_path_length(backwards, task)
        one = np.array([way[node] for node in nodes])
        other = np.array([way[node] for node in reported])
        values += np.abs(one[:, None] - other[None, :]) / graph.node_count / 1000
    seconds = time.perf_counter() - start
    np.save(out, values)
    return seconds, (len(nodes), len(reported))


def nearest_ours(path: Path, zone: int, task_count: int | None, out: Path) -> tuple[float, tuple[int, int]]:
    """Save our error rates of finding the nearest of fifty vehicles; return the seconds and the shape."""
    from geoblanket.loss.nearest_vehicle import NearestVehicle
    from geoblanket.loss.tasks import TaskPrior
    from geoblanket.roads.places import choose_places

    graph = RoadGraph.load(path)
    places = choose_places(graph, spacing_m=SPACING_M)
    tasks = np.arange(graph.node_count)[:task_count]
    prior = np.full(len(places), 1 / len(places))
    start = time.perf_counter()
    loss = NearestVehicle(graph, places, TaskPrior.from_counts(tasks, np.ones(len(tasks))), prior, VEHICLES)
    values = loss(np.arange(len(places)), np.arange(zone)).values
    seconds = time.perf_counter() - start
    np.save(out, values)
    return seconds, values.shape


def nearest_by_trials(path: Path, zone: int, task_count: int, out: Path) -> tuple[float, tuple[int, int]]:
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
    for task in range(task_count):
        way = nx.single_source_dijkstra_path_length(backwards, task)
        distance = np.array([way[node] for node in nodes])
        shortest = distance[rng.integers(0, len(nodes), (TRIALS, VEHICLES - 1))].min(axis=1)
        wins = distance[:, None] <= shortest
        for reported in range(zone):
            values[:, reported] += (wins != wins[reported]).mean(axis=1) / task_count
    seconds = time.perf_counter() - start
    np.save(out, values)
    return seconds, values.shape


def row(what: str, found: Measured, reference: tuple[float, Path] | None, table: Path) -> tuple[str, ...]:
    """Format a line; a peer is shown as a multiple of our time, and by how far its numbers are from ours."""
    seconds, (true, reported) = found.result
    ratio = apart = ""
    if reference is not None:
        ratio = f"{seconds / reference[0]:,.0f} ×"
        apart = f"{np.abs(np.load(table) - np.load(reference[1])).max():.1e}"
    return what, f"{true:,} × {reported:,}", f"{seconds:,.2f}", f"{found.peak_mb:,.0f}", ratio, apart


def travel_rows(path: Path, folder: Path) -> list[tuple[str, ...]]:
    """Measure travel costs for a zone: ours, ours with little memory, and the peer; and ours for all places."""
    table, other = folder / "ours.npy", folder / "peer.npy"
    first = measure(ours, path, ZONE, table, 256, 1)
    reference = first.result[0], table
    rows = [row("travel cost", first, None, table)]
    rows.append(row("  4 MB for distances", measure(ours, path, ZONE, other, 4, 1), reference, other))
    rows.append(row("  NetworkX and NumPy", measure(with_networkx, path, ZONE, other), reference, other))
    rows.append(row("travel cost, all places", measure(ours, path, None, table, 256, 1), None, table))
    rows.append(row("  all cores", measure(ours, path, None, other, 256, None), None, other))
    return rows


def nearest_rows(path: Path, folder: Path) -> list[tuple[str, ...]]:
    """Measure the nearest of fifty vehicles: ours, and trials for a few tasks."""
    table, other = folder / "ours.npy", folder / "peer.npy"
    rows = [row("nearest of 50 vehicles", measure(nearest_ours, path, ZONE, None, table), None, table)]
    few = measure(nearest_ours, path, ZONE, TRIAL_TASKS, table)
    rows.append(row(f"  {TRIAL_TASKS} tasks only", few, None, table))
    trials = measure(nearest_by_trials, path, ZONE, TRIAL_TASKS, other)
    rows.append(row(f"  {TRIAL_TASKS} tasks, {TRIALS:,} trials", trials, (few.result[0], table), other))
    return rows


def main() -> None:
    """Measure on each city and print a table."""
    header = ("", "true × reported", "seconds", "peak MB", "against ours", "largest difference")
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
            rows = [*travel_rows(path, folder), *nearest_rows(path, folder)]
            show(f"Tables of losses ({city})", header, rows)


if __name__ == "__main__":
    main()
