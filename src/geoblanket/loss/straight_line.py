"""The plainest loss: how far the reported place is from the true one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._display import counted, short_repr
from geoblanket._geodesy import haversine_m
from geoblanket.loss.place_loss import LossTable, check_places
from geoblanket.roads.places import Places

__all__ = ["StraightLine"]


@checked
@dataclass(frozen=True, eq=False)
class StraightLine:
    """The great-circle distance between the true and the reported place, kilometres.

    Parameters
    ----------
    places
        The places.
    """

    places: Places
    name: str = "straight line"
    unit: str = "km"

    def __call__(self, true_places: npt.ArrayLike, reported: npt.ArrayLike) -> LossTable:
        """Return the distance of each reported place from each true one, kilometres; see `PlaceLoss`."""
        row = check_places(true_places, len(self.places), "true places")[:, None]
        column = check_places(reported, len(self.places), "reported places")[None, :]
        lat, lon = self.places.lat, self.places.lon
        return LossTable(haversine_m(lat[row], lon[row], lat[column], lon[column]) / 1000)

    def __repr__(self) -> str:
        return short_repr(self, f"in {self.unit}", counted(len(self.places), "place"))
