"""The linear program that the search solves: its cone, proven bounds, and coarser programs made by merging rows.

The cone is shared by all outputs. A column q ≥ 0 (one output's probability in each row) lies in the cone C when
q_i ≤ e^{x_ij} q_j for every constrained pair, x_ij = ε·d_ij. A mechanism is private when each of its columns lies in C;
the columns are tied together only by the rows' sums.

Lower bounds that hold in spite of rounding
-------------------------------------------
The linear program is: minimise Σ_k w_k·q_k over columns q_k ∈ C with Σ_k q_k = 1 in each row. For any λ, any
multipliers y_k ≥ 0 on constrained pairs and any weights u > 0 on rows, with (Gq)_p = a_p q_j − q_i for the pair
p = (i, j), let s_k = w_k − Gᵀy_k, the *slack* of output k. Every feasible mechanism has

    Σ_k w_k·q_k = Σ_k (s_k + Gᵀy_k)·q_k ≥ Σ_k s_k·q_k = Σλ + Σ_k (s_k − λ)·q_k
                ≥ Σλ + (Σu)·min_{k,i} (s_k − λ)_i / u_i,

because Gq_k ≥ 0, q_k ≥ 0, Σ_k q_k = 1 and Σ_k u·q_k = Σu. So a bound needs no optimal multipliers, only honest
slacks: `slack_below` never returns more than the true value.

Rounding. Let ρ = 2^-53. Floating-point sums of n non-negative terms in any order err by at most (n − 1)ρ/(1 − nρ) of
the sum. P_i = Σ a_p y_p (pairs with j = i) and N_i = Σ y_p (pairs with that row as their i) have at most n < rows terms
each. The ratio a is computed from the exponent x ≤ 44, which itself carries at most 4 roundings: relative error at
most 4·44ρ, plus 4 units in the last place for exp, plus one for the product with y. The cost w is a product of two
floats, or a sum of m such: m roundings, m ≤ rows merged. The three additions w − P + N err by ρ of a partial result
each, all at most |w| + P + N (λ is subtracted from the result by the caller, who rounds down again). Altogether the
error is at most (n + m + 200)ρ·(|w| + P + N); we take off (2·rows + 256)·2ρ·(|w| + P + N), more than twice that.
Underflow costs at most 2^-1074 per term, covered by 1e-290.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra, minimum_spanning_tree

from geoblanket._arrays import Bools, Floats, Positions

_ROUNDING = 2.0**-53
_TINY = 1e-290
EXPONENT_CAP = 44.0
"""Ratios beyond e^44 ≈ 10^19 are cut to that in the search: the stronger constraint is safe, the loss not measurable.
Bounds do not use the pairs that were cut."""
_NEVER = 1e250
"""Stands for the ratio of a pair without a constraint: finite, so that products with zero stay zero."""
_NEAREST = 12
"""Rows nearest to each, whose pairs are active from the start: with fewer, more pairs join on the way; with more, steps
take longer."""
_TIGHT = 0.3
"""Of a pair's slack: where less is left the pair becomes active. With less, steps are cut short by pairs that are not
active; with more, pairs become active that do not matter."""
_NEIGHBOURS = 24
"""Centres that a row's columns are carried from: more make them smoother, and the matrices fuller."""
_SMOOTHNESS = 0.6
"""Width of the bell of these centres' weights, as a share of the distance of the first centre that has none."""
_INSIDE = 0.07
"""Of a pair's slack, what must be left for a column to count as well inside the cone: a start nearer to its edge only
allows short steps."""
_STEEPNESS = 0.9
"""Of the largest logarithmic slope in the cone, that of a start: steeper ones keep more of what the clusters found, and
allow shorter steps."""
_MOST_TURNS = 12
"""Of restoring slopes and the rows' sums before columns are flattened: 5 to 8 are usual."""
_POWERS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)
"""How much columns are flattened, one after the other, until they lie well inside the cone."""


@dataclass(frozen=True, eq=False)
class Cone:
    """Constrained pairs of rows and their ratios.

    Parameters
    ----------
    exponent
        x_ij = ε·d_ij, dimensionless, symmetric, shape (rows, rows); inf where the pair is not constrained. Off the
        diagonal it is positive: rows at distance 0 are merged before.
    original_rows
        How many rows there were before any were merged, for the error margins of bounds; 0: as many as now.
    """

    exponent: Floats
    original_rows: int = 0
    constrained: Bools = field(init=False)

    def __post_init__(self) -> None:
        constrained = np.isfinite(self.exponent)
        np.fill_diagonal(constrained, False)
        object.__setattr__(self, "constrained", constrained)
        object.__setattr__(self, "original_rows", self.original_rows or self.size)

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.exponent)

    @cached_property
    def excess(self) -> Floats:
        """e^x − 1, exact for small x; huge where there is no constraint."""
        return np.where(self.constrained, np.expm1(np.minimum(self.exponent, EXPONENT_CAP)), _NEVER)

    @cached_property
    def ratio(self) -> Floats:
        """e^x; huge where there is no constraint."""
        return np.where(self.constrained, np.exp(np.minimum(self.exponent, EXPONENT_CAP)), _NEVER)

    @cached_property
    def tight_ratio(self) -> Floats:
        """The ratio beyond which a pair counts as tight: less than 30 % of its slack is left."""
        return 1.0 + (1.0 - _TIGHT) * self.excess

    @cached_property
    def nearest(self) -> Positions:
        """The other rows of each, nearest first, shape (rows, rows − 1)."""
        order = np.argsort(np.where(self.constrained, self.exponent, np.inf), axis=1, kind="stable")
        rows = np.arange(self.size)[:, None]
        nearest: Positions = order[order != rows].reshape(self.size, self.size - 1)
        return nearest

    @cached_property
    def starting_pairs(self) -> Bools:
        """Each row with its nearest 12, and the other way round: where the search begins."""
        near = np.zeros_like(self.constrained)
        near[np.arange(self.size)[:, None], self.nearest[:, :_NEAREST]] = True
        near |= near.T
        return near & self.constrained

    def restricted(self, rows: Positions) -> Cone:
        """Return the cone over some of the rows."""
        return Cone(self.exponent[np.ix_(rows, rows)], self.original_rows)


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
        """Carry columns, shape (outputs, centres), to other rows, well inside their cone.

        Slopes that the cone allows and rows that sum to 1 are restored in turns, until both hold. Where that does not
        come to an end, columns are flattened.
        """
        carried: Floats = (self.smooth_weights(targets) @ columns.T).T
        ratio = np.where(np.eye(cone.size, dtype=bool), 1.0, cone.ratio**_STEEPNESS)
        for _ in range(_MOST_TURNS):
            carried = _closed(carried, ratio)
            carried /= carried.sum(axis=0)
            if _well_inside(cone, carried):
                return carried
        return next(flat for flat in _flattened(carried) if _well_inside(cone, flat))

    def evened(self, columns: Floats, weights: csr_array, cone: Cone) -> Floats:
        """Return columns, flattened until `weights` carry them well inside a cone."""
        return next(flat for flat in _flattened(columns) if _well_inside(cone, (weights @ flat.T).T))

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


def _closed(columns: Floats, ratio: Floats) -> Floats:
    """Return columns near the given ones that change by no more than `ratio` between rows, or nearly.

    The least such column above q is max_j q_j / a_ij, the largest one below min_j q_j · a_ij: their geometric mean. If
    pairs beyond η are not constrained, it can change a little more.
    """
    inverse = 1.0 / ratio
    return np.array([np.sqrt((inverse * column).max(axis=1) * (ratio * column).min(axis=1)) for column in columns])


def _flattened(columns: Floats) -> Iterator[Floats]:
    """Yield mechanisms ever nearer to one whose rows are all alike.

    A power θ < 1 of a column divides all its logarithmic slopes, and so leaves the same share of slack everywhere.
    """
    logarithm = np.log(np.maximum(columns, 1e-300))
    for power in _POWERS:
        flat = np.exp(power * logarithm)
        yield flat / flat.sum(axis=0)


def _well_inside(cone: Cone, columns: Floats) -> bool:
    limit = 1.0 + (1.0 - _INSIDE) * cone.excess
    return all(bool((column[:, None] < limit * column).all()) for column in columns)


def slack_below(cost: Floats, gained: Floats, given: Floats, *, rows: int) -> Floats:
    """Return w − P + N rounded down far enough to be at most its true value.

    Parameters
    ----------
    cost, gained, given
        w, P = Σ a_p y_p and N = Σ y_p, as computed, of one shape.
    rows
        How many rows the original problem has (before merging).
    """
    margin = (2 * rows + 256) * 2 * _ROUNDING
    below: Floats = (cost - gained + given) - (margin * (np.abs(cost) + gained + given) + _TINY)
    return below


def sum_below(values: Floats) -> float:
    """Return the sum, rounded down."""
    return math.nextafter(math.fsum(values.ravel().tolist()), -math.inf)


def with_slack(duals: Floats, worst: float, weight: Floats) -> float:
    """Return Σλ + (Σu)·worst, rounded down; `worst` is at most the true min (s_k − λ)_i / u_i over all outputs k."""
    side = -math.inf if worst >= 0.0 else math.inf
    mass = math.nextafter(math.fsum(weight.tolist()), side)
    return math.nextafter(sum_below(duals) + math.nextafter(mass * worst, -math.inf), -math.inf)
