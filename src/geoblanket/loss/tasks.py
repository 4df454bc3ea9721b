"""Where tasks are: the places to which the service sends vehicles, and how probable each is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Indices
from geoblanket._display import counted, short_repr
from geoblanket.errors import InputError, ParameterError
from geoblanket.loss.place_loss import check_places
from geoblanket.roads.distances import check_nodes
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places
from geoblanket.roads.simplification import in_largest_part

__all__ = ["TaskPrior"]

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
        """Make each node as probable as it is frequent.

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
