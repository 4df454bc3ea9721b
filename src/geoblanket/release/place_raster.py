"""The nearest places of many locations at once, by the rule of `NearestPlace`.

A raster lists, for each cell, the places that can be nearest to a location in it: one place for most cells, several
near the borders between places. Locations in crowded cells or outside the raster are compared with all places.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from geoblanket._arrays import Indices, Ints
from geoblanket.mechanism.history_rule.nearest import cosine
from geoblanket.release.nearest import NearestPlace

__all__ = ["PlaceRaster"]

_LISTED: Final = 4
_CELLS_PER_PLACE: Final = 256
_MOST_CELLS: Final = 1 << 20
_RIM: Final = 0.1
_WIDEST_E7: Final = 20_000_000
_LARGEST_LAT_E7: Final = 600_000_000
_MARGIN: Final = 1.07
"""The raster is made with one cosine for all latitudes: within two degrees of latitude, up to 60 degrees from the
equator, it is off by less than 3.1 % either way. Wider areas get no raster."""


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
        if not self._rows:
            return np.full((1, _LISTED), -1, np.int32)
        from scipy.spatial import KDTree

        row, column = np.divmod(np.arange(self._rows * self._columns), self._columns)
        middle_lat = self._south + (row + 0.5) * self._step
        middle_lon = self._west + (column + 0.5) * self._step
        flat = float(cosine(np.array([self._places[:, 0].mean()]))[0])
        scale = np.array([1.0, flat])
        count = min(_LISTED + 1, len(self._places))
        nearest = KDTree(self._places * scale).query(np.column_stack([middle_lat, middle_lon]) * scale, k=count)
        distance, place = (np.asarray(part).reshape(-1, count) for part in nearest)
        # Whatever the location in the cell, its nearest place is at most half a diagonal further than the middle's.
        candidate = distance <= (distance[:, :1] + self._step * math.hypot(1.0, flat)) * _MARGIN
        listed = np.full((len(row) + 1, _LISTED), -1, np.int32)
        several = np.sort(np.where(candidate, place, len(self._places)), axis=1)[:, :_LISTED]
        listed[:-1, : several.shape[1]] = np.where(several < len(self._places), several, -1)
        if count > _LISTED:
            listed[:-1][candidate[:, _LISTED]] = -1
        return listed
