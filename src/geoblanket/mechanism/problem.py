"""The problem that a mechanism solves: rows, outputs, a prior, a loss, row distances, ε and η.

A row is one distribution over outputs. Two rows at distance d ≤ η must not be told apart by more than a factor e^(ε·d).
The exact side works with whole numbers, each rounded so that the promise gets stronger, never weaker: ε in millionths
per kilometre, rounded down; distances in millimetres, rounded down; η in millimetres, rounded up. In a domain other
than locations the kilometre stands for the unit of its metric, and the millimetre for the millionth of that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats, Ints
from geoblanket._display import counted, short_repr
from geoblanket.errors import ParameterError
from geoblanket.mechanism.exponential_bounds import MAX_EPSILON_MICRO

NEVER_MM: Final = 2**63 - 1
"""The distance, in millimetres, of two rows that are never constrained (`inf` kilometres)."""
INFINITE_ETA_MM: Final = 2**63 - 2
"""η = ∞ in millimetres: all pairs with a finite distance are constrained."""

Array = TypeVar("Array", bound=npt.NDArray[np.generic])

_MAX_DISTANCE_KM = 1e9  # in millimetres still exact as a float
_SYMMETRY_KM = 1e-9
_PRIOR_TOLERANCE = 1e-9
_MM_PER_KM = 10**6


@checked
@dataclass(frozen=True, eq=False)
class Problem:
    """What a mechanism is asked for: to keep a promise between rows, at the least expected loss.

    The arrays are copied and read-only. One `ParameterError` lists all that is wrong with the arguments.

    Parameters
    ----------
    loss
        What each output costs where each row is true, finite and not negative, shape (S, K).
    prior
        How probable each row is, shape (S,); sums to 1 within 1e-9 (and is then divided by its sum).
    distance_km
        Row distances in kilometres, shape (S, S): symmetric (within 1e-9 km; the smaller of the two counts), zero on
        the diagonal; `inf` for rows that are never constrained.
    epsilon
        ε per kilometre, from 1e-6 to 1,000.
    eta_km
        The largest distance at which rows are constrained, in kilometres.
    unit
        What stands for the kilometre in another domain, in the singular; see `Metric`.

    Examples
    --------
    >>> import numpy as np
    >>> from geoblanket import Problem
    >>> places_km = np.array([0.0, 1.0, 2.0])  # three places on a line
    >>> distance_km = abs(places_km[:, None] - places_km)
    >>> problem = Problem(loss=distance_km, prior=np.full(3, 1 / 3), distance_km=distance_km, epsilon=1.0)
    >>> problem.loss.shape
    (3, 3)
    """

    loss: Floats
    prior: Floats
    distance_km: Floats
    epsilon: float
    eta_km: float = math.inf
    unit: str = "km"

    def __post_init__(self) -> None:
        problems: list[str] = []
        loss = _as_floats(self.loss, "loss", 2, problems)
        prior = _as_floats(self.prior, "prior", 1, problems)
        distance = _as_floats(self.distance_km, "distance_km", 2, problems)
        if loss is not None:
            problems += _check_loss(loss)
        if prior is not None:
            problems += check_prior(prior)
        if distance is not None:
            problems += check_distances(distance, "distance_km")
        if loss is not None and prior is not None and distance is not None:
            problems += _check_sizes(loss, prior, distance)
        problems += _check_number(self.epsilon, "epsilon", 1 / _MM_PER_KM, MAX_EPSILON_MICRO / _MM_PER_KM)
        problems += _check_number(self.eta_km, "eta_km", 0.0, math.inf)
        if problems or loss is None or prior is None or distance is None:
            raise ParameterError("This is not a problem that can be solved: " + "; ".join(problems) + ".")
        object.__setattr__(self, "loss", _read_only(loss))
        object.__setattr__(self, "prior", _read_only(prior / prior.sum()))
        object.__setattr__(self, "distance_km", _read_only(np.minimum(distance, distance.T)))
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "eta_km", float(self.eta_km))

    @classmethod
    @checked
    def in_millimetres(
        cls,
        *,
        loss: Floats,
        prior: Floats,
        distance_mm: Ints,
        epsilon: float,
        eta_km: float = math.inf,
        unit: str = "km",
    ) -> Problem:
        """Return the problem whose row distances are these whole millimetres; `NEVER_MM` for `inf`.

        The other parameters are those of the class.
        """
        if not np.issubdtype(np.asarray(distance_mm).dtype, np.integer):
            raise ParameterError("distance_mm must be an array of whole numbers.")
        problem = cls(loss, prior, kilometres(distance_mm), epsilon, eta_km, unit)
        object.__setattr__(problem, "distance_mm", _read_only(np.array(distance_mm, np.int64)))
        return problem

    @property
    def row_count(self) -> int:
        """S, the number of rows."""
        return len(self.loss)

    @property
    def output_count(self) -> int:
        """K, the number of outputs."""
        return int(self.loss.shape[1])

    @property
    def epsilon_micro(self) -> int:
        """ε in millionths per kilometre, rounded down."""
        return epsilon_in_micro(self.epsilon)

    @property
    def eta_mm(self) -> int:
        """η in millimetres, rounded up."""
        if self.eta_km > _MAX_DISTANCE_KM:
            return INFINITE_ETA_MM
        return math.ceil(Decimal(repr(self.eta_km)) * _MM_PER_KM)

    @cached_property
    def distance_mm(self) -> Ints:
        """Row distances in millimetres, rounded down; `NEVER_MM` for `inf`; shape (S, S)."""
        finite = np.isfinite(self.distance_km)
        result = np.full(self.distance_km.shape, NEVER_MM, np.int64)
        result[finite] = np.floor(self.distance_km[finite] * _MM_PER_KM).astype(np.int64)
        return _read_only(result)

    @cached_property
    def constrained(self) -> Bools:
        """Which pairs of different rows are constrained, shape (S, S)."""
        result = self.distance_mm <= self.eta_mm
        np.fill_diagonal(result, False)
        result.setflags(write=False)
        return result

    @cached_property
    def log_bound(self) -> Floats:
        """Largest ln(q_s / q_s') allowed, ε·d from the whole numbers; `inf` where not constrained; shape (S, S)."""
        result = self.distance_mm.astype(np.float64) * (self.epsilon_micro / _MM_PER_KM**2)
        result[~self.constrained] = np.inf
        np.fill_diagonal(result, 0.0)
        return _read_only(result)

    @cached_property
    def row_class(self) -> Ints:
        """The class of each row, shape (S,): rows at distance 0 mm share one, transitively; in order of rows."""
        from scipy.sparse.csgraph import connected_components  # a device needs this module, and not SciPy

        _, labels = connected_components(self.distance_mm == 0, directed=False)
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        return _read_only(rank[inverse])

    @cached_property
    def component(self) -> Ints:
        """The component of each row in the graph of constrained pairs, shape (S,)."""
        from scipy.sparse.csgraph import connected_components

        _, labels = connected_components(self.constrained, directed=False)
        return _read_only(labels.astype(np.int64))

    def class_means(self, values: Floats) -> Floats:
        """Return the mean over each class of `values`, shape (S, ...), weighted by the prior (plain where it is 0)."""
        classes = self.row_class
        count = int(classes.max()) + 1
        mass = np.bincount(classes, self.prior, count)
        weight = np.where(mass[classes] > 0, self.prior, 1.0)
        weight = weight / np.bincount(classes, weight, count)[classes]
        result = np.zeros((count, *values.shape[1:]))
        np.add.at(result, classes, values * weight.reshape(-1, *(1,) * (values.ndim - 1)))
        return result

    def merged(self) -> Problem:
        """Return the problem over classes of rows at distance 0 mm, which must share a row; itself if there are none.

        Priors are summed, losses averaged by the prior, and the distance of two classes is the smallest between their
        rows. A mechanism `q` of it is one of this problem as `q[self.row_class]`, with the same expected loss.
        """
        classes = self.row_class
        count = int(classes.max()) + 1
        if count == self.row_count:
            return self
        order = np.argsort(classes, kind="stable")
        starts = np.searchsorted(classes[order], np.arange(count))
        distance = np.minimum.reduceat(self.distance_mm[np.ix_(order, order)], starts, axis=0)
        distance = np.minimum.reduceat(distance, starts, axis=1)
        np.fill_diagonal(distance, 0)
        return Problem.in_millimetres(
            loss=self.class_means(self.loss),
            prior=np.bincount(classes, self.prior, count).astype(np.float64),
            distance_mm=distance,
            epsilon=self.epsilon,
            eta_km=self.eta_km,
            unit=self.unit,
        )

    def __repr__(self) -> str:
        rows, outputs = self.loss.shape
        within = "" if self.eta_km == math.inf else f"η = {self.eta_km:g} {self.unit}"
        return short_repr(
            self, counted(rows, "row"), counted(outputs, "output"), f"ε = {self.epsilon:g} per {self.unit}", within
        )


def kilometres(distance_mm: Ints) -> Floats:
    """Return whole millimetres as kilometres; `inf` for `NEVER_MM`."""
    whole = np.asarray(distance_mm)
    return np.where(whole == NEVER_MM, np.inf, whole / _MM_PER_KM)


def epsilon_in_micro(epsilon: float) -> int:
    """Return ε in millionths per kilometre, rounded down, from its decimals."""
    return math.floor(Decimal(repr(epsilon)) * _MM_PER_KM)


def _as_floats(values: npt.ArrayLike, name: str, dimensions: int, problems: list[str]) -> Floats | None:
    array = np.array(values, dtype=np.float64)
    if array.ndim != dimensions or array.size == 0:
        problems.append(f"{name} must be a non-empty array of {dimensions} dimension(s), got the shape {array.shape}")
        return None
    return array


def _check_loss(loss: Floats) -> list[str]:
    problems = []
    if bad := int(np.count_nonzero(~np.isfinite(loss))):
        row, output = np.argwhere(~np.isfinite(loss))[0]
        problems.append(f"loss has {bad} value(s) that are NaN or infinite, the first at row {row}, output {output}")
    if bad := int(np.count_nonzero(loss < 0)):
        row, output = np.argwhere(loss < 0)[0]
        problems.append(f"loss has {bad} negative value(s), the first at row {row}, output {output}")
    return problems


def check_prior(prior: Floats) -> list[str]:
    """Return what keeps numbers from being probabilities that sum to 1: a part of a sentence, or nothing."""
    if not np.isfinite(prior).all():
        return [f"prior has {np.count_nonzero(~np.isfinite(prior))} value(s) that are NaN or infinite"]
    if (prior < 0).any():
        return [f"prior has {np.count_nonzero(prior < 0)} negative value(s)"]
    total = float(prior.sum())
    if abs(total - 1) > _PRIOR_TOLERANCE:
        return [f"prior must sum to 1, got {total:.12g}"]
    return []


def check_distances(distance: Floats, name: str) -> list[str]:
    """Return what keeps numbers from being distances: one part of a sentence for each kind of fault."""
    if distance.shape[0] != distance.shape[1]:
        return [f"{name} must be square, got the shape {distance.shape}"]
    if np.isnan(distance).any():
        return [f"{name} has {np.count_nonzero(np.isnan(distance))} value(s) that are NaN"]
    problems = []
    if bad := int(np.count_nonzero(distance < 0)):
        problems.append(f"{name} has {bad} negative value(s)")
    if bad := int(np.count_nonzero(np.diagonal(distance))):
        problems.append(f"{name} must be 0 on its diagonal, {bad} value(s) are not")
    if bad := int(np.count_nonzero(np.isfinite(distance) & (distance > _MAX_DISTANCE_KM))):
        problems.append(f"{name} has {bad} value(s) above {_MAX_DISTANCE_KM:g} (use inf for 'never constrained')")
    finite = np.isfinite(distance)
    gap = np.abs(np.where(finite, distance, 0.0) - np.where(finite, distance, 0.0).T)
    asymmetric = (gap > _SYMMETRY_KM) | (finite != finite.T)
    if asymmetric.any():
        row, other = np.argwhere(asymmetric)[0]
        problems.append(
            f"{name} must be symmetric, {np.count_nonzero(asymmetric) // 2} pair(s) are not, "
            f"the first is rows {row} and {other}"
        )
    return problems


def _check_sizes(loss: Floats, prior: Floats, distance: Floats) -> list[str]:
    if len(prior) == len(loss) == len(distance):
        return []
    return [f"loss, prior and distance_km must have as many rows, got {len(loss)}, {len(prior)} and {len(distance)}"]


def _check_number(value: float, name: str, least: float, most: float) -> list[str]:
    return [] if least <= value <= most else [f"{name} must be from {least:g} to {most:g}, got {value:g}"]


def _read_only(array: Array) -> Array:
    array.setflags(write=False)
    return array
