"""The linear program that the search solves, and coarser ones made of it by merging near rows into clusters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra, minimum_spanning_tree

from geoblanket._arrays import Floats, Positions
from geoblanket.mechanism.solver.bounds import slack_below
from geoblanket.mechanism.solver.cone import Cone

__all__ = ["Clusters", "LinearProgram"]

_NEIGHBOURS = 24
"""Centres that a row's columns are carried from: more make them smoother, and the matrices fuller."""
_SMOOTHNESS = 0.6
"""Width of the bell of these centres' weights, as a share of the distance of the first centre that has none."""
_INSIDE = 1e-3
"""Of a pair's slack, what must be left for a column to count as well inside the cone: a start nearer to its edge only
allows short steps."""


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """Minimise Σ w·q over columns in the cone whose rows sum to 1.

    Parameters
    ----------
    cone
        The rows' cone.
    cost
        w = prior × loss, shape (outputs, rows).
    prior
        Shape (rows,); not necessarily of sum 1.
    """

    cone: Cone
    cost: Floats
    prior: Floats

    @cached_property
    def weight(self) -> Floats:
        """Weights u > 0 on rows for pricing: the prior, evened out so that rows of prior 0 count too."""
        total = float(self.prior.sum())
        even = np.full(len(self.prior), 1.0 / len(self.prior))
        return 0.5 * self.prior / total + 0.5 * even if total > 0 else even

    def reduced_cost(self, outputs: Positions, duals: Floats) -> Floats:
        """Return w − λ for some outputs, rounded down by the errors of w and of the difference.

        The margins of the prices made of it know nothing of these.
        """
        cost = self.cost[outputs]
        gained = np.broadcast_to(np.maximum(duals, 0.0), cost.shape)
        given = np.broadcast_to(np.maximum(-duals, 0.0), cost.shape)
        return slack_below(cost, gained, given, rows=self.cone.original_rows)

    @cached_property
    def chained(self) -> Floats:
        """Exponents along the best chain of constrained pairs, finite if the rows are connected (approximate)."""
        exponent = self.cone.exponent
        if self.cone.constrained.sum() == self.cone.size * (self.cone.size - 1):
            return exponent
        near = np.where(self.cone.starting_pairs, exponent, 0.0)
        constrained = np.where(self.cone.constrained, exponent, 0.0)
        graph = csr_array(near).maximum(minimum_spanning_tree(csr_array(constrained)))
        return np.minimum(exponent, dijkstra(graph, directed=False))

    def order_of_centres(self, count: int) -> Positions:
        """Return rows, each as far as possible from those before: the first n are good centres of n clusters."""
        centres = [int(self.prior.argmax())]
        nearest = self.chained[centres[0]].copy()
        nearest[centres[0]] = 0.0
        while len(centres) < count:
            farthest = int(nearest.argmax())
            centres.append(farthest)
            nearest = np.minimum(nearest, self.chained[farthest])
            nearest[farthest] = 0.0
        return np.array(centres)


class Clusters:
    """The rows merged around centres, each with the constraints of its centre.

    Parameters
    ----------
    fine
        The rows to merge.
    centres
        The rows that stand for their clusters.
    """

    def __init__(self, fine: LinearProgram, centres: Positions) -> None:
        self.fine, self.centres = fine, centres
        distance = fine.chained[:, centres].copy()
        distance[centres, np.arange(len(centres))] = 0.0
        self.label: Positions = distance.argmin(axis=1)
        cost = np.zeros((len(centres), len(fine.cost)))
        np.add.at(cost, self.label, fine.cost.T)
        prior = np.bincount(self.label, fine.prior, len(centres)).astype(np.float64)
        exponent = fine.chained[np.ix_(centres, centres)].copy()
        np.fill_diagonal(exponent, 0.0)
        self.program = LinearProgram(Cone(exponent, fine.cone.original_rows), np.ascontiguousarray(cost.T), prior)

    def smooth_weights(self, targets: Positions) -> csr_array:
        """Return weights, shape (targets, centres), rows of sum 1, that carry columns from centres to other rows."""
        distance = self.fine.chained[np.ix_(targets, self.centres)].copy()
        distance[targets[:, None] == self.centres] = 0.0
        count = min(_NEIGHBOURS, len(self.centres) - 1)
        near = np.argsort(distance, axis=1, kind="stable")[:, : count + 1]
        sorted_distance = np.take_along_axis(distance, near, axis=1)
        relative = sorted_distance[:, :count] / sorted_distance[:, count:]
        weight = np.exp(-0.5 * (relative / _SMOOTHNESS) ** 2) * (1.0 - relative) + 1e-12
        weight /= weight.sum(axis=1, keepdims=True)
        first = np.arange(0, weight.size + 1, count)
        return csr_array((weight.ravel(), near[:, :count].ravel(), first), shape=(len(targets), len(self.centres)))

    def lift(self, columns: Floats, targets: Positions, cone: Cone) -> Floats:
        """Carry columns, shape (outputs, centres), to other rows, evened out until they lie well inside their cone."""
        weights = self.smooth_weights(targets)
        lifted: Floats = (weights @ self.evened(columns, weights, cone).T).T
        return lifted

    def evened(self, columns: Floats, weights: csr_array, cone: Cone) -> Floats:
        """Return columns as near to constant ones as it takes for `weights` to carry them well inside a cone."""
        constant = np.repeat(columns.mean(axis=1)[:, None], columns.shape[1], axis=1)
        for share in (0.2, 0.3, 0.4, 0.6, 0.8):
            evened: Floats = (1.0 - share) * columns + share * constant
            evened /= evened.sum(axis=0)
            if _well_inside(cone, (weights @ evened.T).T):
                return evened
        alike: Floats = constant / constant.sum(axis=0)
        return alike

    def lift_duals(self, duals: Floats, columns: Floats, outputs: Positions) -> Floats:
        """Carry the multipliers of the clusters to the rows, such that they sum to the same in each cluster.

        Within a cluster they follow what the cluster's mechanism (`columns`, shape (outputs, centres)) costs each row;
        the rest is shared out by the prior.
        """
        size = np.bincount(self.label)
        mass = self.program.prior[self.label]
        even = 1.0 / size[self.label]
        share = np.where(mass > 0.0, self.fine.prior / np.where(mass > 0.0, mass, 1.0), even)
        rest = duals - (columns * self.program.cost[outputs]).sum(axis=0)
        lifted: Floats = share * rest[self.label] + (columns[:, self.label] * self.fine.cost[outputs]).sum(axis=0)
        return lifted


def _well_inside(cone: Cone, columns: Floats) -> bool:
    limit = 1.0 + (1.0 - _INSIDE) * cone.excess
    return all(bool((column[:, None] < limit * column).all()) for column in columns)
