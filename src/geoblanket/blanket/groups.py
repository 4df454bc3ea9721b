"""Samples of walks with their past, in groups by hour, speed and region.

Tens of millions of steps are held as a few small numbers each; the windows of past positions are put together only for
the samples that are used. Regions of places are the paper's grids, any grid, or zones.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from geoblanket._arrays import Floats, Indices, Ints, Octets
from geoblanket._display import Progress, silent
from geoblanket._geodesy import MPH_M_S, haversine_m, local_metres
from geoblanket._tables import reading_parquet
from geoblanket.blanket.predictor import HOURS, SPEED_BIN_MPH, SPEED_BINS
from geoblanket.errors import InputError, ParameterError
from geoblanket.mobility.walks import MatchedWalks, walk_batches
from geoblanket.roads.places import Places
from geoblanket.roads.regions import PORTO_REGIONS, ROME_REGIONS, SAN_FRANCISCO_REGIONS, RegionGrid
from geoblanket.roads.zones import Zones, read_zones

_ROWS_AT_A_TIME = 1_000_000
_DEEPEST = 255  # what a byte holds


@dataclass(frozen=True, eq=False)
class LaggedWalks:
    """The steps of all walks, one after the other; made by `load_walks`."""

    places: Places
    place: Indices
    """Place at each step, shape (N,)."""
    depth: Octets
    """How many earlier steps of the same walk there are (at most 255), shape (N,); 0 in walks that are left out."""
    hour: npt.NDArray[np.int8]
    """Hour of the day of each step in the time zone asked for, 0 to 23, shape (N,)."""
    moved_m: npt.NDArray[np.float32]
    """Great-circle distance from the place before to this one, metres, shape (N,); 0 at a walk's first step."""
    interval_s: float
    """Time between two steps, seconds."""
    counts: dict[str, int]
    """`walks`, `steps` and `vehicles` in the file, and the `repeated_walks` among them that are left out."""
    about: dict[str, Any]
    """How the walks were made."""

    def __len__(self) -> int:
        return len(self.place)

    def slices(self) -> Iterator[slice]:
        """Yield the steps in parts that are small enough to compute with."""
        for start in range(0, len(self), _ROWS_AT_A_TIME):
            yield slice(start, min(start + _ROWS_AT_A_TIME, len(self)))

    def speed_m_s(self, steps: slice, m: int) -> Floats:
        """Return the mean speed over X_{t-m}, ..., X_t at steps t, metres per second, in straight lines between places.

        It looks at these m + 1 places and at nothing older. A speed that also knew X_{t-m-1} would make it tell
        something about X_t in every group of like speeds, and true hypotheses would be rejected. Steps with fewer than
        m earlier ones have no meaningful speed.
        """
        step = np.arange(steps.start, steps.stop)
        total = np.zeros(len(step))
        for lag in range(m):
            total += self.moved_m[np.maximum(step - lag, 0)]
        return total / (m * self.interval_s)

    def windows(self, steps: Ints, length: int) -> Floats:
        """Return X_t, X_{t-1}, ..., X_{t-length+1} of some steps t with that many earlier ones.

        Returns
        -------
        positions
            Metres east and north of the middle of the places, shape (n, length, 2).
        """
        positions: Floats = self._metres[self.place[steps[:, None] - np.arange(length)]]
        return positions

    def samples(self, grouping: Grouping, *, m: int, length: int) -> Samples:
        """Return the steps of each group; see `find_samples`."""
        return find_samples(self, grouping, m=m, length=length)

    def hypothesis(self, steps: Ints, *, m: int, length: int, block: bool) -> tuple[Floats, Floats, Floats]:
        """Return x, y and z of the hypothesis of order m at some steps; see `lagged`."""
        from geoblanket.blanket.independence import lagged  # the service reads regions here, and tests nothing

        return lagged(self.windows(steps, length), m, block=block)

    @cached_property
    def _metres(self) -> Floats:
        lat, lon = self.places.lat, self.places.lon
        return np.stack(local_metres(lat, lon, origin_lat=lat.mean(), origin_lon=lon.mean()), axis=1)


def load_walks(
    walks: str | Path, roads: str | Path, *, time_zone: str = "UTC", progress: Progress = silent
) -> LaggedWalks:
    """Load a table of walks.

    Walks that occur more than once (the same vehicle, start, and places) count once: copies are no evidence.

    Parameters
    ----------
    walks
        A table written by `geoblanket match`.
    roads
        The road graph it was matched to.
    time_zone
        An IANA name, in which hours are told.

    Raises
    ------
    MismatchError
        If the walks were matched to other roads.
    InputError
        If the table has no steps, or was changed so that its steps do not follow one another.
    """
    matched = MatchedWalks.open(walks, roads)
    frame, places = matched.frame, matched.places
    with reading_parquet(walks):
        repeated, counts = _walk_facts(frame)
    if not counts["steps"]:
        raise InputError("has no steps", path=walks, hint="Match traces that lie on these roads")
    steps = counts["steps"]
    loaded = LaggedWalks(
        places=places,
        place=np.empty(steps, np.int32),
        depth=np.empty(steps, np.uint8),
        hour=np.empty(steps, np.int8),
        moved_m=np.zeros(steps, np.float32),
        interval_s=matched.interval_s,
        counts=counts,
        about=matched.about,
    )
    columns = frame.select("walk", "step", "place", hour=pl.col("time").dt.convert_time_zone(time_zone).dt.hour())
    filled = 0
    for batch in walk_batches(columns, path=walks, place_count=len(places)):
        if batch["hour"].null_count():
            raise InputError("some steps have no time", path=walks, hint="Match the traces again")
        rows = slice(filled, filled + batch.height)
        step, used = batch["step"].to_numpy(), ~batch["walk"].is_in(repeated.implode()).to_numpy()
        loaded.place[rows], loaded.hour[rows] = batch["place"].to_numpy(), batch["hour"].to_numpy()
        loaded.depth[rows] = np.where(used, np.minimum(step, _DEEPEST), 0)
        moved = filled + np.flatnonzero(step)
        to, start = loaded.place[moved], loaded.place[moved - 1]
        loaded.moved_m[moved] = haversine_m(places.lat[start], places.lon[start], places.lat[to], places.lon[to])
        filled += batch.height
        progress("reading walks", filled, steps)
    return loaded


def _walk_facts(frame: pl.LazyFrame) -> tuple[pl.Series, dict[str, int]]:
    """Return which walks repeat an earlier one, and how many walks, steps and vehicles there are."""
    way = (pl.col("place").hash() * (2 * pl.col("step").cast(pl.UInt64) + 1)).sum()
    per_walk = (
        frame.group_by("walk")
        .agg(pl.col("vehicle").first(), pl.col("time").min(), way.alias("way"), pl.len().alias("steps"))
        .collect(engine="streaming")
        .sort("walk")
    )
    same = ["vehicle", "time", "way", "steps"]
    repeated = per_walk.filter(~pl.struct(same).is_first_distinct())["walk"]
    counts = {
        "walks": per_walk.height,
        "steps": int(per_walk["steps"].sum()),
        "vehicles": per_walk["vehicle"].n_unique(),
        "repeated_walks": len(repeated),
    }
    return repeated, counts


Regions = str | RegionGrid | Zones | Indices
"""How regions can be given: as a text (`porto`, `rome`, `sanfrancisco`, `zones:FILE`,
`grid:SOUTH,NORTH,WEST,EAST,ROWS,COLUMNS`), a grid, zones, or the region of each place (-1 for none)."""

_NAMED = {"porto": PORTO_REGIONS, "rome": ROME_REGIONS, "sanfrancisco": SAN_FRANCISCO_REGIONS}
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
            f"grid:SOUTH,NORTH,WEST,EAST,ROWS,COLUMNS. Got {len(parts)} parts, or a part that is not such a number."
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
