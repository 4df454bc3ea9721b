"""How long the blanket of a location is, for the rows of a zone: as a predictor or findings say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Indices, Ints
from geoblanket._geodesy import MPH_M_S, haversine_m
from geoblanket.blanket.findings import blanket_sizes, read_findings
from geoblanket.blanket.groups import find_regions
from geoblanket.blanket.predictor import HOURS, LARGEST_REGIONS, SPEED_BIN_MPH, SPEED_BINS, Origin, load_predictor
from geoblanket.build.validation import read_dataclass
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.roads.places import Places
from geoblanket.roads.regions import RegionGrid
from geoblanket.roads.zones import Zones


@dataclass(frozen=True)
class FoundOrigin:
    """What findings were made for."""

    by: str
    """The features that define the groups, joined by +."""
    interval_s: float
    """Seconds between locations."""
    time_zone: str
    """The time zone of the hours."""
    regions: str
    """What the numbers of the regions stand for, as JSON."""


class LengthSource(Protocol):
    """What tells lengths of blankets: a predictor, or findings."""

    @property
    def origin(self) -> FoundOrigin | Origin:
        """What it was made for."""

    def lengths(self, *, hour: npt.ArrayLike, speed_mph: npt.ArrayLike, region: npt.ArrayLike) -> Ints:
        """Return how many earlier places the blanket has; arrays are broadcast against each other."""


@dataclass(frozen=True, eq=False)
class KnownLengths:
    """The lengths that a source gives for the speed between two places and the region of the present one.

    A regime has several hours; the longest blanket of them counts, since a shorter one would leave out a place that
    matters at one of them.
    """

    source: LengthSource
    places: Places
    region: Indices
    """The source's region of each place, −1 for none, shape (P,)."""
    hours: tuple[int, ...]
    interval_s: float

    def __call__(self, now: Indices, before: Indices) -> Ints:
        """Return the length for each pair of the place at t and the place at t − 1."""
        lat, lon = self.places.lat, self.places.lon
        speed_mph = haversine_m(lat[now], lon[now], lat[before], lon[before]) / (self.interval_s * MPH_M_S)
        lengths = [self.source.lengths(hour=hour, speed_mph=speed_mph, region=self.region[now]) for hour in self.hours]
        result: Ints = np.max(np.broadcast_arrays(*lengths), axis=0)
        return np.broadcast_to(result, now.shape)


@dataclass(frozen=True, eq=False)
class FoundBlankets:
    """Blankets as they were found, group by group; 1 where nothing was found."""

    table: Ints
    """Lengths by hour, speed bin and region, the last of which is any other; shape (24, 24, regions + 1)."""
    origin: FoundOrigin

    def lengths(self, *, hour: npt.ArrayLike, speed_mph: npt.ArrayLike, region: npt.ArrayLike) -> Ints:
        """Return how many earlier places the blanket has; arrays are broadcast against each other."""
        speed = np.minimum(np.asarray(speed_mph) // SPEED_BIN_MPH, SPEED_BINS - 1).astype(np.intp)
        numbers, other = np.asarray(region), self.table.shape[2] - 1
        column = np.where((numbers >= 0) & (numbers < other), numbers, other)
        result: Ints = self.table[np.asarray(hour), speed, column]
        return result


def read_found_blankets(path: str | Path) -> FoundBlankets:
    """Read the blankets of findings written by `geoblanket blanket discover`, with one grouping.

    Raises
    ------
    InputError
        If there are several groupings: which of them counts would be a guess.
    """
    findings, about = read_findings(path)
    sizes = blanket_sizes(findings).drop_nulls("order")
    by = sizes["by"].unique().to_list()
    if len(by) != 1:
        raise InputError(
            f"has findings by {len(by)} groupings, and one is needed", path=path, hint="Discover by one grouping"
        )
    regions = int(sizes["region"].max() or -1) + 1  # type: ignore[arg-type]  # a column of integers
    table = np.ones((HOURS, SPEED_BINS, regions + 1), np.int64)
    for hour, speed_mph, region, order in sizes.select("hour", "speed_mph", "region", "order").iter_rows():
        # A feature that does not define the groups is null: the finding holds for all its values.
        table[
            slice(None) if hour is None else hour,
            slice(None) if speed_mph is None else speed_mph // SPEED_BIN_MPH,
            slice(None) if region is None else region,
        ] = order
    origin = FoundOrigin(by[0], float(about["interval_s"]), about["time_zone"], json.dumps(about["regions"]))
    return FoundBlankets(table, origin)


def read_source(*, findings: str | Path | None = None, predictor: str | Path | None = None) -> LengthSource:
    """Read findings, or a predictor: exactly one of them."""
    if findings is not None and predictor is None:
        return read_found_blankets(findings)
    if predictor is not None and findings is None:
        return load_predictor(predictor)
    raise ParameterError("Give either findings or a predictor.")


def check_source(source: LengthSource, *, interval_s: float, time_zone: str) -> None:
    """Raise MismatchError unless blankets were found for this interval and, if hours matter, time zone."""
    origin = source.origin
    if origin.interval_s != interval_s:
        raise MismatchError(
            f"Blankets were found for locations every {origin.interval_s:g} s, the walks have one every "
            f"{interval_s:g} s. Find them on these walks."
        )
    if "hour" in origin.by.split("+") and origin.time_zone != time_zone:
        raise MismatchError(
            f"Blankets were found by hours in the time zone {origin.time_zone}, the regimes are in {time_zone}. "
            "Give the regimes that time zone."
        )


def regions_of_source(source: LengthSource, places: Places, zones: Zones | None) -> Indices:
    """Return the source's region of each place, −1 for none, shape (P,).

    Raises
    ------
    MismatchError
        If the regions are zones, and not those that are given.
    """
    try:
        about = json.loads(source.origin.regions)
        grid = _grid(about)
    except (ValueError, RecursionError) as error:
        raise InputError("the regions that blankets were found for are not as geoblanket describes them") from error
    if about is None:
        return np.full(len(places), -1, np.int32)
    if grid is not None:
        return find_regions(grid, places).region
    if zones is not None and about.get("identity") == zones.identity:
        return zones.zone
    raise MismatchError(
        "Blankets were found for other regions than the zones that are used here. Give the zones that the findings "
        "were made with, or discover on a grid of regions."
    )


def _grid(about: Any) -> RegionGrid | None:
    """Return the grid that a description of regions means, None for other regions; raise ValueError for neither."""
    if about is None:
        return None
    if not isinstance(about, dict):
        raise ValueError("regions")
    if about.get("kind") != "grid":
        return None
    grid = read_dataclass(RegionGrid, {key: about[key] for key in about if key != "kind"})
    if len(grid) > LARGEST_REGIONS:
        raise ValueError("too many")
    return grid
