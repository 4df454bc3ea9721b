"""When trips start and how long they are: what a motion model knows besides places and moves.

Lengths are known by fixed bins, so that few numbers tell them: about two for each doubling, the same for every city.
Within a bin all lengths are alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Ints, Singles

__all__ = ["DAY_S", "HOURS", "LENGTH_BINS", "MOST_STEPS", "TripShape", "length_bin", "steps_of_bins"]

HOURS: Final = 24
DAY_S: Final = 86_400
_HOUR_S: Final = DAY_S // HOURS
MOST_STEPS: Final = 1024
"""A longer trip counts as one of so many steps."""
_LEAST_STEPS: Final[Ints] = np.ceil(2.0 ** np.arange(1, 10.5, 0.5) - 1e-9).astype(np.int64)
"""Steps of a trip from which a bin starts: powers of √2, from 2 to 1,024, where the last bin ends."""
LENGTH_BINS: Final = len(_LEAST_STEPS) - 1
_USUAL_TRIP_S: Final = 720.0
_USUAL_STEPS: Final = 24.0
_SMOOTHING: Final = 1.0
"""Trips of the usual shape that count besides those that were counted: nothing becomes impossible."""
_TOLERANCE: Final = 1e-3


def length_bin(steps: npt.ArrayLike) -> Ints:
    """Return the bin of trips by their steps, the first and the last among them: 0 to `LENGTH_BINS` − 1."""
    bins: Ints = np.searchsorted(_LEAST_STEPS[1:-1], np.asarray(steps, np.int64), side="right").astype(np.int64)
    return bins


def steps_of_bins(bins: Ints) -> tuple[Ints, Ints]:
    """Return the least and the largest number of steps of trips in some bins."""
    most = np.append(_LEAST_STEPS[1:-1] - 1, MOST_STEPS)
    return _LEAST_STEPS[bins], most[bins]


@dataclass(frozen=True, eq=False)
class TripShape:
    """When trips start, and how long they are."""

    hours: Singles
    """Share of the trips that start in each hour of the day, UTC, shape (24,)."""
    lengths: Singles
    """Share of the trips whose steps are in each bin, shape (`LENGTH_BINS`,)."""

    @classmethod
    def usual(cls, interval_s: float | None = None) -> TripShape:
        """Return what to assume where nothing is known: all hours alike, trips of 12 minutes in the mean.

        Parameters
        ----------
        interval_s
            Seconds of a step; None: such that a trip has 24 of them.
        """
        mean = _USUAL_STEPS if not interval_s else max(_USUAL_TRIP_S / interval_s, 2.5)
        # Geometric from two steps on: it goes on after a step with a constant chance.
        reaching = (1 - 1 / (mean - 1)) ** (_LEAST_STEPS[:-1] - 2.0)
        return cls(np.full(HOURS, 1 / HOURS, np.float32), _shares(reaching - np.append(reaching[1:], 0.0)))

    @classmethod
    def of(cls, start_hours: npt.ArrayLike | None, steps: npt.ArrayLike) -> TripShape:
        """Return the shape of some trips.

        Parameters
        ----------
        start_hours
            Hour of the day, UTC, in which each trip starts, 0 to 23; None: all hours alike.
        steps
            How many steps each trip has, the first and the last among them.
        """
        hours = np.zeros(HOURS) if start_hours is None else _counted(np.asarray(start_hours, np.int64), HOURS)
        return cls.of_counts(hours, _counted(length_bin(steps), LENGTH_BINS))

    @classmethod
    def of_counts(cls, hour_counts: npt.ArrayLike, length_counts: npt.ArrayLike) -> TripShape:
        """Return the shape of counts of trips, by hour and by bin of length. They may be noisy: below 0 is 0."""
        usual = cls.usual()
        return cls(*(
            _shares(np.maximum(np.asarray(counts, np.float64), 0.0) + _SMOOTHING * share)
            for counts, share in ((hour_counts, usual.hours), (length_counts, usual.lengths))
        ))  # fmt: skip

    @property
    def mean_steps(self) -> float:
        """How many steps a trip has in the mean."""
        least, most = steps_of_bins(np.arange(LENGTH_BINS))
        return float(self.lengths.astype(np.float64) @ (least + most) / 2)

    def draw(self, trips: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Return the seconds of the day at which trips start, UTC, and how many steps they have."""
        hour = _drawn(self.hours, trips, rng)
        start_s: Ints = hour * _HOUR_S + rng.integers(_HOUR_S, size=trips)
        least, most = steps_of_bins(_drawn(self.lengths, trips, rng))
        return start_s, rng.integers(least, most, endpoint=True)

    def problem(self) -> str | None:
        """Return what is wrong, or None."""
        for shares, count in ((self.hours, HOURS), (self.lengths, LENGTH_BINS)):
            if shares.dtype.str != "<f4" or shares.shape != (count,):
                return f"hours must be {HOURS} and lengths {LENGTH_BINS} shares"
            if not (shares.min() >= 0 and abs(float(shares.sum(dtype=np.float64)) - 1) < _TOLERANCE):
                return "shares of hours and lengths must not be negative, and must sum to 1"
        return None


def _drawn(shares: Singles, count: int, rng: np.random.Generator) -> Ints:
    chances = shares.astype(np.float64)
    return rng.choice(len(shares), count, p=chances / chances.sum())


def _counted(numbers: Ints, size: int) -> Floats:
    return np.bincount(numbers, minlength=size).astype(np.float64)


def _shares(weights: Floats) -> Singles:
    shares: Singles = (weights / weights.sum()).astype(np.float32)
    return shares
