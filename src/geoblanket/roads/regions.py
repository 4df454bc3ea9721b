"""Regions as the paper has them: a grid of rows and columns over a bounding box.

Regions group vehicles' movements by part of the city when Markov blankets are discovered. They are no part of the
guarantee; zones are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket.errors import ParameterError


@dataclass(frozen=True)
class RegionGrid:
    """Equal cells in degrees over a box, numbered row by row from the south-west corner.

    A cell includes its southern and western edge; the box's northern and eastern edge belong to the last row and
    column.
    """

    south: float
    """Southern edge of the box, degrees."""
    north: float
    """Northern edge of the box, degrees."""
    west: float
    """Western edge of the box, degrees."""
    east: float
    """Eastern edge of the box, degrees."""
    rows: int
    """Number of rows, from south to north."""
    columns: int
    """Number of columns, from west to east."""

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise ParameterError(
                f"A grid of regions needs at least 1 row and 1 column. Got {self.rows} and {self.columns} instead."
            )
        if not (-90 <= self.south < self.north <= 90 and -180 <= self.west < self.east <= 180):
            raise ParameterError(
                "The box of a grid of regions must have south < north within ±90° and west < east within ±180°."
            )

    def __len__(self) -> int:
        return self.rows * self.columns

    def region(self, lat: npt.ArrayLike, lon: npt.ArrayLike) -> Indices:
        """Return the region of each point (degrees); -1 for points outside the box or not a number."""
        row = _cell(self._row_edges, np.asarray(lat, np.float64))
        column = _cell(self._column_edges, np.asarray(lon, np.float64))
        inside = (row >= 0) & (column >= 0)
        return np.where(inside, row * self.columns + column, -1).astype(np.int32)

    def bounds(self, region: int) -> tuple[float, float, float, float]:
        """Return a region's south, north, west and east, degrees."""
        if not 0 <= region < len(self):
            raise ParameterError(f"The region must be from 0 to {len(self) - 1}. Got {region} instead.")
        row, column = divmod(region, self.columns)
        rows, columns = self._row_edges, self._column_edges
        return float(rows[row]), float(rows[row + 1]), float(columns[column]), float(columns[column + 1])

    @cached_property
    def _row_edges(self) -> Floats:
        return np.linspace(self.south, self.north, self.rows + 1)

    @cached_property
    def _column_edges(self) -> Floats:
        return np.linspace(self.west, self.east, self.columns + 1)


def _cell(edges: Floats, values: Floats) -> Ints:
    """Return the interval between edges that holds each value, -1 outside."""
    cell = np.searchsorted(edges, values, side="right") - 1
    cell = np.where(values == edges[-1], len(edges) - 2, cell)
    return np.where((values >= edges[0]) & (values <= edges[-1]), cell, -1)


ROME_REGIONS = RegionGrid(south=41.64, north=42.12, west=12.23, east=12.83, rows=4, columns=5)
"""The paper's grid of Rome: cells of 0.12° by 0.12°."""

PORTO_REGIONS = RegionGrid(south=41.03, north=41.27, west=-8.73, east=-8.49, rows=3, columns=3)
"""The paper's grid of Porto: cells of 0.08° by 0.08°. (Its text says east where Porto lies west.)"""

SAN_FRANCISCO_REGIONS = RegionGrid(south=37.59, north=37.83, west=-122.53, east=-122.35, rows=4, columns=3)
"""San Francisco, in the north, and its airport, in the south: cells of 0.06° by 0.06°."""
