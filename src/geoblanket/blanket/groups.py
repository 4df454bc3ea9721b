"""Groups of samples that are alike: by hour of the day, by speed, by region, and by any combination of these."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np
import polars as pl

from geoblanket._arrays import Floats, Ints
from geoblanket._geodesy import MPH_M_S
from geoblanket.blanket.features import HOURS, SPEED_BIN_MPH, SPEED_BINS
from geoblanket.blanket.lagged_walks import LaggedWalks
from geoblanket.blanket.place_regions import PlaceRegions
from geoblanket.errors import ParameterError

__all__ = ["Feature", "Grouping", "Samples", "check_features", "find_samples", "seeds_of"]

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
