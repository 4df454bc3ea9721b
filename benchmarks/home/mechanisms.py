"""How a vehicle reports, and how probable its reports are from each home: noise, hold, fences and silent zones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from benchmarks.home.streets import Commuter, Points, Ways, away_m
from geoblanket import RoadGraph
from geoblanket._arrays import Bools, Floats, Ints
from geoblanket.mechanism.lattice.kernel import slope
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.release.fence import point_in_disc

HOLD_M = 50.0
REPORTS_OF_A_NIGHT = 480
AT_A_TIME = 1 << 20
"""Positions in memory at a time."""


@dataclass(frozen=True, eq=False)
class Noise:
    """The lattice's draws, and how probable they are."""

    lattice: Lattice

    @classmethod
    def over(cls, graph: RoadGraph, epsilon: float) -> Noise:
        """Make a lattice over a city."""
        area = Area(graph.lat.min(), graph.lon.min(), graph.lat.max(), graph.lon.max())
        return cls(Lattice.verified(spec_over(area, epsilon=epsilon)))

    def metres(self, lat: Floats, lon: Floats) -> Points:
        """Return coordinates in metres of the frame."""
        plane = self.lattice.spec.plane
        metres: Points = np.stack(plane.units(lat, lon), axis=-1) * np.float64(plane.unit_mm / 1000)
        return metres

    def degrees(self, points: Points) -> tuple[Floats, Floats]:
        """Return latitudes and longitudes of points of the frame."""
        plane = self.lattice.spec.plane
        unit_m = plane.unit_mm / 1000
        return plane.degrees(points[..., 0] / unit_m, points[..., 1] / unit_m)

    def draw(self, points: Points) -> Points:
        """Draw reports, the centres of cells, in the shape of the points."""
        spec = self.lattice.spec
        units = np.rint(points.reshape(-1, 2) / (spec.plane.unit_mm / 1000)).astype(np.int64)
        row, column = np.divmod(self.lattice.draw_many_at(units[:, 0], units[:, 1]), spec.cells_across)
        centers = np.stack([column, row], axis=-1) * spec.cell_units + spec.cell_units // 2
        reports: Points = (centers * (spec.plane.unit_mm / 1000)).reshape(points.shape)
        return reports

    @cached_property
    def _falls(self) -> tuple[float, float]:
        spec = self.lattice.spec
        per_m = float(slope(spec.rate)) * 1000 / spec.plane.unit_mm
        return per_m, float(np.log(spec.floor / int(spec.window.weights(0, 0).max())))

    def log_likelihood(self, reports: Points, points: Points) -> Floats:
        """Return how probable reports are from points, logarithms up to a constant."""
        per_m, floor = self._falls
        return np.maximum(-per_m * away_m(points, reports), floor)


Part = Callable[[slice, Ints], Floats]
"""What the reports of some days say about some homes (indices of the prior): logarithms of likelihoods."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What an attacker has of one commuter."""

    homes: Ints
    """Indices of the homes that are possible, in the prior."""
    parts: Callable[[Sequence[int]], list[Part]]
    """What is left to say by the reports at rest, and on the ways that it knows."""
    gates: Callable[[Ways, Ints], Ints] | None = None
    """Where ways to points cross the fence, if there is one."""


def fresh(positions: Points, *, arriving: bool) -> Bools:
    """Return which reports are drawn, and not repeated, with hold; slots are counted from the known place.

    This simulates the rule of a device: a draw where the position is farther than `HOLD_M` from that of the last draw.
    """
    slots = range(positions.shape[-2])
    drawn = np.empty(positions.shape[:-1], bool)
    last = np.full_like(positions[..., 0, :], np.inf) if arriving else positions[..., -1, :]
    for slot in slots if arriving else reversed(slots):
        here = positions[..., slot, :]
        moved = ~(away_m(here, last) <= HOLD_M)
        drawn[..., slot] = moved
        last = np.where(moved[..., None], here, last)
    return drawn


def every(positions: Points, *, arriving: bool) -> Bools:  # noqa: ARG001
    """Return that all reports are drawn."""
    return ~np.isnan(positions[..., 0])


def fence_center(point: Points, radius_m: float) -> Points:
    """Draw the centre of a fence around a point, as a device does, in whole metres."""
    return np.asarray(np.rint(point) + np.array(point_in_disc(int(radius_m))), np.float64)


class OnWays:
    """Reports of a commuter on one way, all days, and their likelihood by home.

    Parameters
    ----------
    seen_from
        Positions as the mechanism sees them, shape (D, G, T, 2), by the homes, shape (G,); NaN is silence.
    ends
        Homes with the same end of the visible way cannot be told apart.
    is_drawn
        Which reports are drawn, and not repeated.
    """

    def __init__(
        self,
        noise: Noise,
        commuter: Commuter,
        way: int,
        *,
        seen_from: Callable[[Points, Ints], Points],
        ends: Callable[[Ways, Ints], Ints],
        is_drawn: Callable[..., Bools],
    ) -> None:
        self.noise, self.commuter, self.way = noise, commuter, way
        self.seen_from, self.ends, self.is_drawn = seen_from, ends, is_drawn
        positions, drawn = self._path(slice(0, commuter.phases.shape[1]), np.array([commuter.home]))
        reports = np.full_like(positions, np.nan)
        reports[drawn] = noise.draw(positions[drawn])
        self.reports: Points = reports[:, 0]
        self.drawn: Bools = drawn[:, 0]

    def _path(self, days: slice, points: Ints) -> tuple[Points, Bools]:
        ways = self.commuter.ways[self.way]
        positions = ways.positions(self.ends(ways, points), self.commuter.seconds(self.way, days))
        positions = self.seen_from(positions, points)
        return positions, self.is_drawn(positions, arriving=ways.arriving)

    def __call__(self, days: slice, homes: Ints) -> Floats:
        """Return the log-likelihood of the reports of some days from homes."""
        points = self.commuter.streets.homes[homes]
        ends, group = np.unique(self.ends(self.commuter.ways[self.way], points), return_inverse=True)
        first = np.empty(len(ends), np.int64)
        first[group] = points
        reports, drawn = self.reports[days, None], self.drawn[days, None]
        logs = np.empty(len(first))
        size = max(AT_A_TIME // reports[..., 0].size, 1)
        for start in range(0, len(first), size):
            some = slice(start, start + size)
            positions, would = self._path(days, first[some])
            log = np.where(drawn, self.noise.log_likelihood(np.nan_to_num(reports), np.nan_to_num(positions)), 0.0)
            possible = (would == drawn).all(axis=(0, 2))
            logs[some] = np.where(possible, log.sum(axis=(0, 2)), -np.inf)
        result: Floats = logs[group]
        return result


def _as_is(positions: Points, _points: Ints) -> Points:
    return positions


def _at_home(_ways: Ways, points: Ints) -> Ints:
    return points


def _all_ways(
    commuter: Commuter,
    noise: Noise,
    *,
    is_drawn: Callable[..., Bools],
    seen_from: Callable[[Points, Ints], Points] = _as_is,
    ends: Callable[[Ways, Ints], Ints] = _at_home,
) -> list[OnWays]:
    """Draw the reports on all ways."""
    return [
        OnWays(noise, commuter, way, seen_from=seen_from, ends=ends, is_drawn=is_drawn)
        for way in range(len(commuter.ways))
    ]


def lattice_alone(commuter: Commuter, noise: Noise) -> Seen:
    """Each report is drawn anew, at rest too."""
    streets = commuter.streets
    days = commuter.phases.shape[1]
    reports = noise.draw(np.broadcast_to(commuter.at, (days, REPORTS_OF_A_NIGHT, 2)))
    near = away_m(streets.points[streets.homes], np.median(reports[0], axis=0)) <= 500

    def nights(days: slice, homes: Ints) -> Floats:
        places, counts = np.unique(reports[days].reshape(-1, 2), axis=0, return_counts=True)
        points = streets.points[streets.homes[homes]]
        logs = np.zeros(len(points))
        for place, count in zip(places, counts, strict=True):
            logs += count * noise.log_likelihood(place, points)
        return logs

    ways = _all_ways(commuter, noise, is_drawn=every)
    return Seen(np.flatnonzero(near), lambda known: [nights, *(ways[way] for way in known)])


def hold(commuter: Commuter, noise: Noise) -> Seen:
    """Repeat the report during a stay."""
    streets = commuter.streets
    ways = _all_ways(commuter, noise, is_drawn=fresh)
    arrival = ways[0]
    # What is repeated all night is the last draw of the evening.
    last = arrival.drawn.shape[1] - 1 - arrival.drawn[:, ::-1].argmax(axis=1)
    reports = arrival.reports[np.arange(len(last)), last]

    def nights(days: slice, homes: Ints) -> Floats:
        points = streets.points[streets.homes[homes]]
        return np.asarray(noise.log_likelihood(reports[days], points[:, None]).sum(axis=1))

    # The ways that arrive have the night's report.
    return Seen(np.arange(len(streets.homes)), lambda known: [ways[way] for way in known] or [nights])


@dataclass(frozen=True)
class Fenced:
    """Hold, and a fence around the home."""

    radius_m: float
    margin_m: float

    @property
    def reach_m(self) -> float:
        """Radius of the disc that becomes its centre."""
        return self.radius_m + self.margin_m

    def __call__(self, commuter: Commuter, noise: Noise) -> Seen:
        """Draw a centre, and all reports."""
        center = fence_center(commuter.at, self.radius_m)

        def seen_from(positions: Points, _points: Ints) -> Points:
            return np.where((away_m(positions, center) <= self.reach_m)[..., None], center, positions)

        seen = self.around(commuter, center)
        assert seen.gates is not None
        ways = _all_ways(commuter, noise, is_drawn=fresh, seen_from=seen_from, ends=seen.gates)
        return replace(seen, parts=lambda known: [ways[way] for way in known])

    def around(self, commuter: Commuter, center: Points) -> Seen:
        """Return what is seen of a fence without any report."""
        streets = commuter.streets
        # Within half a metre: the centre was drawn around whole metres.
        near = np.flatnonzero(away_m(streets.points[streets.homes], center) <= self.radius_m + 0.75)
        whole = np.arange(len(streets.points))

        @cache
        def all_gates(ways: Ways) -> Ints:
            return ways.gates(whole, center, self.reach_m)

        return Seen(near, lambda _known: [], lambda ways, points: all_gates(ways)[points])


@dataclass(frozen=True)
class SilentZone:
    """A privacy zone: no reports from within a distance of the home."""

    radius_m: float = 500.0

    def __call__(self, commuter: Commuter, noise: Noise) -> Seen:
        """Draw all reports outside."""
        streets = commuter.streets

        def seen_from(positions: Points, points: Ints) -> Points:
            silent = away_m(positions, streets.points[points][:, None]) <= self.radius_m
            return np.where(silent[..., None], np.nan, positions)

        ways = _all_ways(commuter, noise, is_drawn=every, seen_from=seen_from)
        return Seen(np.arange(len(streets.homes)), lambda known: [ways[way] for way in known])
