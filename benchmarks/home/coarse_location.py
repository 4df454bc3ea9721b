"""Android's coarse location as a seeded sampler, for comparison only: it promises nothing.

Reports are points of a grid. Anyone who knows the offset can tell apart two locations on the two sides of a grid line.
The offset is nearly the same all day.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.home.mechanisms import AT_A_TIME, Noise, Part, Seen
from benchmarks.home.streets import Commuter, Points
from geoblanket._arrays import Floats, Ints
from geoblanket.errors import ParameterError

_METRES_PER_DEGREE: Final = 111_000
"""As Android has it."""
_NEW_WEIGHT: Final = 0.03
_OLD_WEIGHT: Final = math.sqrt(1 - _NEW_WEIGHT**2)


@dataclass(frozen=True)
class CoarseLocation:
    """What Android gives to applications that may only know the approximate location (its `LocationFudger`).

    An offset, normal with a standard deviation of a quarter of the accuracy along each axis, is added; each hour 3 % of
    it is renewed. Then latitude and longitude are rounded to a grid as wide as the accuracy.
    """

    accuracy_m: float = 2000.0

    def __post_init__(self) -> None:
        if not 200 <= self.accuracy_m <= 1e6:
            raise ParameterError(f"The accuracy must be from 200 m to 1,000 km. Got {self.accuracy_m:g} m instead.")

    @property
    def deviation_m(self) -> float:
        """Standard deviation of the offset along each axis, metres."""
        return self.accuracy_m / 4

    def begin(self, rng: np.random.Generator) -> CoarseReporter:
        """Begin with a vehicle."""
        return CoarseReporter(self, rng)

    def snapped(self, lat: Floats, lon: Floats, east_m: Floats, north_m: Floats) -> tuple[Floats, Floats]:
        """Return what is reported from coordinates, degrees, with known offsets, metres."""
        moved_lon = lon + east_m / (_METRES_PER_DEGREE * np.cos(np.radians(lat)))
        step = self.accuracy_m / _METRES_PER_DEGREE
        snapped_lat = np.round((lat + north_m / _METRES_PER_DEGREE) / step) * step
        across = step / np.cos(np.radians(snapped_lat))
        return snapped_lat, np.round(moved_lon / across) * across


class CoarseReporter:
    """Reports of one vehicle, with an offset that stays for an hour."""

    def __init__(self, sampler: CoarseLocation, rng: np.random.Generator) -> None:
        self._sampler, self._rng = sampler, rng
        self._offset_m = rng.normal(0.0, sampler.deviation_m, 2)

    def report(self, lat: Floats, lon: Floats) -> tuple[Floats, Floats]:
        """Return what is reported from each of some coordinates, in the order of time, degrees, shape (N,)."""
        east, north = self._offset_m
        return self._sampler.snapped(np.asarray(lat), np.asarray(lon), east, north)

    def next_hour(self) -> None:
        """Let an hour pass."""
        new = self._rng.normal(0.0, self._sampler.deviation_m, 2)
        self._offset_m = _OLD_WEIGHT * self._offset_m + _NEW_WEIGHT * new


class CoarsePhone:
    """Android's coarse location: an offset that drifts from hour to hour, then a grid of 2 km.

    For each home and each axis the attacker keeps a belief about the offset. A report says between which offsets it
    lies; from evening to morning and to the next evening it drifts.
    """

    hours = (10, 14)
    """From arriving to leaving, and from leaving to arriving."""
    step_m = 100.0

    def __init__(self) -> None:
        self.phone = CoarseLocation()
        self.offsets = np.arange(-4 * self.phone.deviation_m, 4 * self.phone.deviation_m + 1, self.step_m)
        chances = np.exp(-(self.offsets**2) / (2 * self.phone.deviation_m**2))
        self._usual = chances / chances.sum()
        self._drifts = [self._drift(hours) for hours in self.hours]

    def _drift(self, hours: int) -> Floats:
        kept = _OLD_WEIGHT**hours
        spread = self.phone.deviation_m * np.sqrt(1 - kept**2)
        moves = np.exp(-((self.offsets - kept * self.offsets[:, None]) ** 2) / (2 * spread**2))
        drift: Floats = moves / moves.sum(axis=1, keepdims=True)
        return drift

    def __call__(self, commuter: Commuter, noise: Noise) -> Seen:
        """Report all days."""
        days, reporter = commuter.phases.shape[1], self.phone.begin(np.random.default_rng(commuter.home))
        home = np.array([commuter.home])
        whole = slice(0, days)
        paths = [ways.positions(home, commuter.seconds(way, whole))[:, 0] for way, ways in enumerate(commuter.ways)]
        reports = [np.empty_like(path) for path in paths]
        rests = np.empty((days, 2, 2))
        for day in range(days):
            for leaving, hours in enumerate(self.hours):
                for way in range(leaving, len(paths), 2):
                    reports[way][day] = np.stack(reporter.report(*noise.degrees(paths[way][day])), axis=-1)
                rests[day, leaving] = np.concatenate(reporter.report(*noise.degrees(commuter.at[None])))
                for _ in range(hours):
                    reporter.next_hour()
        streets = commuter.streets

        def together(known: Sequence[int]) -> Part:
            def until(last: int, homes: Ints) -> Floats:
                points = streets.homes[homes]
                lowest, highest = self._between(noise, streets.points[points][None], rests[:last, :, None])
                for way in known:
                    size = max(AT_A_TIME // (last * paths[way].shape[1]), 1)
                    for some in np.array_split(np.arange(len(points)), len(points) // size + 1):
                        path = commuter.ways[way].positions(points[some], commuter.seconds(way, slice(0, last)))
                        low, high = self._between(noise, path, reports[way][:last, None])
                        side = (slice(None), way % 2, some)
                        lowest[side] = np.maximum(lowest[side], low.max(axis=2))
                        highest[side] = np.minimum(highest[side], high.min(axis=2))
                return self._filtered(lowest.reshape(2 * last, -1, 2), highest.reshape(2 * last, -1, 2))

            def part(days: slice, homes: Ints) -> Floats:
                before = until(days.start, homes) if days.start else 0.0
                result: Floats = until(days.stop, homes) - before
                return result

            return part

        return Seen(np.arange(len(streets.homes)), lambda known: [together(known)])

    def _between(self, noise: Noise, points: Points, reports: Floats) -> tuple[Floats, Floats]:
        """Return the least and largest offsets, east and north, that lead from points to reports, degrees."""
        lat, lon = noise.degrees(points)
        half = self.phone.accuracy_m / _METRES_PER_DEGREE / 2
        scale = _METRES_PER_DEGREE * np.cos(np.radians(lat))
        across = half / np.cos(np.radians(reports[..., 0])) * scale
        middle = np.stack([(reports[..., 1] - lon) * scale, (reports[..., 0] - lat) * _METRES_PER_DEGREE], axis=-1)
        width = np.stack(np.broadcast_arrays(across, half * _METRES_PER_DEGREE), axis=-1)
        return middle - width, middle + width

    def _filtered(self, lowest: Floats, highest: Floats) -> Floats:
        """Return the log-likelihood of bounds on the offset, shape (half days, homes, 2)."""
        logs = np.zeros(lowest.shape[1])
        for axis in (0, 1):
            belief = np.broadcast_to(self._usual, (len(logs), len(self.offsets)))
            for turn, (low, high) in enumerate(zip(lowest[..., axis], highest[..., axis], strict=True)):
                if turn:
                    belief = belief @ self._drifts[(turn - 1) % 2]
                # An offset stands for all within half a step.
                least = np.maximum(low[:, None], self.offsets - self.step_m / 2)
                most = np.minimum(high[:, None], self.offsets + self.step_m / 2)
                belief = belief * np.clip((most - least) / self.step_m, 0.0, 1.0)
                total = belief.sum(axis=1, keepdims=True)
                with np.errstate(divide="ignore"):
                    logs = logs + np.log(total[:, 0])
                belief = belief / np.where(total > 0, total, 1.0)
        return logs
