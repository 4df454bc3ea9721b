"""The metric between places that a bundle of zones promises in: on the map, by road, or an ℓ_p.

On the map a device computes distances itself, from coordinates. Any other metric is a table of whole millimetres over
all places of the bundle. The device checks row distances against the table, exactly, over all histories. That the table
holds what its name says, only the builder knows; how many times further apart two places are than on the map, the
device computes, and its policy limits.

Why the longer direction counts by road
---------------------------------------
One-way streets make the way there, r(a, b), differ from the way back. D(a, b) = max(r(a, b), r(b, a)) is a metric. It
is symmetric, and 0 only for equal places. As r(a, c) ≤ r(a, b) + r(b, c) ≤ D(a, b) + D(b, c), and the same holds for
r(c, a), the larger of the two is at most that as well. The smaller direction is no metric. Take r(b, a) = r(b, c) = 1
and all other ways long: a and c are then each 1 from b, and far from each other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._geodesy import local_metres
from geoblanket.errors import ParameterError
from geoblanket.mechanism.metric import Metric, whole_millionths

GREAT_CIRCLE: Final = "great circle"
ROAD: Final = "road"
MOST_PLACES: Final = 4000
"""Places with a table of distances: it takes 128 MB of memory."""
NAMES: Final = re.compile(r"great circle|road|norm:([1-9]\d?(\.\d{1,3})?|inf)")


def checked_name(name: str) -> str:
    """Return the name of a metric; raise ParameterError if there is none of this name."""
    if not NAMES.fullmatch(name):
        raise ParameterError(f"The metric must be '{GREAT_CIRCLE}', '{ROAD}' or 'norm:P' with P from 1 to 99, or inf.")
    return name


def unit_of(name: str) -> str:
    """Return what distances in a metric are counted in: ε is per unit."""
    return {GREAT_CIRCLE: "km", ROAD: "km of road"}.get(name) or f"km in ℓ_{name.removeprefix('norm:')}"


@dataclass(frozen=True, eq=False, repr=False)
class PlaceMetric(Metric):
    """Places with a table of their distances."""

    name: str
    coordinates_e7: Indices
    """Latitude and longitude of each place in 1e-7 degrees, shape (P, 2)."""
    mm: Ints
    """Whole millimetres, rounded down; symmetric, 0 on the diagonal; shape (P, P)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit", unit_of(checked_name(self.name)))

    @classmethod
    def by_road(cls, coordinates_e7: Indices, length_m: Floats) -> PlaceMetric:
        """Return the distance by road, in the longer direction.

        Parameters
        ----------
        length_m
            The length of the shortest way from each place to each other one, metres, shape (P, P).
        """
        if not np.isfinite(length_m).all():
            raise ParameterError(
                "There is no way by road between some places, so that they have no distance. Keep the largest part of "
                "the roads in which every place can be reached."
            )
        mm = np.maximum(length_m, length_m.T) * 1000
        np.fill_diagonal(mm, 0)
        # A micrometre less: more than the sums of lengths, in floats, can be off by.
        return cls(ROAD, coordinates_e7, whole_millionths(mm - 1e-3))

    @classmethod
    def by_norm(cls, coordinates_e7: Indices, name: str) -> PlaceMetric:
        """Return an ℓ_p distance, `norm:P`, in the plane that touches the Earth amid the places."""
        lat, lon = coordinates_e7.T * 1e-7
        plane = local_metres(lat, lon, origin_lat=float(lat.mean()), origin_lon=float(lon.mean()))
        metric = Metric.norm(np.column_stack(plane) / 1000, p=float(name.removeprefix("norm:")), unit=unit_of(name))
        return cls(name, coordinates_e7, metric.whole)

    def __len__(self) -> int:
        return len(self.mm)

    def between(self, some: npt.NDArray[np.integer], others: npt.NDArray[np.integer]) -> Ints:
        """Return the distances from some places to others, whole millimetres, shape (some, others)."""
        found: Ints = self.mm[np.ix_(some, others)]
        return found


def check_count(places: int) -> None:
    """Raise ParameterError if there are too many places for a table of distances."""
    if places > MOST_PLACES:
        raise ParameterError(
            f"A metric other than '{GREAT_CIRCLE}' needs a table of all distances, for {MOST_PLACES:,} places at most. "
            f"Got {places:,}: match with a wider spacing, or take '{GREAT_CIRCLE}'."
        )
