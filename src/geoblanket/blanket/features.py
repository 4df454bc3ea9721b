"""What the predictor knows of a hypothesis: the hour, the speed, the region and the order m, as numbers for a network.

The features are few and finite: 24 hours, 24 bins of 5 mph, the regions and the orders. Each contributes columns of its
own, so the first layer of a network on them is a sum of four rows looked up. Only NumPy is needed here: devices use it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from geoblanket._arrays import ArrayTable, Floats, Ints

__all__ = ["HOURS", "LARGEST_ORDER", "LARGEST_REGIONS", "SPEED_BINS", "SPEED_BIN_MPH", "Encoding", "PredictorInputs"]

HOURS: Final = 24
SPEED_BIN_MPH: Final = 5
SPEED_BINS: Final = 24
"""Bins of `SPEED_BIN_MPH` from 0 to 120 mph; faster speeds belong to the last."""

LARGEST_ORDER: Final = 20
"""No Γ is larger."""
LARGEST_REGIONS: Final = 1 << 17
"""The most regions of findings and predictors: tables have a column for each."""


@dataclass(frozen=True)
class PredictorInputs(ArrayTable):
    """Hypotheses to judge, one for each element; a feature that does not define the groups is -1 throughout."""

    hour: Ints
    """0 to 23, in the time zone of the findings."""
    speed_mph: Ints
    """Lower edge of the bin."""
    region: Ints
    m: Ints
    """The order: how many of the latest locations are in the blanket that is judged."""

    def __len__(self) -> int:
        return len(self.m)

    def with_every_order(self, largest: int) -> PredictorInputs:
        """Return each hypothesis' group with m = 1, ..., `largest`, one group after the other."""
        hour, speed_mph, region = (np.repeat(values, largest) for values in (self.hour, self.speed_mph, self.region))
        return PredictorInputs(hour, speed_mph, region, np.tile(np.arange(1, largest + 1), len(self)))


@dataclass(frozen=True)
class Encoding:
    """How inputs become the columns of a network, learned from the groups that it was trained on.

    The hour is a point on two circles (of 24 and of 12 hours, for days have two peaks). The speed has a column for each
    border between bins, 1 above it and 0 below: blankets change at some speeds and are alike between them, which is
    learned better so than from one number. Regions and orders have a column each. All columns are centred. An hour or a
    speed that no group had is taken as the nearest one that some group had, so that the network is never asked far from
    what it saw; a region that no group had is the mean of all regions.
    """

    hours: tuple[int, ...]
    """Hours that some group had, ascending; none where the hour does not define the groups."""
    speeds_mph: tuple[int, ...]
    """Lower edges of the bins that some group had, mph; none where the speed does not define the groups."""
    regions: tuple[int, ...]
    """Regions that some group had; none where the region does not define the groups."""
    largest: int
    """Γ, the largest order."""
    centre: Floats
    """What is subtracted from each column."""

    @classmethod
    def learned(cls, inputs: PredictorInputs, *, largest: int) -> Encoding:
        """Return the encoding for a network that is trained on `inputs`."""
        hours, speeds, regions = (
            tuple(np.unique(values[values >= 0]).tolist()) for values in (inputs.hour, inputs.speed_mph, inputs.region)
        )
        plain = cls(hours, speeds, regions, largest, np.zeros(_width(hours, speeds, regions, largest)))
        return replace(plain, centre=plain.rows(inputs).mean(axis=0))

    @property
    def width(self) -> int:
        """How many columns there are."""
        return _width(self.hours, self.speeds_mph, self.regions, self.largest)

    def first_layer(self, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """Return what each feature adds to the sums of a first layer with these weights (columns down, units across).

        Returns
        -------
        of_hour_speed, of_region, of_order
            Shapes (24, 24, units), (regions + 1, units), of which the last is any other region, and (Γ, units).
        """
        hours, speeds = _hour_columns(self.hours), _speed_columns(self.speeds_mph)
        borders = np.cumsum([hours.shape[1], speeds.shape[1], len(self.regions)])
        parts, centres = np.split(weights, borders), np.split(self.centre, borders)
        of_hour = (hours - centres[0]) @ parts[0]
        of_speed = (speeds - centres[1]) @ parts[1]
        # A column of its own for each: the product with such rows is the weights themselves.
        of_region = np.vstack([parts[2] - centres[2] @ parts[2], np.zeros(weights.shape[1])])
        return of_hour[:, None] + of_speed, of_region, parts[3] - centres[3] @ parts[3]

    def region_columns(self, region: Ints) -> Ints:
        """Return the position of each region among `regions`; their number for any other region."""
        if not self.regions:
            return np.zeros(len(region), np.int64)
        known = np.array(self.regions)
        position = np.searchsorted(known, region).clip(max=len(known) - 1)
        return np.where(known[position] == region, position, len(known))

    def rows(self, inputs: PredictorInputs) -> Floats:
        """Return the columns of each input, shape (n, width)."""
        position = self.region_columns(inputs.region)
        regions = np.array(position[:, None] == np.arange(len(self.regions)), np.float64)
        first = self.width - self.largest - len(self.regions)
        regions[position == len(self.regions)] = self.centre[first : first + len(self.regions)]
        columns = [
            _hour_columns(self.hours)[inputs.hour.clip(min=0)],
            _speed_columns(self.speeds_mph)[inputs.speed_mph.clip(min=0) // SPEED_BIN_MPH],
            regions,
            inputs.m[:, None] == np.arange(1, self.largest + 1),
        ]
        return np.hstack(columns) - self.centre


def _width(hours: tuple[int, ...], speeds: tuple[int, ...], regions: tuple[int, ...], largest: int) -> int:
    return 4 * bool(hours) + (SPEED_BINS - 1) * bool(speeds) + len(regions) + largest


def _hour_columns(seen: tuple[int, ...]) -> Floats:
    if not seen:
        return np.empty((HOURS, 0))
    apart = np.abs(np.subtract.outer(np.arange(HOURS), np.array(seen)))
    nearest = np.array(seen)[np.minimum(apart, HOURS - apart).argmin(axis=1)]
    angle = nearest * (2 * math.pi / HOURS)
    return np.column_stack([np.sin(angle), np.cos(angle), np.sin(2 * angle), np.cos(2 * angle)])


def _speed_columns(seen: tuple[int, ...]) -> Floats:
    if not seen:
        return np.empty((SPEED_BINS, 0))
    edges = SPEED_BIN_MPH * np.arange(SPEED_BINS)
    apart = np.abs(np.subtract.outer(edges, np.array(seen)))
    nearest = np.array(seen)[apart.argmin(axis=1)]
    return np.array(nearest[:, None] >= edges[1:], np.float64)
