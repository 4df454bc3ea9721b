"""Regions of places: the paper's grids, any grid, or zones, as one number for each place."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Indices
from geoblanket.errors import ParameterError
from geoblanket.roads.places import Places
from geoblanket.roads.regions import PORTO_REGIONS, ROME_REGIONS, RegionGrid
from geoblanket.roads.zones import Zones, read_zones

__all__ = ["PlaceRegions", "Regions", "find_regions"]

Regions = str | RegionGrid | Zones | Indices
"""How regions can be given: as a text (`porto`, `rome`, `zones:FILE`, `grid:SOUTH,NORTH,WEST,EAST,ROWS,COLUMNS`), a
grid, zones, or the region of each place (-1 for none)."""

_NAMED = {"porto": PORTO_REGIONS, "rome": ROME_REGIONS}
_DEFAULT_ROWS = _DEFAULT_COLUMNS = 4


@dataclass(frozen=True, eq=False)
class PlaceRegions:
    """The region of each place."""

    region: Indices
    """Number of the region, from 0, or -1 outside all regions, shape (P,)."""
    count: int
    """Number of regions; some may hold no place."""
    about: dict[str, Any]
    """What the regions are, as JSON values."""


def find_regions(regions: Regions | None, places: Places) -> PlaceRegions:
    """Return the region of each place.

    Parameters
    ----------
    regions
        See `Regions`. None means 4 × 4 cells over the box of all places: the roads are public, so the box tells nothing
        about who drove where.
    """
    if regions is None:
        regions = _box(places)
    if isinstance(regions, str):
        regions = _parse(regions, places)
    if isinstance(regions, RegionGrid):
        return PlaceRegions(regions.region(places.lat, places.lon), len(regions), {"kind": "grid", **asdict(regions)})
    if isinstance(regions, Zones):
        return PlaceRegions(regions.zone, len(regions), {"kind": "zones", "identity": regions.identity})
    return _given(regions, places)


def _given(region: npt.ArrayLike, places: Places) -> PlaceRegions:
    region = np.asarray(region)
    if region.shape != (len(places),) or region.dtype.kind not in "iu" or region.min(initial=0) < -1:
        raise ParameterError(
            f"Regions given as numbers must be one integer of -1 or more for each of the {len(places)} places."
        )
    region = region.astype(np.int32)
    identity = hashlib.sha256(region.tobytes()).hexdigest()
    return PlaceRegions(region, int(region.max(initial=-1)) + 1, {"kind": "given", "identity": identity})


def _box(places: Places) -> RegionGrid:
    lat, lon = places.lat, places.lon
    # A town of one street has a box without width.
    return RegionGrid(
        south=max(float(lat.min()) - 1e-9, -90.0),
        north=min(float(lat.max()) + 1e-9, 90.0),
        west=max(float(lon.min()) - 1e-9, -180.0),
        east=min(float(lon.max()) + 1e-9, 180.0),
        rows=_DEFAULT_ROWS,
        columns=_DEFAULT_COLUMNS,
    )


def _parse(text: str, places: Places) -> RegionGrid | Zones:
    kind, _, rest = text.partition(":")
    if text in _NAMED:
        return _NAMED[text]
    if kind == "zones" and rest:
        return read_zones(Path(rest), places)
    if kind == "grid":
        return _parse_grid(rest)
    raise ParameterError(
        f"Regions must be {', '.join(_NAMED)}, zones:FILE or grid:SOUTH,NORTH,WEST,EAST,ROWS,COLUMNS. "
        f"Got something that begins with '{kind[:20]}' instead."
    )


def _parse_grid(text: str) -> RegionGrid:
    parts = text.split(",")
    try:
        south, north, west, east = (float(part) for part in parts[:4])
        rows, columns = (int(part) for part in parts[4:])
    except ValueError:
        raise ParameterError(
            "A grid of regions needs four numbers of degrees and two whole numbers: "
            f"grid:SOUTH,NORTH,WEST,EAST,ROWS,COLUMNS. Got {len(parts)} parts, or one that is no such number."
        ) from None
    return RegionGrid(south, north, west, east, rows, columns)
