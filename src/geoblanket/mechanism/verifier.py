"""The exact verifier: whether a table of integer weights keeps its promise.

It decides, in integers, for every pair of rows s, s' at most η apart and every output y, in both directions:

    2^96·W[s, y] ≤ p·W[s', y]        with p ≤ 2^96·e^(ε·d(s, s')) from `exponential`,

and that each row is a distribution: no weight is negative and the sum is 2^62. It shares nothing else with the code
that makes mechanisms, and takes no short cut over pairs: nothing is assumed of the distances but symmetry, which is
checked.

The float filter
----------------
Most pairs are nowhere near their bound, and floats show it. u = 2^-53. A weight as a float is off by at most the
factor 1 ± u; so are its reciprocal (1 ± 2u in all) and the product of one with the other: the ratio
r = W[s, y] / W[s', y] is computed as at least r·(1 − 4u − O(u²)), the largest over outputs included, as taking a
maximum rounds nothing. The float bound F of `exponential` is at most (1 − 16u)·p/2^96. So if the computed ratio is at
most F, then r < p/2^96, exactly. All else is decided by Python's integers. A weight of 0 below a ratio stands as
2^-600: the ratio is then 0, and passes, for 0 ≤ 0, and at least 2^600 otherwise, which never passes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats, Ints
from geoblanket._display import card, counted, short_repr
from geoblanket.errors import GuaranteeViolation, MechanismError
from geoblanket.mechanism.exponential_bounds import MAX_EPSILON_MICRO, ONE_BITS, ExponentialBounds, bounds_for

DENOMINATOR: Final = 2**62
"""A weight w stands for the probability w / 2^62."""

_BLOCK = 1 << 17  # ratios at a time and thread: a megabyte, which stays in the processor's cache
_WORTH_THREADS = 20_000_000
_ZERO = 2.0**-600
_MOST_EXACT_CHECKS = 10**8
"""Inequalities that are decided one by one, in a minute or two: only a file made to waste time has more."""


@dataclass(frozen=True)
class Certificate:
    """What the verifier proved.

    Examples
    --------
    With the `result` in the example of `optimise`:

    >>> certificate = result.mechanism.certificate
    >>> certificate.rows, certificate.outputs, certificate.pairs
    (3, 3, 3)
    >>> certificate.epsilon_effective <= 1.0
    True
    """

    rows: int
    outputs: int
    epsilon_micro: int
    """ε in millionths per kilometre."""
    eta_mm: int
    """η in millimetres."""
    pairs: int
    """Pairs of rows at most η apart: all of them were checked, in both directions, for every output."""
    pairs_beyond: int
    """Pairs of rows further apart than η: nothing was checked between them."""
    exact_checks: int
    """Inequalities that were too close for the float filter, or between rows at distance 0: decided by integers."""
    components: int
    """Components of the graph of pairs at most η apart; between two components nothing is promised."""
    epsilon_effective: float
    """The largest ln(ratio) / distance found, per kilometre, rounded up; never above ε."""
    unit: str = "km"
    """What stands for the kilometre in another domain."""

    @property
    def connected(self) -> bool:
        """Whether chains of pairs at most η apart join all rows."""
        return self.components == 1

    @property
    def checks(self) -> int:
        """Inequalities that were decided."""
        return 2 * self.pairs * self.outputs

    def _repr_html_(self) -> str:
        rows = [
            ("ε promised", f"{self.epsilon_micro / 10**6:g} per {self.unit}"),
            ("ε needed, verified exactly", f"{self.epsilon_effective:.6g} per {self.unit}"),
            ("rows, outputs", f"{self.rows:,}, {self.outputs:,}"),
            ("pairs of rows checked", f"{self.pairs:,}"),
            ("pairs beyond η, not checked", f"{self.pairs_beyond:,}"),
            ("inequalities", f"{self.checks:,}"),
        ]
        return card(self, rows)

    def __repr__(self) -> str:
        within = f" up to {self.eta_mm / 10**6:g} {self.unit}" if self.pairs_beyond else ""
        return short_repr(
            self,
            f"ε = {self.epsilon_micro / 10**6:g} per {self.unit}{within} holds exactly",
            f"ε needed {self.epsilon_effective:.6g}",
            f"{counted(self.pairs, 'pair')} of {counted(self.rows, 'row')}",
            counted(self.outputs, "output"),
        )


@checked
def verify(weights: Ints, *, distance_mm: Ints, epsilon_micro: int, eta_mm: int, unit: str = "km") -> Certificate:
    """Verify a mechanism in exact arithmetic.

    Parameters
    ----------
    weights
        int64, shape (S, K); each row must sum to 2^62.
    distance_mm
        Row distances in millimetres, int64, shape (S, S).
    epsilon_micro
        ε in millionths per kilometre. 0 allows only a mechanism whose rows are all equal.
    eta_mm
        Rows further apart than this, in millimetres, are not compared.
    unit
        What stands for the kilometre in another domain, for the certificate's words; the millimetre is its millionth.

    Raises
    ------
    GuaranteeViolation
        The first row that is not a distribution; otherwise the first row, in order, that breaks a bound, with the other
        row and the output.
    MechanismError
        The arrays cannot be a mechanism and its distances.

    Examples
    --------
    With the `result` in the example of `optimise`:

    >>> from geoblanket import verify
    >>> mechanism = result.mechanism
    >>> promise = {"distance_mm": mechanism.distance_mm, "eta_mm": mechanism.eta_mm}
    >>> verify(mechanism.weights, epsilon_micro=1_000_000, **promise).pairs
    3
    >>> verify(mechanism.weights, epsilon_micro=500_000, **promise)
    Traceback (most recent call last):
        ...
    geoblanket.errors.GuaranteeViolation: ...
    """
    _check_form(weights, distance_mm, epsilon_micro, eta_mm)
    _check_rows(weights)
    job = _Comparison(weights, distance_mm, bounds_for(epsilon_micro), eta_mm, unit)
    rows = range(len(weights))
    if len(weights) * weights.size < _WORTH_THREADS:
        results: Iterator[tuple[int, float]] = map(job.check_row, rows)
        exact_checks, tightest = _gather(results)
    else:
        from concurrent.futures import ThreadPoolExecutor  # devices, with small mechanisms, start sooner without

        # NumPy lets other threads run while it computes; results come in order, so the first violation is raised.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            exact_checks, tightest = _gather(pool.map(job.check_row, rows))
    constrained = distance_mm <= eta_mm
    pairs = (int(np.count_nonzero(constrained)) - len(weights)) // 2
    return Certificate(
        rows=weights.shape[0],
        outputs=weights.shape[1],
        epsilon_micro=epsilon_micro,
        eta_mm=eta_mm,
        pairs=pairs,
        pairs_beyond=len(weights) * (len(weights) - 1) // 2 - pairs,
        exact_checks=exact_checks,
        components=len(components(constrained)),
        epsilon_effective=min(tightest, epsilon_micro / 10**6),
        unit=unit,
    )


def _check_form(weights: Any, distance_mm: Any, epsilon_micro: Any, eta_mm: Any) -> None:
    for array, name in ((weights, "weights"), (distance_mm, "distances")):
        if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.ndim != 2 or array.size == 0:
            raise MechanismError(f"The {name} of a mechanism must be a non-empty matrix of int64.")
    if distance_mm.shape != (len(weights), len(weights)):
        raise MechanismError(
            f"A mechanism of {len(weights)} rows needs as many rows and columns of distances. "
            f"Got the shape {distance_mm.shape}."
        )
    if type(epsilon_micro) is not int or not 0 <= epsilon_micro <= MAX_EPSILON_MICRO:
        raise MechanismError(f"ε must be a whole number of millionths per kilometre, from 0 to {MAX_EPSILON_MICRO}.")
    if type(eta_mm) is not int or not 0 <= eta_mm < 2**63 - 1:
        raise MechanismError("η must be a whole number of millimetres, from 0 to 2^63 − 2.")
    if (distance_mm < 0).any():
        raise MechanismError("Distances must not be negative.")
    if np.diagonal(distance_mm).any():
        raise MechanismError(f"The distance of row {np.diagonal(distance_mm).nonzero()[0][0]} to itself must be 0.")
    if not np.array_equal(distance_mm, distance_mm.T):
        row, other = np.argwhere(distance_mm != distance_mm.T)[0]
        raise MechanismError(f"Distances must be symmetric: those between rows {row} and {other} differ.")


def _check_rows(weights: Ints) -> None:
    """Raise unless every row is a distribution: no weight negative or above 2^62, the sum 2^62."""
    for wrong, excess_over, what in (
        (weights < 0, 0, "is negative"),
        (weights > DENOMINATOR, DENOMINATOR, "is above 1"),
    ):
        if wrong.any():
            row, output = (int(index) for index in np.argwhere(wrong)[0])
            excess = int(weights[row, output]) - excess_over
            raise GuaranteeViolation(row, None, output, excess, f"The weight of row {row}, output {output} {what}")
    for row, weight in enumerate(weights):
        # The two halves of the bits are summed apart: 2^31 outputs of 2^31 each cannot overflow.
        if excess := (int((weight >> 31).sum()) << 31) + int((weight & (2**31 - 1)).sum()) - DENOMINATOR:
            raise GuaranteeViolation(
                row, None, None, excess, f"Row {row} sums to 2^62 {excess:+d} units of 2^-62, not to 1"
            )


def _gather(results: Iterator[tuple[int, float]]) -> tuple[int, float]:
    exact_checks, tightest = 0, 0.0
    for exact, epsilon in results:
        exact_checks += exact
        tightest = max(tightest, epsilon)
    return exact_checks, tightest


class _Comparison:
    """Every row against the rows at most η away."""

    def __init__(self, weights: Ints, distance_mm: Ints, bounds: ExponentialBounds, eta_mm: int, unit: str) -> None:
        self.weights = weights
        self.distance_mm = distance_mm
        self.bounds = bounds
        self.eta_mm = eta_mm
        self.unit = unit
        self.reciprocal = weights.astype(np.float64)
        self.reciprocal[weights == 0] = _ZERO
        np.divide(1.0, self.reciprocal, out=self.reciprocal)
        self._rows_at_a_time = max(1, _BLOCK // weights.shape[1])
        self._decided_exactly = 0

    def check_row(self, row: int) -> tuple[int, float]:
        """Compare a row with all others; return the exact checks, and the largest ln(ratio) / distance found per km."""
        others = np.flatnonzero(self.distance_mm[row] <= self.eta_mm)
        distance = self.distance_mm[row, others]
        equal = (distance == 0) | (self.bounds.epsilon_micro == 0)
        exact = self._check_equal(row, others[equal])
        others, distance = others[~equal], distance[~equal]
        if not len(others):
            return exact, 0.0
        ratio = self._largest_ratio(row, others)
        limit = self.bounds.lower_floats(distance)
        for index in np.flatnonzero(ratio > limit):
            exact += self._check_exactly(row, int(others[index]), int(distance[index]), float(limit[index]))
        # The ratio is off by less than 2^-50 and the logarithm by less than its own last bits: both rounded up.
        log_ratio = np.log(ratio) * (1 + 2.0**-50) + 2.0**-50
        return exact, float((log_ratio / distance).max()) * 1e6

    def _largest_ratio(self, row: int, others: Ints) -> Floats:
        """Return, for each other row, the largest ratio over outputs, in floats."""
        result = np.empty(len(others))
        numerator = self.weights[row].astype(np.float64)
        for some in self._blocks(others):
            ratio = self.reciprocal[others[some]]
            ratio *= numerator
            ratio.max(axis=1, out=result[some])
        return result

    def _blocks(self, others: Ints) -> Iterator[slice]:
        for start in range(0, len(others), self._rows_at_a_time):
            yield slice(start, start + self._rows_at_a_time)

    def _check_equal(self, row: int, others: Ints) -> int:
        others = others[others != row]
        for some in self._blocks(others):
            # Rows of the same sum that differ are above each other somewhere, each in its turn.
            above = self.weights[row] > self.weights[others[some]]
            if above.any():
                index, output = np.argwhere(above)[0]
                other = int(others[some][index])
                excess = int(self.weights[row, output]) - int(self.weights[other, output])
                raise GuaranteeViolation(
                    row,
                    other,
                    int(output),
                    excess,
                    f"Rows {row} and {other} must be equal (ε times their distance is 0), and differ by {excess} units "
                    f"of 2^-62 at output {output}",
                )
        return len(others) * int(self.weights.shape[1])

    def _check_exactly(self, row: int, other: int, distance_mm: int, limit: float) -> int:
        """Decide in integers the outputs that the float filter leaves open; return how many there were."""
        bound = self.bounds.lower(distance_mm)
        outputs = np.flatnonzero(self.weights[row].astype(np.float64) * self.reciprocal[other] > limit)
        self._decided_exactly += len(outputs)
        if self._decided_exactly > _MOST_EXACT_CHECKS:
            raise MechanismError(
                f"More than {_MOST_EXACT_CHECKS:,} inequalities are too close for floats to decide. Nothing is decided."
            )
        for output in outputs.tolist():
            weight, other_weight = int(self.weights[row, output]), int(self.weights[other, output])
            if weight << ONE_BITS > bound * other_weight:
                excess = weight - (bound * other_weight >> ONE_BITS)
                ratio = math.inf if other_weight == 0 else weight / other_weight
                raise GuaranteeViolation(
                    row,
                    other,
                    output,
                    excess,
                    f"Output {output} is {ratio:.9g} times as probable from row {row} as from row {other}, which are "
                    f"{distance_mm / 10**6:.15g} {self.unit} apart: {excess} units of 2^-62 too much",
                )
        return len(outputs)


def components(joined: Bools) -> list[list[int]]:
    """Return the components of a symmetric graph. SciPy knows them too, but devices verify, and do without it."""
    unseen = np.ones(len(joined), np.bool_)
    found = []
    while unseen.any():
        part = [int(unseen.argmax())]
        unseen[part] = False
        for node in part:  # it grows on the way
            reached = np.flatnonzero(joined[node] & unseen)
            unseen[reached] = False
            part.extend(reached.tolist())
        found.append(part)
    return found
