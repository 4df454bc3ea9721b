"""How long the blanket of a location is, for the rows of a zone: by a predictor, or the same everywhere."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from geoblanket._geodesy import haversine_m
from geoblanket.blanket.groups import MPH_M_S
from geoblanket.blanket.place_regions import find_regions
from geoblanket.errors import MismatchError
from geoblanket.roads.graph import Ints
from geoblanket.roads.places import Places
from geoblanket.roads.regions import RegionGrid
from geoblanket.roads.zones import Zones

if TYPE_CHECKING:
    from geoblanket.blanket.predictor import Predictor

__all__ = ["FixedLengths", "PredictedLengths", "check_predictor", "regions_of_predictor"]


@dataclass(frozen=True)
class FixedLengths:
    """The same length everywhere."""

    order: int

    def __call__(self, now: Ints, before: Ints) -> npt.NDArray[np.int64]:  # noqa: ARG002 - one signature for all
        """Return the length for each pair of the place at t and the place at t − 1."""
        return np.full(len(now), self.order)


@dataclass(frozen=True, eq=False)
class PredictedLengths:
    """The lengths that a predictor gives for the speed between two places and the region of the present one.

    A regime has several hours; the longest blanket of them counts, since a shorter one would leave out a place that
    matters at one of them.
    """

    predictor: Predictor
    places: Places
    region: Ints
    """The predictor's region of each place, −1 for none, shape (P,)."""
    hours: tuple[int, ...]
    interval_s: float

    def __call__(self, now: Ints, before: Ints) -> npt.NDArray[np.int64]:
        """Return the length for each pair of the place at t and the place at t − 1."""
        lat, lon = self.places.lat, self.places.lon
        speed_mph = haversine_m(lat[now], lon[now], lat[before], lon[before]) / (self.interval_s * MPH_M_S)
        lengths = [
            self.predictor.lengths(hour=hour, speed_mph=speed_mph, region=self.region[now]) for hour in self.hours
        ]
        result: npt.NDArray[np.int64] = np.max(np.broadcast_arrays(*lengths), axis=0)
        return np.broadcast_to(result, now.shape)


def check_predictor(predictor: Predictor, *, interval_s: float, time_zone: str) -> None:
    """Raise MismatchError unless a predictor was trained for this interval and, if hours matter, time zone."""
    origin = predictor.origin
    if origin.interval_s != interval_s:
        raise MismatchError(
            f"The predictor was trained on locations every {origin.interval_s:g} s, the walks have one every "
            f"{interval_s:g} s. Train one on these walks."
        )
    if "hour" in origin.by.split("+") and origin.time_zone != time_zone:
        raise MismatchError(
            f"The predictor tells hours in the time zone {origin.time_zone}, the regimes in {time_zone}. "
            "Give the regimes the predictor's time zone."
        )


def regions_of_predictor(predictor: Predictor, places: Places, zones: Zones) -> Ints:
    """Return the predictor's region of each place, −1 for none, shape (P,).

    Raises
    ------
    MismatchError
        If the regions are zones, and not those of the build.
    """
    about = json.loads(predictor.origin.regions)
    if about is None:
        return np.full(len(places), -1, np.int32)
    if about["kind"] == "grid":
        return find_regions(RegionGrid(**{key: about[key] for key in about if key != "kind"}), places).region
    if about.get("identity") == zones.identity:
        return zones.zone
    raise MismatchError(
        "The predictor was trained for other regions than the zones of this build. Give the zones that its findings "
        "were made with, or train one on a grid of regions."
    )
