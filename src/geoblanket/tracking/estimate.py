"""From a belief over places to what a recipient wants to know: a point, a radius, the likeliest places.

The point of least expected distance is the geometric median of the belief (Weiszfeld's iteration); it need not be a
place. For another loss, the estimate is the place of least expected loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Ints
from geoblanket._display import counted, short_repr
from geoblanket.loss.place_loss import PlaceLoss
from geoblanket.tracking.motion_model import MotionModel, Singles

_ITERATIONS: Final = 6
_SMOOTHING_M: Final = 20.0
"""Distances count as this at least, so that the iteration does not get stuck at a place, metres."""
_SHARE_WITHIN: Final = 0.9
_BIN_M: Final = 10.0
_BINS: Final = 10_000
_MASS_KEPT: Final = 0.999
_MASS_LEFT_OUT: Final = 1e-4
"""The largest share of a belief in places that are skipped as too improbable."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimated positions of vehicles."""

    lat: Floats
    """Degrees, shape (B,)."""
    lon: Floats
    radius_m: Floats
    """The circle around the estimate that holds the vehicle with a probability of 90 %, metres."""

    def __len__(self) -> int:
        return len(self.lat)

    def __repr__(self) -> str:
        radius = f"90 % within {np.median(self.radius_m):,.0f} m in the median" if len(self) else ""
        return short_repr(self, counted(len(self), "vehicle"), radius)


class Estimator:
    """Makes estimates from beliefs over the places of a motion model.

    Parameters
    ----------
    model
        Has the places.
    loss
        What a wrong place costs; None: the distance, and estimates need not be places.
    """

    def __init__(self, model: MotionModel, loss: PlaceLoss | None = None) -> None:
        self._model, self._loss = model, loss
        self._x, self._y = (np.ascontiguousarray(axis, np.float32) for axis in model.xy_m.T)
        self._spread2 = model.spreads_m**2

    def estimates(self, places: Singles) -> Estimates:
        """Return the estimates of beliefs over places, shape (P, B)."""
        likely = self._likely(places)
        points = self._points(places, likely)
        lat, lon = self._model.to_degrees(points)
        return Estimates(lat, lon, likely.radii_m(points))

    def points(self, places: Singles) -> Floats:
        """Return the points of least expected loss in the model's plane, metres, shape (B, 2)."""
        return self._points(places, self._likely(places))

    def _points(self, places: Singles, likely: _Likely) -> Floats:
        if self._loss is None:
            return likely.medians()
        # Losses are known between places of the map alone.
        return self._model.xy_m[_best_places(places[: self._model.map_places], self._loss)]

    def _likely(self, places: Singles) -> _Likely:
        return _Likely.of(places, self._x, self._y, self._spread2)

    def within(self, places: Singles, lat: npt.ArrayLike, lon: npt.ArrayLike, radius_m: float) -> Floats:
        """Return the probability that each vehicle is within `radius_m` metres of a point (degrees), shape (B,)."""
        apart = self._model.xy_m[:, None] - np.atleast_2d(self._model.to_plane(lat, lon))
        near = np.hypot(apart[..., 0], apart[..., 1]) <= radius_m
        result: Floats = (places * near).sum(axis=0, dtype=np.float64) / places.sum(axis=0, dtype=np.float64)
        return result

    def likeliest(self, places: Singles, count: int) -> tuple[Ints, Floats]:
        """Return the most probable places and their probabilities, largest first, each of shape (count, B)."""
        order = np.argsort(-places, axis=0, kind="stable")[:count]
        chances = np.take_along_axis(places, order, axis=0) / places.sum(axis=0)
        return order, chances.astype(np.float64)


@dataclass(frozen=True, eq=False)
class _Likely:
    """The probable places of each belief, belief after belief: a small part of a large city."""

    column: Ints
    starts: Ints
    """Where the places of each belief start, shape (B,)."""
    chance: Singles
    x: Singles
    y: Singles
    spread2: Singles
    """Mean square distance of a vehicle from the place, square metres."""

    @classmethod
    def of(cls, places: Singles, x: Singles, y: Singles, spread2: Singles) -> _Likely:
        beliefs = np.ascontiguousarray(places.T)
        least = beliefs.sum(axis=1, keepdims=True) * np.float32(_MASS_LEFT_OUT / len(places))
        column, place = np.nonzero(beliefs >= least)
        starts = np.searchsorted(column, np.arange(len(beliefs)))
        return cls(column, starts, beliefs[column, place], x[place], y[place], spread2[place])

    def medians(self) -> Floats:
        """Return the points of least expected distance in the plane, metres, shape (B, 2)."""
        x, y = self._centers(self.chance)
        # A place stands for points around it, so no vehicle is at distance 0.
        least = np.maximum(self.spread2, np.float32(_SMOOTHING_M**2))
        for _ in range(_ITERATIONS):
            east, north = self.x - x[self.column], self.y - y[self.column]
            x, y = self._centers(self.chance * (east * east + north * north + least) ** -0.5)
        return np.stack([x, y], axis=-1).astype(np.float64)

    def _centers(self, weights: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        total = np.add.reduceat(weights, self.starts)
        x, y = (np.add.reduceat(weights * axis, self.starts) / total for axis in (self.x, self.y))
        return x, y

    def radii_m(self, points: Floats) -> Floats:
        """Return the radii of circles around points that hold 90 % of beliefs, metres, shape (B,)."""
        x, y = points.astype(np.float32).T
        # Sorting all distances would be slower than counting them in rings of 10 m around each point.
        distance = np.hypot(self.x - x[self.column], self.y - y[self.column])
        ring = np.minimum(distance * np.float32(1 / _BIN_M), _BINS - 1).astype(np.int64)
        rings = int(ring.max(initial=0)) + 1
        held = np.bincount(self.column * rings + ring, self.chance, len(points) * rings).reshape(-1, rings)
        held = held.cumsum(axis=1)
        radii: Floats = ((held < _SHARE_WITHIN * held[:, -1:]).sum(axis=1) + 1) * _BIN_M
        off = np.add.reduceat(self.chance * self.spread2, self.starts) / np.add.reduceat(self.chance, self.starts)
        return np.sqrt(radii**2 + off)


def geometric_median(points: Floats, *, nearest: float, rounds: int = 50) -> Floats:
    """Return the point with the least sum of distances to each set of points, shape (..., 2): Weiszfeld's iteration.

    It is the likeliest origin of reports with planar Laplace noise.

    Parameters
    ----------
    points
        In a plane, shape (..., n, 2).
    nearest
        Distances count as this at least, in the unit of the points: the iteration cannot divide by zero.
    rounds
        Number of iterations.
    """
    median: Floats = points.mean(axis=-2)
    for _ in range(rounds):
        weight = 1 / np.maximum(np.linalg.norm(points - median[..., None, :], axis=-1), nearest)
        median = (weight[..., None] * points).sum(axis=-2) / weight.sum(axis=-1)[..., None]
    return median


def _best_places(places: Singles, loss: PlaceLoss) -> Ints:
    """Return the places of least expected loss, shape (B,)."""
    best = np.empty(places.shape[1], np.int64)
    for column, belief in enumerate(places.T):
        order = np.argsort(-belief)
        likely = order[: int(np.searchsorted(np.cumsum(belief[order]), _MASS_KEPT * belief.sum())) + 1]
        expected = belief[likely].astype(np.float64) @ loss(likely, likely).values
        best[column] = likely[expected.argmin()]
    return best
