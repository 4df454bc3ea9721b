"""A metric between secrets, in exact whole numbers.

Secrets are numbered from 0. Their distances are whole millionths of a *unit*: millimetres if the unit is the kilometre,
and the millionth of whatever else a domain measures in. ε is per unit.

Why rounding down is safe
-------------------------
A mechanism keeps q_s ≤ e^(ε·n)·q_s' for whole distances n, pair by pair; the verifier needs n = n' in both directions
and n = 0 for a row and itself, and nothing else. With n ≤ d the bound e^(ε·n) is at most e^(ε·d): what is promised for
the true distance d holds. So it does for n as a sum of rounded terms, and for the smallest of several. A rounded
distance may exceed the way around by one millionth, as ⌊a + b⌋ ≤ ⌊a⌋ + ⌊b⌋ + 1: the verifier does not use the triangle
inequality. Who reads a promise does, so distances that break it by more are refused: along the shorter way the odds
change less than the stated distance says, and the mechanism would pay for a promise that is not the one stated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._display import counted
from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.mechanism.problem import NEVER_MM, check_distances

MILLION: Final = 10**6
_DEGREE_E7: Final = 1e-7
_FLOAT_ERROR: Final = 1e-3
"""A hundred times what floats are off by, in millionths: what is rounded down by it is never too large."""
_FARTHEST_MM: Final = 1e10
"""Places further apart than 10,000 km count as this far: beyond it the haversine formula loses digits."""
_ROUNDED: Final = 2
"""Millionths by which rounding may break the triangle inequality."""
FARTHEST: Final = 10**15
"""The largest finite distance, in millionths: floats still hold sums of some of them exactly."""


class Metric(ABC):
    """Distances between secrets, in whole millionths of a unit, rounded down.

    Made by `Metric.haversine`, `Metric.norm`, `Metric.matrix` or `Metric.of`. A metric of another kind is a class with
    `__len__` and `between`.

    Examples
    --------
    >>> from geoblanket import Metric
    >>> metric = Metric.norm([[0.0, 0.0], [3.0, 4.0]], unit="unit of length")
    >>> metric
    <Metric: 2 secrets, in unit of length>
    >>> Metric.matrix([[0, 1, 5], [1, 0, 1], [5, 1, 0]], unit="step")
    Traceback (most recent call last):
        ...
    geoblanket.errors.ParameterError: ...secrets 0 and 2 are 5 apart, and only 2 by way of 1...
    """

    unit: str = "km"
    """What distances are counted in, in the singular: ε is per unit."""
    labels: tuple[str, ...] | None = None
    """Names of the secrets, if they have some."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of secrets."""

    @abstractmethod
    def between(self, some: npt.NDArray[np.integer], others: npt.NDArray[np.integer]) -> Ints:
        """Return the distances from some secrets to others, whole millionths, shape (some, others).

        They are never above the true distance, the same in both directions, and 0 from a secret to itself. `NEVER_MM`
        stands for infinitely far.
        """

    @property
    def whole(self) -> Ints:
        """The distances between all secrets, shape (n, n)."""
        everything = np.arange(len(self))
        return self.between(everything, everything)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels or ())}

    def number(self, secret: str | int) -> int:
        """Return the number of a secret, from its label or its number."""
        number = self._numbers.get(secret, -1) if isinstance(secret, str) else int(secret)
        if not 0 <= number < len(self):
            raise ParameterError(
                f"There are {counted(len(self), 'value')} in this domain"
                f"{'' if self.labels else ', without labels'}. The one asked for is not among them."
            )
        return number

    @staticmethod
    @checked
    def haversine(coordinates_e7: Indices | Ints) -> Metric:
        """Return the great-circle distance between places, in kilometres.

        Parameters
        ----------
        coordinates_e7
            Latitude and longitude of each place in 1e-7 degrees, shape (n, 2).
        """
        return _Haversine(coordinates_e7)

    @staticmethod
    @checked
    def norm(vectors: npt.ArrayLike, *, p: float = 2.0, unit: str, labels: Sequence[str] | None = None) -> Metric:
        """Return the ℓ_p distance between vectors.

        Parameters
        ----------
        vectors
            A vector for each secret, in units, shape (n, dimensions), or (n,) for numbers.
        p
            From 1 (city blocks) over 2 (straight lines) to `inf` (the largest difference).
        unit
            What distances are counted in, in the singular.
        labels
            Names of the secrets.
        """
        return _Norm(vectors, p=p, unit=unit, labels=labels)

    @staticmethod
    @checked
    def matrix(distance: npt.ArrayLike, *, unit: str, labels: Sequence[str] | None = None) -> Metric:
        """Return given distances as a metric, if they are one; `shortest_paths` repairs a broken triangle inequality.

        Parameters
        ----------
        distance
            Distances in units, shape (n, n): symmetric, not negative, zero on the diagonal; `inf` for secrets that need
            not be hidden from one another. The triangle inequality is checked, which takes n³ steps.
        unit, labels
            Those of `norm`.
        """
        return _Matrix(distance, unit=unit, labels=labels)

    @staticmethod
    @checked
    def of(
        secrets: Sequence[Any],
        distance: Callable[[Any, Any], float],
        *,
        unit: str,
        labels: Sequence[str] | None = None,
    ) -> Metric:
        """Return the metric that a function computes, called once for each ordered pair; see `matrix`.

        Parameters
        ----------
        secrets
            What the function takes. Texts are the labels too.
        distance
            Returns the distance of two secrets, in units.
        unit, labels
            Those of `norm`.
        """
        named = all(isinstance(secret, str) for secret in secrets)
        table = [[distance(one, other) for other in secrets] for one in secrets]
        return _Matrix(table, unit=unit, labels=list(secrets) if labels is None and named else labels)

    def __repr__(self) -> str:
        return f"<Metric: {counted(len(self), 'secret')}, in {self.unit}>"


class _Haversine(Metric):
    def __init__(self, coordinates_e7: Indices | Ints) -> None:
        if coordinates_e7.ndim != 2 or coordinates_e7.shape[1] != 2 or not len(coordinates_e7):
            raise ParameterError(f"coordinates_e7 must have the shape (n, 2). Got {coordinates_e7.shape} instead.")
        self._lat, self._lon = (coordinates_e7.astype(np.float64) * _DEGREE_E7).T

    def __len__(self) -> int:
        return len(self._lat)

    def between(self, some: npt.NDArray[np.integer], others: npt.NDArray[np.integer]) -> Ints:
        mm = haversine_m(self._lat[some, None], self._lon[some, None], self._lat[others], self._lon[others])
        mm *= 1000
        mm -= _FLOAT_ERROR
        # In place, and cut off rather than rounded, which is the same from 0 on: cities have millions of pairs.
        return mm.clip(0, _FARTHEST_MM, out=mm).astype(np.int64)


class _Matrix(Metric):
    def __init__(self, distance: npt.ArrayLike, *, unit: str, labels: Sequence[str] | None) -> None:
        given = _as_floats(distance, "distance", dimensions=(2,))
        if problems := check_distances(given, "distance"):
            raise ParameterError("This is not a metric: " + "; ".join(problems) + ".")
        self.unit, self.labels = unit, _checked_labels(labels, len(given))
        self._whole = whole_millionths(np.minimum(given, given.T) * MILLION)
        if (detour := _first_detour(self._whole)) is not None:
            one, way, other = detour
            first, between, last = (repr(self.labels[n]) if self.labels else str(n) for n in detour)
            raise ParameterError(
                f"This is not a metric: secrets {first} and {last} are {given[one, other]:g} apart, and only "
                f"{given[one, way] + given[way, other]:g} by way of {between}. Give the lengths of the shortest ways "
                "instead: shortest_paths(distance)."
            )

    def __len__(self) -> int:
        return len(self._whole)

    def between(self, some: npt.NDArray[np.integer], others: npt.NDArray[np.integer]) -> Ints:
        found: Ints = self._whole[np.ix_(some, others)]
        return found


class _Norm(Metric):
    def __init__(self, vectors: npt.ArrayLike, *, p: float, unit: str, labels: Sequence[str] | None) -> None:
        if not p >= 1:
            raise ParameterError(f"p must be 1 or more: ℓ_p is no metric below. Got {p:g} instead.")
        values = _as_floats(vectors, "vectors", dimensions=(1, 2))
        if not np.isfinite(values).all():
            row = int(np.argwhere(~np.isfinite(values))[0][0])
            raise ParameterError(f"vectors must be finite numbers. The vector of secret {row} is not.")
        self._vectors, self._p = values.reshape(len(values), -1), p
        self.unit, self.labels = unit, _checked_labels(labels, len(values))

    def __len__(self) -> int:
        return len(self._vectors)

    def between(self, some: npt.NDArray[np.integer], others: npt.NDArray[np.integer]) -> Ints:
        dimensions = self._vectors.shape[1]
        largest, total = (np.zeros((len(some), len(others))) for _ in range(2))
        for axis in range(dimensions):
            np.maximum(largest, self._apart(axis, some, others), out=largest)
        if self._p < np.inf:
            # Powers of shares: those of the differences themselves may be too large for floats.
            scale = np.where(largest > 0, largest, 1.0)
            for axis in range(dimensions):
                total += (self._apart(axis, some, others) / scale) ** self._p
            largest *= total ** (1 / self._p)
        # Each step is off by less than 2^-52 of itself: a distance that is so much smaller is never too large.
        return whole_millionths(largest * (MILLION * (1 - (dimensions + 16) * 2.0**-52)))

    def _apart(self, axis: int, some: npt.NDArray[np.integer], others: npt.NDArray[np.integer]) -> Floats:
        apart: Floats = np.abs(self._vectors[some, axis][:, None] - self._vectors[others, axis])
        return apart


def whole_millionths(distance: Floats) -> Ints:
    """Return distances in millionths as whole numbers, rounded down, 0 or more; `NEVER_MM` for `inf`."""
    finite = np.isfinite(distance)
    rounded = np.floor(np.where(finite, distance, 0.0)).astype(np.int64)
    return np.where(finite, np.maximum(rounded, 0), NEVER_MM)


def weighted(distance: Ints, weight_micro: int) -> Ints:
    """Return whole distances times a weight in millionths, rounded down, exactly, in integers.

    Products above 10^15, a thousand million units, count as that: as nearer than they are. A weight of `NEVER_MM`
    stands for infinity: all that is not at distance 0 is infinitely far.
    """
    if weight_micro == NEVER_MM:
        return np.where(distance > 0, NEVER_MM, 0)
    if weight_micro == 0:
        return np.zeros_like(distance)
    units, rest = divmod(weight_micro, MILLION)
    # In parts, so that no product leaves the 64 bits.
    high, low = np.divmod(np.minimum(distance, FARTHEST // max(units, 1)), MILLION)
    product = (high * MILLION + low) * units + high * rest + low * rest // MILLION
    return np.where(distance == NEVER_MM, NEVER_MM, np.minimum(product, FARTHEST))


@checked
def shortest_paths(distance: npt.ArrayLike) -> Floats:
    """Return the lengths of the shortest ways: the largest metric that is nowhere above the given distances.

    Parameters
    ----------
    distance
        Symmetric, not negative, zero on the diagonal, shape (n, n); `inf` where there is no direct way.

    Examples
    --------
    >>> from geoblanket.mechanism import shortest_paths
    >>> shortest_paths([[0, 1, 5], [1, 0, 1], [5, 1, 0]])[0, 2]
    np.float64(2.0)
    """
    result = _as_floats(distance, "distance", dimensions=(2,))
    if problems := check_distances(result, "distance"):
        raise ParameterError("There are no shortest ways: " + "; ".join(problems) + ".")
    for way in range(len(result)):
        np.minimum(result, result[:, way, None] + result[way], out=result)
    return result


def _first_detour(whole: Ints) -> tuple[int, int, int] | None:
    """Return secrets i, k and j such that the way from i to j is longer than by way of k; None if there are none."""
    distance = np.where(whole == NEVER_MM, np.inf, whole.astype(np.float64))
    for way in range(len(distance)):
        longer = distance > distance[:, way, None] + (distance[way] + _ROUNDED)
        if longer.any():
            one, other = np.argwhere(longer)[0]
            return int(one), way, int(other)
    return None


def as_numbers(values: Any, name: str) -> Floats:
    """Return values as an array of floats; raise ParameterError, with their name, if they are no numbers."""
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must be numbers, and as many in each row.") from None


def _as_floats(values: npt.ArrayLike, name: str, *, dimensions: tuple[int, ...]) -> Floats:
    array = as_numbers(values, name)
    if array.ndim not in dimensions or array.size == 0:
        raise ParameterError(
            f"{name} must be a non-empty array of {' or '.join(map(str, dimensions))} dimension(s), got the shape "
            f"{array.shape}."
        )
    return array


def _checked_labels(labels: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    if labels is None:
        return None
    if len(labels) != count or len(set(labels)) != count:
        raise ParameterError(
            f"labels must name each of {counted(count, 'secret')} once. Got {len(labels)}, {len(set(labels))} of them "
            "different."
        )
    return tuple(labels)
