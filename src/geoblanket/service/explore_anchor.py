"""Replays by a lattice: a trip or a parked car, with the anchor and without, and what somebody who follows finds.

Whoever follows averages: a Kalman filter of the vehicle's position and velocity and of the anchor of the period. At
rest it is the mean of all reports, each period with its own weight. Reports and anchors are drawn for the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from geoblanket._arrays import Floats, Ints
from geoblanket._geodesy import haversine_m
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.roads.places import Places
from geoblanket.service.explore_lattice import ExploredLattice
from geoblanket.service.explore_replay import Trip

__all__ = ["Way", "drive", "parked", "replay_way"]

_EVENING: Final = datetime(2026, 1, 12, 22, tzinfo=UTC)
_MORNING: Final = datetime(2026, 1, 12, 8, tzinfo=UTC)
_MOST_REPORTS: Final = 1440
_DRIVE_S: Final = 2700.0
_SPEED_M_S: Final = 7.0
_FAR_M: Final = 2500.0
"""How far from its start a made-up drive goes before it turns round."""
_TURN: Final = 0.35
"""How much a made-up drive turns from one report to the next, radians."""
_VELOCITY_M_S: Final = 5.0
"""How fast vehicles are along an axis, root mean square."""
_MEMORY_S: Final = 90.0
"""After how long a velocity is forgotten."""
_DIGITS: Final = 6


@dataclass(frozen=True, eq=False)
class Way:
    """Where a vehicle truly is, report by report."""

    time_s: Floats
    """Since 1970, UTC, shape (T,)."""
    lat: Floats
    lon: Floats
    """Degrees, shape (T,)."""
    moves: bool

    @classmethod
    def of_trip(cls, trip: Trip, places: Places) -> Way:
        """Return the way of a walk that was held out."""
        time_s = np.array([time.timestamp() for time in trip.times])
        return cls(time_s, places.lat[trip.places], places.lon[trip.places], moves=True)

    def in_slots(self, interval_s: float) -> Way:
        """Return it with one report in a slot at most, as a device makes them."""
        slot = np.floor(self.time_s / interval_s)
        first = np.concatenate([[True], slot[1:] > slot[:-1]])
        return Way(self.time_s[first], self.lat[first], self.lon[first], self.moves)


def parked(lat: float, lon: float, *, hours: int, interval_s: float) -> Way:
    """Return a car that stays at a coordinate and reports all the time."""
    seconds = max(interval_s, hours * 3600 / _MOST_REPORTS)
    time_s: Floats = _EVENING.timestamp() + np.arange(max(int(hours * 3600 / seconds), 2), dtype=np.float64) * seconds
    return Way(time_s, np.full(len(time_s), lat), np.full(len(time_s), lon), moves=False)


def drive(lattice: Lattice, lat: float, lon: float, *, interval_s: float) -> Way:
    """Return a made-up drive of 45 minutes from a coordinate, always the same one, that stays near it."""
    plane = lattice.spec.plane
    generator = np.random.default_rng(5)
    count = max(int(_DRIVE_S / interval_s), 2)
    metre = 1000 / plane.unit_mm
    x, y = (float(value) for value in plane.units(lat, lon))
    start, far = (x, y), min(_FAR_M * metre, plane.side / 4)
    heading = np.arctan2(plane.side / 2 - y, plane.side / 2 - x)
    points = []
    for _ in range(count):
        points.append((x, y))
        heading += generator.normal(0, _TURN)
        if np.hypot(x - start[0], y - start[1]) > far:
            heading = np.arctan2(start[1] - y, start[0] - x) + generator.normal(0, _TURN)
        step = _SPEED_M_S * interval_s * metre * generator.uniform(0.4, 1.4)
        x, y = np.clip([x + step * np.cos(heading), y + step * np.sin(heading)], 0, plane.side - 1)
    way_lat, way_lon = plane.degrees(*np.array(points).T)
    time_s: Floats = _MORNING.timestamp() + np.arange(count, dtype=np.float64) * interval_s
    return Way(time_s, way_lat, way_lon, moves=True)


def replay_way(explored: ExploredLattice, way: Way) -> dict[str, Any]:
    """Report a way once with the anchor, if the bundle has one, and once without; return both as JSON values."""
    anchor = explored.lattice.anchor
    period = np.zeros(len(way.time_s), np.int64) if anchor is None else (way.time_s // anchor.period_s).astype(np.int64)
    times = [datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds") for time in way.time_s.tolist()]
    return {
        "times": times,
        "moves": way.moves,
        "true": _points(way.lat, way.lon),
        "periods": (np.cumsum(np.diff(period, prepend=period[0]) > 0) + 1).tolist(),
        "anchored": None if anchor is None else _reported(explored, way, period, anchored=True),
        "independent": _reported(explored, way, period, anchored=False),
    }


def _reported(explored: ExploredLattice, way: Way, period: Ints, *, anchored: bool) -> dict[str, Any]:
    lattice = explored.lattice
    plane, n = lattice.spec.plane, lattice.spec.cell_units
    shifts = {number: explored.new_shift() if anchored else (0, 0) for number in np.unique(period).tolist()}
    east, north = np.array([shifts[number] for number in period.tolist()]).T
    cells = lattice.draw_many(way.lat, way.lon, shift=(east, north))
    row, column = np.divmod(cells, lattice.spec.cells_across)
    metre = plane.unit_mm / 1000
    seen = np.column_stack([column * n + n // 2, row * n + n // 2]) * metre
    guesses = _follow(seen, way, period, lattice, anchored=anchored) / metre
    guess_lat, guess_lon = plane.degrees(*guesses.T)
    lat, lon = lattice.centers(cells)
    x, y = plane.units(way.lat, way.lon)
    return {
        "reports": _points(lat, lon),
        "shifted": _points(*plane.degrees((x + east) % plane.side, (y + north) % plane.side)),
        "guesses": _points(guess_lat, guess_lon),
        "error_m": np.round(haversine_m(way.lat, way.lon, lat, lon), 1).tolist(),
        "guess_error_m": np.round(haversine_m(way.lat, way.lon, guess_lat, guess_lon), 1).tolist(),
    }


def _follow(seen: Floats, way: Way, period: Ints, lattice: Lattice, *, anchored: bool) -> Floats:
    """Return a recipient's guess after each report, metres in the frame, shape (T, 2).

    What is not known: position, velocity and anchor, the same for both axes. The covariance of planar Laplace noise
    along an axis is 3/ε².
    """
    noise = 3e6 / lattice.epsilon**2 + lattice.cell_m**2 / 12
    anchor = lattice.anchor if anchored else None
    shift = 0.0 if anchor is None else 3e6 / anchor.epsilon**2
    speed = _VELOCITY_M_S**2 if way.moves else 0.0
    anywhere = (lattice.spec.plane.side * lattice.spec.plane.unit_mm / 1000) ** 2
    believed = np.zeros((3, 2))
    believed[0] = seen[0]
    covariance = np.diag([anywhere, speed, shift])
    looks = np.array([1.0, 0.0, 1.0])
    guesses = np.empty_like(seen)
    for index, report in enumerate(seen):
        if index:
            elapsed = way.time_s[index] - way.time_s[index - 1]
            kept = np.exp(-elapsed / _MEMORY_S)
            step = np.eye(3)
            step[0, 1], step[1, 1] = elapsed * (1 + kept) / 2, kept
            believed, covariance = step @ believed, step @ covariance @ step.T
            covariance[1, 1] += speed * (1 - kept**2)
            covariance[0, 0] += speed * (elapsed * (1 - kept) / 2) ** 2
            if period[index] != period[index - 1]:
                believed[2] = covariance[2] = covariance[:, 2] = 0.0
                covariance[2, 2] = shift
        gain = covariance @ looks / (looks @ covariance @ looks + noise)
        believed = believed + np.outer(gain, report - looks @ believed)
        covariance = covariance - np.outer(gain, looks @ covariance)
        guesses[index] = believed[0]
    return guesses


def _points(lat: Floats, lon: Floats) -> list[list[float]]:
    points: list[list[float]] = np.column_stack([lon, lat]).round(_DIGITS).tolist()
    return points
