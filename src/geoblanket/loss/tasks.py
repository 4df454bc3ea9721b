"""Where tasks are, and means over them of the difference that a wrong place makes.

The mean is Σ_task p_task |f(l, task) − f(y, task)|, where f(place, task) follows from the road distances *from* places
*to* tasks. For all tasks together the sum is an L1 distance between rows of f, one row a place, which SciPy computes
pair by pair without the interpreter's lock. Tasks come in blocks, so that memory stays within a cap however many there
are; in each block the searches start from the side with fewer nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.spatial.distance import cdist

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Indices
from geoblanket._display import counted, options_repr, short_repr
from geoblanket._workers import count_workers
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.loss.place_loss import LossTable, check_places
from geoblanket.roads.distances import Weight, check_nodes, road_distances
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places
from geoblanket.roads.simplification import in_largest_part

_SUM_TOLERANCE = 1e-9
_LARGEST_NODE = 2**31 - 1  # what 32 bits hold


@checked
@dataclass(frozen=True, eq=False)
class TaskPrior:
    """How probable a task is at each node of the roads.

    Nodes given twice become one, and nodes of weight zero are left out.

    Parameters
    ----------
    nodes
        Node indices of the road graph, shape (T,).
    weight
        How probable a task is at each, shape (T,); sums to 1 within 1e-9 (and is then divided by its sum).
    """

    nodes: Indices
    """Nodes where there may be a task, ascending, shape (T,)."""
    weight: Floats
    """Probability of a task at each, positive, shape (T,); sums to 1."""

    def __post_init__(self) -> None:
        nodes, weight = _check_shapes(self.nodes, self.weight)
        total = float(weight.sum())
        if not abs(total - 1) <= _SUM_TOLERANCE:
            raise ParameterError(
                f"The weights of tasks must sum to 1. They sum to {total:.9g} instead. "
                "Divide them by their sum, or use TaskPrior.from_counts."
            )
        different, which = np.unique(nodes, return_inverse=True)
        sums = np.bincount(which, weights=weight)
        object.__setattr__(self, "nodes", different[sums > 0])
        object.__setattr__(self, "weight", sums[sums > 0] / sums.sum())
        self.nodes.setflags(write=False)
        self.weight.setflags(write=False)

    def __len__(self) -> int:
        return len(self.nodes)

    @classmethod
    @checked
    def uniform(cls, graph: RoadGraph) -> TaskPrior:
        """Take every node of the roads as equally probable."""
        return cls.from_counts(np.arange(graph.node_count), np.ones(graph.node_count))

    @classmethod
    @checked
    def from_counts(cls, nodes: npt.ArrayLike, counts: npt.ArrayLike) -> TaskPrior:
        """Weight each node by its frequency.

        Parameters
        ----------
        nodes
            Node indices, shape (T,).
        counts
            How often there was a task at each, not negative, shape (T,).
        """
        where, often = _check_shapes(nodes, counts)
        total = often.sum()
        if not total > 0:
            raise ParameterError("There must be at least one task. All counts are zero, or there are none.")
        return cls(where, often / total)

    @classmethod
    @checked
    def from_pick_ups(cls, walks: pl.LazyFrame, places: Places) -> TaskPrior:
        """Take tasks to be where trips began.

        Parameters
        ----------
        walks
            Steps of walks (`WALKS_SCHEMA`). A trip that is in several walks counts once, where its first one began.
        places
            The places of the walks.
        """
        first = (
            walks.filter(pl.col("step") == 0)
            .group_by("vehicle", "trip")
            .agg(pl.col("place").sort_by("time").first())
            .group_by("place")
            .len()
            .sort("place")
            .collect(engine="streaming")
        )
        if first.is_empty():
            raise InputError("there are no walks, so there are no pick-ups", hint="Give walks with at least one step")
        place = check_places(first["place"].to_numpy(), len(places), "places of the walks")
        return cls.from_counts(places.nodes[place], first["len"].to_numpy())

    def within_largest_part(self, graph: RoadGraph) -> TaskPrior:
        """Leave out tasks that lie outside the largest strongly connected part of the roads.

        What is left has the same proportions. Every place of that part can reach every task of it.
        """
        inside = in_largest_part(graph)[check_nodes(graph, self.nodes, "tasks")]
        if not inside.any():
            raise InputError(
                f"none of the {len(self)} tasks lies in the largest strongly connected part of the roads",
                hint="Give other tasks",
            )
        return TaskPrior.from_counts(self.nodes[inside], self.weight[inside])

    def sample(self, size: int, *, seed: int) -> TaskPrior:
        """Draw `size` tasks independently, and return how often each was drawn, divided by `size`."""
        often = np.random.default_rng(seed).multinomial(size, self.weight)
        return TaskPrior.from_counts(self.nodes, often)

    def __repr__(self) -> str:
        return short_repr(self, f"tasks at {counted(len(self), 'node')}")


def _check_shapes(nodes: npt.ArrayLike, weight: npt.ArrayLike) -> tuple[Indices, Floats]:
    where, often = np.asarray(nodes), np.asarray(weight, np.float64)
    if where.ndim != 1 or where.shape != often.shape:
        raise ParameterError(
            "Tasks must be one-dimensional arrays of nodes and weights, of one length. "
            f"Got shapes {where.shape} and {often.shape} instead."
        )
    if len(where) and (not np.issubdtype(where.dtype, np.integer) or where.min() < 0 or where.max() > _LARGEST_NODE):
        raise ParameterError("The nodes of tasks must be node indices, whole numbers from 0.")
    wrong = np.flatnonzero(~(np.isfinite(often) & (often >= 0)))
    if len(wrong):
        raise ParameterError(
            f"The weights of tasks must be finite and not negative. {len(wrong)} of {len(often)} are not, "
            f"the first at position {wrong[0]}."
        )
    return where.astype(np.int32), often


_SECONDS_PER_DIFFERENCE = 1e-9
"""What one |f(l, task) − f(y, task)| takes, to judge whether more threads pay."""
_PART_BYTES = 16 << 20
"""Of the table that a thread adds to at once."""


@checked
@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much work and memory a mean over tasks may take.

    Parameters
    ----------
    max_tasks
        Up to this number of tasks, the mean is exact. Of more, this number is drawn, and the mean has a standard error.
    seed
        Of the draw.
    memory_bytes
        Memory for road distances, beside the result and 64 MiB for searches. A smaller cap may mean more searches; the
        result differs by no more than rounding.
    workers
        How many processes to search with and threads to compute with; None for as many as pay.
    """

    max_tasks: int = 50_000
    seed: int = 0
    memory_bytes: int = 256 << 20
    workers: int | None = 1

    def __post_init__(self) -> None:
        if self.max_tasks < 2:
            raise ParameterError(f"The most tasks must be 2 or more. Got {self.max_tasks} instead.")
        if self.memory_bytes < 1:
            raise ParameterError(f"The memory must be 1 byte or more. Got {self.memory_bytes} instead.")
        if self.workers is not None and self.workers < 1:
            raise ParameterError(f"The number of workers must be 1 or more, or None. Got {self.workers} instead.")

    def __repr__(self) -> str:
        return options_repr(self)


def check_roads(graph: RoadGraph, places: Places, tasks: TaskPrior, by: Weight) -> None:
    """Raise an error unless places and tasks belong to the roads, and `by` is a way to measure them."""
    if by not in ("length", "time"):
        raise ParameterError(f"Travel must be measured by 'length' or 'time'. Got {by!r} instead.")
    if graph.identity != places.roads_identity:
        raise MismatchError("The places belong to another road graph. Choose them on this one.")
    check_nodes(graph, tasks.nodes, "tasks")


def mean_difference(
    graph: RoadGraph,
    tasks: TaskPrior,
    true_nodes: Indices,
    reported_nodes: Indices,
    *,
    by: Weight,
    effort: Effort,
    other_nodes: Indices | None = None,
    profile: Callable[[Floats, Floats], Floats],
) -> LossTable:
    """Return the mean over tasks of |f(l, task) − f(y, task)| for true nodes l and reported nodes y.

    Parameters
    ----------
    true_nodes, reported_nodes
        Nodes l and y, shapes (L,) and (K,).
    by
        Measure the roads by `length` (metres) or `time` (seconds).
    other_nodes
        Nodes whose distances f needs too, shape (V,). They need not reach every task.
    profile
        Given the distances from the true and then the reported nodes (L + K, tasks) and those from the other nodes
        (V, tasks) to some tasks, returns f, of the shape of the first. It may overwrite both.

    Raises
    ------
    InputError
        If a task cannot be reached from one of the true or reported nodes.
    """
    sampled = len(tasks) > effort.max_tasks
    used = tasks.sample(effort.max_tasks, seed=effort.seed) if sampled else tasks
    shape = len(true_nodes), len(reported_nodes)
    mean, square = np.zeros(shape), np.zeros(shape if sampled else (0, 0))
    if 0 in shape:
        return LossTable(mean)
    others = np.empty(0, np.int32) if other_nodes is None else other_nodes
    places = np.concatenate([true_nodes, reported_nodes])
    for part, to_tasks, from_others in _distance_blocks(graph, used.nodes, places, others, by=by, effort=effort):
        weight, f = used.weight[part], profile(to_tasks, from_others)
        _add_differences(mean, f * weight, "cityblock", effort.workers)
        if sampled:
            _add_differences(square, f * np.sqrt(weight), "sqeuclidean", effort.workers)
    if not sampled:
        return LossTable(mean)
    # The variance of one draw is estimated with n - 1, and that of the mean of n draws is 1/n of it.
    variance = np.maximum(square - mean**2, 0.0) / (effort.max_tasks - 1)
    return LossTable(mean, np.sqrt(variance))


def _distance_blocks(
    graph: RoadGraph, tasks: Indices, places: Indices, others: Indices, *, by: Weight, effort: Effort
) -> Iterator[tuple[slice, Floats, Floats]]:
    """Yield the tasks in parts, with the distances to them from places and from other nodes, metres or seconds."""
    nodes, where = np.unique(np.concatenate([places, others]), return_inverse=True)
    # Of each task: the distances, those that f is made from, and f times the weight of the task.
    bytes_per_task = 8 * (len(nodes) + 2 * len(places) + len(others))
    size = max(1, effort.memory_bytes // bytes_per_task)
    for start in range(0, len(tasks), size):
        part = slice(start, start + size)
        distances = road_distances(
            graph, nodes, tasks[part], weight=by, workers=effort.workers, memory_cap_bytes=8 * len(nodes) * size
        ).astype(np.float64, copy=False)
        to_tasks, from_others = distances[where[: len(places)]], distances[where[len(places) :]]
        _check_reachable(graph, places, tasks, start, to_tasks)
        del distances
        yield part, to_tasks, from_others


def _check_reachable(graph: RoadGraph, places: Indices, tasks: Indices, start: int, distances: Floats) -> None:
    """Raise InputError if some of the tasks from number `start` on cannot be reached from all places."""
    cut_off = ~np.isfinite(distances)
    if cut_off.any():
        lost = np.flatnonzero(cut_off.any(axis=0))
        traps = np.unique(places[cut_off.any(axis=1)])
        raise InputError(
            f"at least {len(lost)} of {len(tasks)} tasks cannot be reached from {len(traps)} of the places "
            f"(for example not the node with id {graph.node_ids[tasks[start + lost[0]]]} "
            f"from the one with id {graph.node_ids[traps[0]]})",
            hint="Import the roads without keep_all, so that only their largest strongly connected part is kept, or "
            "take tasks and places within it (TaskPrior.within_largest_part)",
        )


def _add_differences(
    total: Floats, f: Floats, metric: Literal["cityblock", "sqeuclidean"], workers: int | None
) -> None:
    """Add the distances between the first rows of `f` (true places) and the others (reported) to `total`."""
    rows, columns = f[: len(total)], f[len(total) :]
    seconds = total.size * f.shape[1] * _SECONDS_PER_DIFFERENCE
    threads = count_workers(workers, tasks=len(rows), seconds=seconds)

    def add(part: slice) -> None:
        total[part] += cdist(rows[part], columns, metric)

    parts = min(len(rows), max(threads, -(-total.nbytes // _PART_BYTES)))
    edges = np.linspace(0, len(rows), parts + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(add, (slice(start, stop) for start, stop in pairwise(edges))))
