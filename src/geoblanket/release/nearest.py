"""The place that a location belongs to: the nearest one, by the rule of `mechanism.history_rule.history_table`.

All places are compared, whichever is the nearest, so that the time it takes does not reveal the location.

`PlaceRaster` finds the nearest places of many locations at once, by the rule of `NearestPlace`. A raster lists, for
each cell, the places that can be nearest to a location in it: one place for most cells, several near the borders
between places. Locations in crowded cells or outside the raster are compared with all places.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

import numpy as np

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket.mechanism.history_rule.history_table import COSINE_UNIT, HALF_TURN_E7, cosine, squared_distance

__all__ = ["NearestPlace", "PlaceRaster"]

_SWAPPED_E7: Final = 100_000_000
"""Ten degrees: no vehicle is that far from all places and yet among them once latitude and longitude are exchanged."""
_AMONG_E7: Final = 1_000_000
"""A tenth of a degree from the outermost places still counts as among them."""
_LISTED: Final = 4
_CELLS_PER_PLACE: Final = 256
_BLOCK: Final = 16
"""Cells of a block in each direction: places far from a block are far from all its cells."""
_MOST_CELLS: Final = 1 << 20
_RIM: Final = 0.1
_ROUNDING: Final = 1 + 1e-9
"""Makes up for the rounding of distances."""
_WIDEST_E7: Final = 20_000_000
_LARGEST_LAT_E7: Final = 600_000_000
_MARGIN: Final = 1.07
"""The raster is made with one cosine for all latitudes: within two degrees of latitude, up to 60 degrees from the
equator, it is off by less than 3.1 % either way. Wider areas get no raster."""


class NearestPlace:
    """Finds the nearest of some places.

    Parameters
    ----------
    places_e7
        Latitude and longitude of each place in 1e-7 degrees, shape (P, 2).
    """

    def __init__(self, places_e7: Indices) -> None:
        lat, lon = places_e7.astype(np.float64).T
        self._lat, self._lon = np.ascontiguousarray(lat), np.ascontiguousarray(lon)
        self._box = (float(lat.min()), float(lat.max()), float(lon.min()), float(lon.max()))

    def seems_exchanged(self, lat_e7: int, lon_e7: int) -> bool:
        """Return whether latitude and longitude are clearly exchanged: no vehicle can be there."""
        return not self._within(lat_e7, lon_e7, _SWAPPED_E7) and self._within(lon_e7, lat_e7, _AMONG_E7)

    def of(self, lat_e7: int, lon_e7: int) -> int:
        """Return the place nearest to a location in 1e-7 degrees, wherever on Earth it is."""
        # NumPy takes floats off an array twice as fast as whole numbers, to the same result.
        around = self._box[3] - lon_e7 > HALF_TURN_E7 or lon_e7 - self._box[2] > HALF_TURN_E7
        scale = round(math.cos(math.radians(lat_e7 * 1e-7)) / COSINE_UNIT) * COSINE_UNIT
        north, east = self._lat - float(lat_e7), self._lon - float(lon_e7)
        return int(squared_distance(north, east, scale, around=around).argmin())

    def _within(self, lat_e7: float, lon_e7: float, margin_e7: int) -> bool:
        south, north, west, east = self._box
        return south - margin_e7 <= lat_e7 <= north + margin_e7 and west - margin_e7 <= lon_e7 <= east + margin_e7


class PlaceRaster:
    """Finds the nearest of some places for many locations.

    Parameters
    ----------
    places_e7
        Latitude and longitude of each place in 1e-7 degrees, shape (P, 2).
    """

    def __init__(self, places_e7: Indices) -> None:
        self._single_place = NearestPlace(places_e7)
        self._places = places_e7.astype(np.float64)
        rim = _RIM * (np.ptp(self._places, axis=0) + 1)
        self._south, self._west = self._places.min(axis=0) - rim
        height, width = np.ptp(self._places, axis=0) + 2 * rim
        self._step = max(math.sqrt(height * width / min(_MOST_CELLS, _CELLS_PER_PLACE * len(places_e7))), 1.0)
        self._rows, self._columns = int(height / self._step) + 1, int(width / self._step) + 1
        wide = max(height, width) > _WIDEST_E7 or np.abs(self._places[:, 0]).max() > _LARGEST_LAT_E7
        if wide:
            self._rows = self._columns = 0
        self._listed = self._make()
        self._single = self._listed[:, 1] < 0

    def of(self, lat_e7: Ints, lon_e7: Ints) -> Indices:
        """Return the place nearest to each location in 1e-7 degrees, shape (n,)."""
        cell = self._cell(lat_e7, lon_e7)
        result: Indices = self._listed[cell, 0]
        several = np.flatnonzero(~self._single[cell])
        if len(several):
            result[several] = self._compared(lat_e7[several], lon_e7[several], self._listed[cell[several]])
        for index in np.flatnonzero(result < 0).tolist():
            result[index] = self._single_place.of(int(lat_e7[index]), int(lon_e7[index]))
        return result

    def _cell(self, lat_e7: Ints, lon_e7: Ints) -> Ints:
        """Return the number of the cell of each location; the last cell stands for everything outside the raster."""
        row = np.floor((lat_e7 - self._south) / self._step).astype(np.int64)
        column = np.floor((lon_e7 - self._west) / self._step).astype(np.int64)
        within = (row >= 0) & (row < self._rows) & (column >= 0) & (column < self._columns)
        return np.where(within, row * self._columns + column, len(self._listed) - 1)

    def _compared(self, lat_e7: Ints, lon_e7: Ints, listed: Indices) -> Indices:
        """Return the nearest of the places listed for each location, by the same arithmetic as `NearestPlace`."""
        east = (self._places[listed, 1] - lon_e7[:, None]) * cosine(lat_e7.astype(np.float64))[:, None]
        north = self._places[listed, 0] - lat_e7[:, None]
        squared = np.where(listed >= 0, east * east + north * north, np.inf)
        nearest: Indices = listed[np.arange(len(listed)), squared.argmin(axis=1)]
        return nearest

    def _make(self) -> Indices:
        """Return the places listed for each cell, ascending, padded with −1; the last row is for the outside."""
        flat = float(cosine(np.array([self._places[:, 0].mean()]))[0])
        scale = np.array([1.0, flat])
        places = self._places * scale
        diagonal = self._step * math.hypot(1.0, flat)
        listed = np.full((self._rows * self._columns + 1, _LISTED), -1, np.int32)
        by_cell = listed[:-1].reshape(self._rows, self._columns, _LISTED)
        starts = itertools.product(range(0, self._rows, _BLOCK), range(0, self._columns, _BLOCK))
        for south, west in starts:
            block = by_cell[south : south + _BLOCK, west : west + _BLOCK]
            lat = self._south + (south + np.arange(block.shape[0]) + 0.5) * self._step
            lon = self._west + (west + np.arange(block.shape[1]) + 0.5) * self._step
            middles = np.stack(np.meshgrid(lat, lon, indexing="ij"), axis=-1) * scale
            block[:] = _listed(middles.reshape(-1, 2), places, diagonal).reshape(block.shape)
        return listed


def _listed(middles: Floats, places: Floats, diagonal: float) -> Indices:
    """Return the places that can be nearest in cells of a rectangle, by the middles and the diagonal of the cells."""
    centre, half = (middles[0] + middles[-1]) / 2, math.dist(middles[0], middles[-1]) / 2
    from_centre = np.hypot(*(places - centre).T)
    # From a middle, a place is up to half the rectangle's diagonal nearer than from the centre, and the nearest one
    # up to as much further away: no other place fulfils the condition below for any middle.
    some = np.flatnonzero(from_centre <= ((from_centre.min() + half + diagonal) * _MARGIN + half) * _ROUNDING)
    distance = np.hypot(*(middles[:, None] - places[some]).transpose(2, 0, 1))
    # Whatever the location in the cell, its nearest place is at most half a diagonal further than the middle's.
    candidate = distance <= (distance.min(axis=1, keepdims=True) + diagonal) * _MARGIN
    candidate &= candidate.sum(axis=1, keepdims=True) <= _LISTED  # in a crowded cell none is listed
    cell, column = np.nonzero(candidate)
    listed = np.full((len(middles), _LISTED), -1, np.int32)
    listed[cell, candidate.cumsum(axis=1)[cell, column] - 1] = some[column]
    return listed
