"""Groups of samples by hour, speed and region, and the regions of places: the paper's grids, any grid, or zones."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._geodesy import MPH_M_S
from geoblanket.blanket.features import HOURS, SPEED_BIN_MPH, SPEED_BINS
from geoblanket.blanket.lagged_walks import LaggedWalks
from geoblanket.errors import ParameterError
from geoblanket.roads.places import Places
from geoblanket.roads.regions import PORTO_REGIONS, ROME_REGIONS, RegionGrid
from geoblanket.roads.zones import Zones, read_zones

__all__ = ["Feature", "Grouping", "Regions", "Samples", "check_features", "find_regions", "find_samples", "seeds_of"]

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


Feature = Literal["hour", "speed", "region"]
"""What defines a group. `hour`: of X_t; `speed`: mean over {X_t, ..., X_{t-m}}; `region`: of X_t."""

_MOST_GROUPS = 1_000_000


@dataclass(frozen=True, eq=False)
class Grouping:
    """All groups by some features, numbered from 0 with the last feature running fastest."""

    features: tuple[Feature, ...]
    """In the order hour, speed, region; none for one group of all samples."""
    regions: PlaceRegions

    def __post_init__(self) -> None:
        if len(self) > _MOST_GROUPS:
            raise ParameterError(
                f"Grouping by {self.name} makes {len(self):,} groups, more than {_MOST_GROUPS:,}. Use fewer regions."
            )

    @property
    def name(self) -> str:
        """The features' names with + between them, or `all`."""
        return "+".join(self.features) or "all"

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each feature."""
        size = {"hour": HOURS, "speed": SPEED_BINS, "region": self.regions.count}
        return tuple(size[feature] for feature in self.features)

    def __len__(self) -> int:
        return math.prod(self.shape)

    def numbers(self, walks: LaggedWalks, steps: slice, m: int) -> Ints:
        """Return the group of each step for the hypothesis of order m, -1 where it belongs to none."""
        number = np.zeros(steps.stop - steps.start, np.int64)
        outside = np.zeros(len(number), np.bool_)
        for feature, size in zip(self.features, self.shape, strict=True):
            value = self._values(feature, walks, steps, m)
            outside |= (value < 0) | (value >= size)
            number = number * size + value
        number[outside] = -1
        return number

    def _values(self, feature: Feature, walks: LaggedWalks, steps: slice, m: int) -> Ints:
        if feature == "hour":
            return walks.hour[steps].astype(np.int64)
        if feature == "region":
            return self.regions.region[walks.place[steps]].astype(np.int64)
        return np.floor(walks.speed_m_s(steps, m) / (SPEED_BIN_MPH * MPH_M_S)).astype(np.int64)

    def labels(self) -> pl.DataFrame:
        """Return what defines each group: hour, speed_mph and region, null where a feature does not matter."""
        values = dict(zip(self.features, np.indices(self.shape).reshape(len(self.shape), len(self)), strict=True))
        hour, speed, region = (
            values.get(feature, np.full(len(self), None, dtype=object)) for feature in get_args(Feature)
        )
        return pl.DataFrame(
            {
                "hour": pl.Series(hour, dtype=pl.Int8),
                "speed_mph": pl.Series(speed, dtype=pl.Int16) * SPEED_BIN_MPH,
                "region": pl.Series(region, dtype=pl.Int32),
            }
        )


def check_features(by: Sequence[str] | Sequence[Sequence[str]]) -> list[tuple[Feature, ...]]:
    """Return one or several groupings as tuples of features in a fixed order, each once."""
    several = [by] if isinstance(by, str) or all(isinstance(features, str) for features in by) else by
    groupings: list[tuple[Feature, ...]] = []
    for features in several:
        named = {features} if isinstance(features, str) else {str(name) for name in features}
        unknown = sorted(named - set(get_args(Feature)))
        if unknown:
            raise ParameterError(
                f"Groups must be by a combination of {', '.join(get_args(Feature))}. Got '{unknown[0]}' instead."
            )
        ordered = tuple(feature for feature in get_args(Feature) if feature in named)
        if ordered not in groupings:
            groupings.append(cast("tuple[Feature, ...]", ordered))
    return groupings


@dataclass(frozen=True, eq=False)
class Samples:
    """Which steps can serve as X_t in each group, for the hypothesis of one order."""

    steps: Ints
    """Steps, those of a group together and ascending."""
    offsets: Ints
    """Where each group's steps start, shape (groups + 1,)."""
    lat: Floats
    """Mean latitude of X_t in each group, degrees; not a number where a group is empty."""
    lon: Floats
    """Mean longitude of X_t in each group, degrees."""
    outside: int
    """Steps with enough of a past that belong to no group: outside all regions, or faster than all bins."""

    @property
    def available(self) -> Ints:
        """Number of samples in each group."""
        return np.diff(self.offsets)

    def draw(self, group: int, *, most: int, seed: int) -> Ints:
        """Return the steps of a group, or `most` of them drawn at random, ascending."""
        steps = self.steps[self.offsets[group] : self.offsets[group + 1]]
        if len(steps) <= most:
            return steps
        drawn = np.random.default_rng(seed).choice(len(steps), most, replace=False, shuffle=False)
        return steps[np.sort(drawn)]


def find_samples(walks: LaggedWalks, grouping: Grouping, *, m: int, length: int) -> Samples:
    """Sort all steps with a past of `length` - 1 steps into groups for the hypothesis of order m."""
    count = len(grouping)
    # 0 stands for no group. Up to 16 bits, NumPy sorts in linear time.
    key = np.empty(len(walks), np.min_scalar_type(count))
    held, lat, lon = np.zeros(count + 1, np.int64), np.zeros(count + 1), np.zeros(count + 1)
    deep_enough = 0
    for steps_at_once in walks.slices():
        deep = walks.depth[steps_at_once] >= length - 1
        number = np.where(deep, grouping.numbers(walks, steps_at_once, m) + 1, 0)
        place = walks.place[steps_at_once]
        key[steps_at_once] = number
        held += np.bincount(number, minlength=count + 1)
        lat += np.bincount(number, walks.places.lat[place], count + 1)
        lon += np.bincount(number, walks.places.lon[place], count + 1)
        deep_enough += int(deep.sum())
    steps = np.argsort(key, kind="stable")[held[0] :]
    with np.errstate(invalid="ignore"):
        return Samples(
            steps=steps,
            offsets=np.append(0, np.cumsum(held[1:])),
            lat=lat[1:] / held[1:],
            lon=lon[1:] / held[1:],
            outside=deep_enough - len(steps),
        )


def seeds_of(label: tuple[object, ...], m: int, seed: int) -> tuple[int, int]:
    """Return two numbers for a group's subsample and its test, that depend on what the group is and on nothing else."""
    digest = hashlib.sha256(repr((label, m, seed)).encode()).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:12], "big")
