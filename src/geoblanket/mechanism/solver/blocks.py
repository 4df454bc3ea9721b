"""A few outputs at once: their columns, active pairs and multipliers, and what one Newton step does to them.

All arrays over pairs are flat: the pair p of output k is (low, high) = (k·rows + i, k·rows + j) and says
q_i ≤ a_p q_j, with slack g_p = a_p q_j − q_i > 0 and multiplier y_p > 0. Only *active* pairs have a multiplier: they
begin with near neighbours, and pairs that become tight join. The blocks of a problem are independent of each other but
for the rows' sums, so that they can work in threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geoblanket._arrays import Bools, Floats, Positions, Singles
from geoblanket.mechanism.solver import lapack
from geoblanket.mechanism.solver.linear_program import EXPONENT_CAP, Cone, slack_below

_ROWS_AT_ONCE = 64
"""Rows whose pairs are looked at together: so many stay in the processor's cache."""
_NEW_PAIRS_PER_ROW = 5
"""Pairs of a row that may become active in a step, the tightest first: more make every later step longer."""
_NEW_MULTIPLIER = 1e-3
"""g·y of a new pair, in barriers: a small multiplier hardly disturbs the step, a tiny one takes many to grow."""
_REGULARISATION = 1e-14
_MOST_REGULARISATION = 1e-5
"""First and largest share by which a diagonal is raised, a hundredfold each time, until the matrix can be factored."""
_SINGLE_REGULARISATION = 1e-7
"""The same in float32, with diagonals of 1: about one rounding."""
_LEAST = 1e-150
"""A slack or multiplier below this is as good as 0: its quotients overflow."""


class ImpreciseError(np.linalg.LinAlgError):
    """A Newton matrix needs more digits than float32 has."""


@dataclass(frozen=True)
class StepLimits:
    """How far a step may go: the largest relative decrease of a slack and of a multiplier along it."""

    primal: float
    dual: float


@dataclass(frozen=True)
class Centring:
    """Σ g·y now, and the parts from which it follows for any lengths of the predictor's steps."""

    now: float
    primal: float
    dual: float
    both: float


class Block:
    """Columns of some outputs, strictly inside the cone, with the multipliers of their active pairs.

    Parameters
    ----------
    cone
        The rows' cone.
    cost
        w ≥ 0, shape (outputs, rows).
    columns
        Where to start, strictly inside the cone, shape (outputs, rows).
    active
        Which pairs are active at the start, shape (outputs, rows, rows); None: near neighbours.
    """

    single = False
    """Whether Newton's matrices are inverted in float32: half the time, and solutions are refined in float64."""

    def __init__(self, cone: Cone, cost: Floats, columns: Floats, *, active: Bools | None = None) -> None:
        self.cone, self.cost, self.columns = cone, cost, columns
        self.outputs, self.rows = int(cost.shape[0]), int(cost.shape[1])
        if active is None:
            active = np.broadcast_to(cone.starting_pairs, (self.outputs, self.rows, self.rows))
        self.active = self._no_pairs()
        self.low = self.high = self.entry = np.empty(0, np.intp)
        self.ratio = self.excess = self.multiplier = np.empty(0)
        self.exact = np.empty(0, bool)
        self._append(*np.nonzero(active))
        self.slack = self._slack(columns)
        self.factors: Floats = np.empty((0, 0, 0))
        self.inverses: Singles = np.empty((0, 0, 0), np.float32)
        self.step = np.zeros_like(columns)

    def start(self, barrier: float) -> None:
        """Set multipliers so that every pair has g·y = `barrier`."""
        self.multiplier = barrier / self.slack
        self._collect()

    @property
    def pair_count(self) -> int:
        """The number of active pairs."""
        return len(self.low)

    def dual_slack(self) -> Floats:
        """Return w − Gᵀy, rounded down: what bounds are made of."""
        return slack_below(self.cost, self.gained, self.given, rows=self.cone.original_rows)

    def restricted(self, kept: Bools) -> Block:
        """Return a block with some of the outputs, as they are."""
        block = Block(self.cone, self.cost[kept], self.columns[kept], active=self.active[kept])
        # A new block lists its pairs by output, row and row.
        stays = kept[self.low // self.rows]
        block.multiplier = self.multiplier[stays][np.lexsort((self.high[stays], self.low[stays]))]
        block._collect()
        return block

    # Newton's matrices

    def factorise(self, *, with_inverse: bool = True) -> Floats:
        """Factor H_k = Gᵀ diag(y/g) G of each output; return the upper triangle of Σ_k H_k⁻¹, or 0 without inverse."""
        mixed, diagonal = self._newton_weights()
        if self.single and with_inverse:
            return self._invert(mixed, diagonal)
        size = self.outputs * self.rows
        self.factors = _scatter(self.entry, -mixed, size * self._width).reshape(self.outputs, self.rows, self._width)
        response = np.zeros((self.rows, self.rows) if with_inverse else 0)
        for factors, of_output in zip(self.factors, diagonal.reshape(self.cost.shape), strict=True):
            self._factor(factors, of_output)
            if with_inverse:
                inverse = factors.copy()
                lapack.inverse(inverse)
                response += inverse
        return response

    def _invert(self, mixed: Floats, diagonal: Floats) -> Floats:
        """Invert each H in float32, with rows and columns scaled to a diagonal of 1."""
        scales = 1.0 / np.sqrt(diagonal)
        values = -mixed * scales[self.low] * scales[self.high]
        self.factors = np.empty((0, 0, 0))
        # A pair and its reverse share an entry, which neither direction alone has twice: sums need no float64 table.
        entries, forward = np.zeros(self.outputs * self.rows**2, np.float32), self.low < self.high
        entries[self.entry[forward]] = values[forward]
        entries[self.entry[~forward]] += values[~forward].astype(np.float32)
        self.inverses = entries.reshape(self.outputs, self.rows, self.rows)
        self.scales = scales.reshape(self.cost.shape)
        response = np.zeros((self.rows, self.rows))
        part = np.empty_like(self.inverses[0])
        for matrix, scale in zip(self.inverses, self.scales.astype(np.float32), strict=True):
            np.fill_diagonal(matrix, 1.0 + _SINGLE_REGULARISATION)
            if not lapack.factor(matrix):
                raise ImpreciseError("A Newton matrix is not positive definite in float32.")
            lapack.inverse(matrix)
            np.multiply(matrix, scale, out=part)
            part *= scale[:, None]
            response += part
        return response

    def _newton_weights(self) -> tuple[Floats, Floats]:
        """Return a·y/g of each pair, and the diagonals of H."""
        if not (self.slack.min() > _LEAST and self.multiplier.min() > _LEAST):
            raise np.linalg.LinAlgError("A slack or a multiplier has become 0 by rounding.")
        self.weight = weight = self.multiplier / self.slack
        mixed = weight * self.ratio
        size = self.outputs * self.rows
        return mixed, _scatter(self.high, mixed * self.ratio, size) + _scatter(self.low, weight, size)

    def response_to(self, change: Floats) -> Floats:
        """Return H⁻¹·change for the block's only output."""
        response = change.copy()
        self._solve_in_place(response[None])
        return response

    def solve(self, duals: Floats, targets: Floats | None) -> Floats:
        """Set the step to H⁻¹(Gᵀ(t/g) + λ − w); return its sum over outputs."""
        right = duals - self.cost
        if targets is not None:
            right += self._transposed(targets / self.slack)
        self._solve_in_place(right)
        self.step = right
        total: Floats = self.step.sum(axis=0)
        return total

    def respond(self, dual_step: Floats) -> Floats:
        """Add H⁻¹dλ to the step; return the step's sum over outputs."""
        right = np.repeat(dual_step[None], self.outputs, axis=0)
        self._solve_in_place(right)
        self.step += right
        total: Floats = self.step.sum(axis=0)
        return total

    @property
    def unknowns(self) -> Floats:
        """What Newton's method solves for: the columns."""
        return self.columns

    # Steps

    def saved(self) -> tuple[Floats, ...]:
        """Return the step, to come back to it by `restore`."""
        return self.step, self.dual_change

    def restore(self, saved: tuple[Floats, ...]) -> None:
        """Come back to a step."""
        self.step, self.dual_change = saved

    def predictor(self) -> tuple[StepLimits, Centring]:
        """Judge the step with targets 0."""
        change = self._slack(self.step)
        relative = change / self.slack
        dual = -self.multiplier * (1.0 + relative)
        limits = StepLimits(float(-relative.min()), float(1.0 + relative.max()))
        centring = Centring(
            float(self.slack @ self.multiplier),
            float(change @ self.multiplier),
            float(self.slack @ dual),
            float(change @ dual),
        )
        self._second_order = change * dual
        return limits, centring

    def mehrotra_targets(self, barrier: float, clip: float) -> Floats:
        """Return targets for g·y: the barrier, less the predictor's second-order error within ±clip."""
        return barrier - np.clip(self._second_order, -clip, clip)

    def limits(self, targets: Floats) -> StepLimits:
        """Return how far the step and its change of multipliers may go; keep that change."""
        relative = self._slack(self.step) / self.slack
        self.dual_change = targets / self.slack - self.multiplier * (1.0 + relative)
        return StepLimits(float(-relative.min()), float(-(self.dual_change / self.multiplier).min()))

    def centred_targets(self, targets: Floats, primal: float, dual: float, barrier: float) -> Floats:
        """Return targets that pull products g·y, as they would be after longer steps, into [barrier/10, 10·barrier]."""
        product = (self.slack + primal * self._slack(self.step)) * (self.multiplier + dual * self.dual_change)
        correction = np.clip(product, 0.1 * barrier, 10.0 * barrier) - product
        return targets + np.maximum(correction, -10.0 * barrier)

    def find_tight(self, length: float) -> float:
        """Look for inactive pairs that a step of this length would make tight; return their largest relative decrease.

        All other inactive pairs keep more than 30 % of their slack.
        """
        after = self.columns + length * self.step
        pairs: list[tuple[Positions, Positions, Positions]] = []
        for number, column in enumerate(after):
            low, high = self._crossing(number, column)
            pairs.append((np.full(len(low), number, np.intp), low, high))
        output, low, high = (np.concatenate(part) for part in zip(*pairs, strict=True))
        excess = self.cone.excess[low, high]
        slack = _pair_slack(excess, self.columns[output, low], self.columns[output, high])
        change = _pair_slack(excess, self.step[output, low], self.step[output, high])
        rest = _pair_slack(excess, after[output, low], after[output, high]) / (excess * after[output, high])
        chosen = _first_per_group(output * self.rows + low, rest, _NEW_PAIRS_PER_ROW, groups=self.outputs * self.rows)
        self._tight = output[chosen], low[chosen], high[chosen]
        return float((-change / slack).max(initial=0.0))

    def advance(self, primal: float, dual: float, barrier: float) -> None:
        """Take the steps, and make the tightest of the pairs that were found active."""
        self.columns = self.columns + primal * self.step
        self.multiplier = self.multiplier + dual * self.dual_change
        self._append(*self._tight)
        self.slack = self._slack(self.columns)
        new = self.pair_count - len(self.multiplier)
        if new:
            self.multiplier = np.concatenate([self.multiplier, _NEW_MULTIPLIER * barrier / self.slack[-new:]])
        self._collect()

    # Sums over pairs

    def _append(self, output: Positions, low: Positions, high: Positions) -> None:
        self._activate(output, low, high)
        first, second = np.minimum(low, high), np.maximum(low, high)
        self.low = np.concatenate([self.low, output * self.rows + low])
        self.high = np.concatenate([self.high, output * self.rows + high])
        self.entry = np.concatenate(
            [self.entry, (output * self.rows + first) * self._width + self._place(first, second)]
        )
        self.ratio = np.concatenate([self.ratio, self.cone.ratio[low, high]])
        self.excess = np.concatenate([self.excess, self.cone.excess[low, high]])
        self.exact = np.concatenate([self.exact, self.cone.exponent[low, high] <= EXPONENT_CAP])

    def _slack(self, columns: Floats) -> Floats:
        flat = columns.ravel()
        return _pair_slack(self.excess, flat[self.low], flat[self.high])

    def _sums(self, values: Floats) -> tuple[Floats, Floats]:
        """Return what each row gains and gives by values on pairs, like columns in shape; they differ by Gᵀ·values."""
        size, shape = self.outputs * self.rows, self.cost.shape
        gained = _scatter(self.high, self.ratio * values, size)
        return gained.reshape(shape), _scatter(self.low, values, size).reshape(shape)

    def _transposed(self, values: Floats) -> Floats:
        """Return Gᵀ·values."""
        gained, given = self._sums(values)
        return gained - given

    def _collect(self) -> None:
        # Pairs whose ratio was cut have a larger true ratio: bounds must not use them.
        self.gained, self.given = self._sums(self.multiplier if self.exact.all() else self.multiplier * self.exact)

    # How matrices and active pairs are stored

    @property
    def _width(self) -> int:
        return self.rows

    def _place(self, first: Positions, second: Positions) -> Positions:  # noqa: ARG002 (other layouts use it)
        """Return where in its row of a matrix an entry with first ≤ second is stored."""
        return second

    def _no_pairs(self) -> Bools:
        return np.zeros((self.outputs, self.rows, self.rows), bool)

    def _activate(self, output: Positions, low: Positions, high: Positions) -> None:
        self.active[output, low, high] = True

    def _crossing(self, output: int, column: Floats) -> tuple[Positions, Positions]:
        """Return the inactive pairs that are tight in a column."""
        # A few rows at a time stay in the cache.
        limit, crossing = np.empty((_ROWS_AT_ONCE, self.rows)), np.empty((_ROWS_AT_ONCE, self.rows), bool)
        entries = []
        for first in range(0, self.rows, _ROWS_AT_ONCE):
            part = slice(first, min(first + _ROWS_AT_ONCE, self.rows))
            used = slice(0, part.stop - first)
            np.multiply(self.cone.tight_ratio[part], column, out=limit[used])
            np.less(limit[used], column[part, None], out=crossing[used])
            np.greater(crossing[used], self.active[output, part], out=crossing[used])
            entries.append(first * self.rows + np.flatnonzero(crossing[used]))
        low, high = np.divmod(np.concatenate(entries), self.rows)
        return low, high

    def _factor(self, matrix: Floats, diagonal: Floats) -> None:
        """Replace a matrix by its Cholesky factor, with as little added to the diagonal as makes it succeed."""
        regularisation = _REGULARISATION
        # Factoring spoils the matrix, but only rarely has to be tried again.
        spare = matrix.copy()
        while regularisation <= _MOST_REGULARISATION:
            if self._try_factor(matrix, diagonal * (1.0 + regularisation)):
                return
            matrix[...] = spare
            regularisation *= 100.0
        raise np.linalg.LinAlgError("A Newton matrix is not positive definite.")

    def _try_factor(self, matrix: Floats, diagonal: Floats) -> bool:
        """Replace a matrix, with this diagonal, by its Cholesky factor; return whether it has one."""
        np.fill_diagonal(matrix, diagonal)
        return lapack.factor(matrix)

    def _solve_in_place(self, right: Floats) -> None:
        if self.single:
            # Refined once: the residual, by way of the pairs, is exact to float64.
            solution = self._approximate(right)
            right[...] = solution + self._approximate(right - self._transposed(self.weight * self._slack(solution)))
            return
        for factored, vector in zip(self.factors, right, strict=True):
            lapack.solve(factored, vector)

    def _approximate(self, right: Floats) -> Floats:
        """Return H⁻¹·right by the inverses in float32."""
        scaled = right * self.scales
        products = [lapack.multiply(*pair) for pair in zip(self.inverses, scaled, strict=True)]
        solution: Floats = self.scales * np.stack(products)
        return solution


def _scatter(index: Positions, values: Floats, size: int) -> Floats:
    """Return the sum of the values of each index."""
    return np.bincount(index, values, size).astype(np.float64, copy=False)


def _pair_slack(excess: Floats, low: Floats, high: Floats) -> Floats:
    # a·q_j − q_i without cancellation between nearly equal rows, whose a is nearly 1.
    return excess * high + (high - low)


def _first_per_group(group: Positions, key: Floats, count: int, *, groups: int) -> Positions:
    """Return the positions of the `count` smallest keys of each group, about; of very many, only the smallest."""
    most = 4 * count * groups
    smallest = np.sort(np.argpartition(key, most)[:most]) if len(key) > most else np.arange(len(key))
    order = smallest[np.lexsort((key[smallest], group[smallest]))]
    ordered = group[order]
    first = np.searchsorted(ordered, ordered)
    return order[np.arange(len(order)) - first < count]
