"""From a belief over places to what a recipient wants to know: a point, a radius, the likeliest places, an action.

The point of least expected distance is the geometric median of the belief, which need not be a place (Weiszfeld's
iteration). For another loss it is the place of least expected loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Ints
from geoblanket.loss.place_loss import PlaceLoss
from geoblanket.tracking.motion_model import MotionModel, Singles

__all__ = ["Estimates", "Estimator"]

_ITERATIONS: Final = 6
_SMOOTHING_M: Final = 20.0
"""Distances count as this at least, so that no place holds the iteration fast."""
_SHARE_WITHIN: Final = 0.9
_BIN_M: Final = 20.0
_BINS: Final = 5000
_MASS_KEPT: Final = 0.999


@dataclass(frozen=True, eq=False)
class Estimates:
    """Where vehicles are, by what they reported."""

    lat: Floats
    """Degrees, shape (B,)."""
    lon: Floats
    radius_m: Floats
    """The circle around the estimate that holds the vehicle with a probability of 90 %, metres, rounded up to 20."""

    def __len__(self) -> int:
        return len(self.lat)


class Estimator:
    """Makes estimates from beliefs over the places of a motion model.

    Parameters
    ----------
    model
        Says where places are.
    loss
        What a wrong place costs; None: the distance, and estimates need not be places.
    """

    def __init__(self, model: MotionModel, loss: PlaceLoss | None = None) -> None:
        self._model, self._loss = model, loss
        self._x, self._y = (np.ascontiguousarray(axis, np.float32) for axis in model.xy_m.T)

    def estimates(self, places: Singles) -> Estimates:
        """Return the estimates of beliefs over places, shape (P, B)."""
        points = self.points(places)
        lat, lon = self._model.to_degrees(points)
        return Estimates(lat, lon, self.radii_m(places, points))

    def points(self, places: Singles) -> Floats:
        """Return the points of least expected loss in the model's plane, metres, shape (B, 2)."""
        points = self._medians(places) if self._loss is None else self._model.xy_m[_best_places(places, self._loss)]
        return points.astype(np.float64)

    def _medians(self, places: Singles) -> Floats:
        """Return the points of least expected distance in the plane, metres, shape (B, 2)."""
        total = places.sum(axis=0)
        x, y = (self._x @ places) / total, (self._y @ places) / total
        for _ in range(_ITERATIONS):
            pull = places / np.sqrt(
                (self._x[:, None] - x) ** 2 + (self._y[:, None] - y) ** 2 + np.float32(_SMOOTHING_M**2)
            )
            total = pull.sum(axis=0)
            x, y = (self._x @ pull) / total, (self._y @ pull) / total
        return np.stack([x, y], axis=-1).astype(np.float64)

    def radii_m(self, places: Singles, points: Floats) -> Floats:
        """Return the radii of circles around points that hold 90 % of beliefs, metres, shape (B,)."""
        columns = places.shape[1]
        x, y = points.astype(np.float32).T
        distance = np.sqrt((self._x[:, None] - x) ** 2 + (self._y[:, None] - y) ** 2)
        bins = np.minimum(distance * np.float32(1 / _BIN_M), _BINS - 1).astype(np.int64)
        bins += np.arange(columns) * _BINS
        held = np.bincount(bins.ravel(), places.ravel(), columns * _BINS).reshape(columns, _BINS).cumsum(axis=1)
        radii: Floats = ((held < _SHARE_WITHIN * held[:, -1:]).sum(axis=1) + 1) * _BIN_M
        return radii

    def within(self, places: Singles, lat: npt.ArrayLike, lon: npt.ArrayLike, radius_m: float) -> Floats:
        """Return the probability that each vehicle is within so many metres of a point (degrees), shape (B,)."""
        apart = self._model.xy_m[:, None] - np.atleast_2d(self._model.to_plane(lat, lon))
        near = np.hypot(apart[..., 0], apart[..., 1]) <= radius_m
        result: Floats = (places * near).sum(axis=0, dtype=np.float64) / places.sum(axis=0, dtype=np.float64)
        return result

    def likeliest(self, places: Singles, count: int) -> tuple[Ints, Floats]:
        """Return the most probable places and their probabilities, largest first, each of shape (count, B)."""
        order = np.argsort(-places, axis=0, kind="stable")[:count]
        chances = np.take_along_axis(places, order, axis=0) / places.sum(axis=0)
        return order, chances.astype(np.float64)


def _best_places(places: Singles, loss: PlaceLoss) -> Ints:
    """Return the places of least expected loss, shape (B,)."""
    best = np.empty(places.shape[1], np.int64)
    for column, belief in enumerate(places.T):
        order = np.argsort(-belief)
        likely = order[: int(np.searchsorted(np.cumsum(belief[order]), _MASS_KEPT * belief.sum())) + 1]
        expected = belief[likely].astype(np.float64) @ loss(likely, likely).values
        best[column] = likely[expected.argmin()]
    return best
