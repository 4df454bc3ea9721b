"""How near an attacker comes to a home after weeks of nights and commutes, by how the vehicle reports.

Run `python -m benchmarks.home ROADS [WALKS]` with a road graph, and walks between places 250 m apart, a step every 30 s
(`geoblanket match --spacing 250`): these add the error on the road and at rest. `--quick` takes a fifth of everything,
`--picture FILE` draws the error against nights. `benchmarks.home_cabs` has real cabs.

*Commuters.* Homes are points of residential streets, 25 m apart, drawn from the attacker's own prior, which follows the
density of junctions. Each day a vehicle comes home from each known place and leaves for it again, by the fastest way,
and stays for the night. It reports every 30 s on the road and every minute at rest. The attacker keeps a probability of
each home and guesses the point of least expected distance. It is told more than it could know: the mechanism, the
fence's centre and radius, which reports were drawn and which were repeated. About each known place it knows the second
of every departure and arrival there, the way and the speed.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import KDTree

import geoblanket
from benchmarks import tracking
from benchmarks._measure import machine, show
from benchmarks.coarse_location import CoarseLocation
from geoblanket import RoadGraph
from geoblanket._arrays import Bools, Floats, Ints, Positions
from geoblanket._geodesy import haversine_m
from geoblanket._picture import new_figure, save_figure
from geoblanket.mechanism.lattice.kernel import slope
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.release.fence import point_in_disc
from geoblanket.roads.graph import ROAD_CLASSES
from geoblanket.tracking.estimate import Estimator
from geoblanket.tracking.filtering import BeliefFilter, Sequences, follow
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import Singles
from geoblanket.tracking.observation import LatticeObservations

EPSILON = 4.0
HOLD_M = 50.0
NIGHTS = (1, 2, 4, 7, 14, 30)
HOMES = 160
OTHERS = 4
"""Every fourth home is also attacked without a fence, which takes longer and varies less."""
ORIGINS = 5
INTERVAL_S = 30.0
STREET_STEP_M = 25.0
SLOWER = 1.5
"""Driving takes so much longer than at free flow."""
RESIDENTIAL = ("secondary", "tertiary", "unclassified", "residential", "living_street", "road")
NEAR_M = 250.0
ORIGIN_FROM_M = 3400.0
"""Known places lie outside of every fence: ρ + R of the largest."""
REPORTS_OF_A_NIGHT = 480
TABLED = (1, 7, 30)
FOUND_M = 10.0
"""Errors below this are drawn as this: possible homes lie 25 m apart."""
NEGLIGIBLE = 30.0
"""Homes whose probability is e^-30 of the likeliest are dropped."""
AT_A_TIME = 1 << 20

Points = Floats
"""Metres east and north in the lattice's frame, shape (..., 2)."""


def away_m(points: Points, point: Points) -> Floats:
    """Return distances, metres."""
    apart = points - point
    return np.hypot(apart[..., 0], apart[..., 1])


# Streets and ways -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Streets:
    """A road graph cut into pieces of 25 m at most, and where homes may be."""

    points: Points
    """Junctions first, then the points between them, shape (N, 2)."""
    seconds: csr_array
    """Of driving from point to point, shape (N, N)."""
    homes: Ints
    """Points that may be homes, shape (H,)."""
    prior: Floats
    """Probability of each home, shape (H,)."""
    junctions: int

    @classmethod
    def of(cls, graph: RoadGraph, junctions: Points, step_m: float = STREET_STEP_M) -> Streets:
        """Cut the roads; lines between junctions count as straight, and take as long as the road."""
        low, high = np.minimum(graph.sources, graph.targets), np.maximum(graph.sources, graph.targets)
        street, edge_street = np.unique(
            np.stack([low, high, np.rint(graph.length_m).astype(np.int64)]), axis=1, return_inverse=True
        )
        count, example = street.shape[1], np.empty(street.shape[1], np.int64)
        example[edge_street] = np.arange(graph.edge_count)
        pieces = np.maximum(np.ceil(street[2] / step_m), 1).astype(np.int64)
        inner = np.repeat(np.arange(count), pieces - 1)
        number = np.arange(len(inner)) - np.repeat(np.cumsum(pieces - 1) - (pieces - 1), pieces - 1) + 1
        share = (number / pieces[inner])[:, None]
        points = np.concatenate(
            [junctions, junctions[street[0, inner]] * (1 - share) + junctions[street[1, inner]] * share]
        )
        first_inner = len(junctions) + np.cumsum(pieces - 1) - (pieces - 1)
        chain = np.repeat(np.arange(count), pieces)
        step = np.arange(len(chain)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        start = np.where(step == 0, street[0, chain], first_inner[chain] + step - 1)
        end = np.where(step == pieces[chain] - 1, street[1, chain], first_inner[chain] + step)
        took = (SLOWER * graph.time_s[example] / pieces)[chain]
        ahead = np.zeros(count, bool)
        back = np.zeros(count, bool)
        ahead[edge_street[graph.sources <= graph.targets]] = True
        back[edge_street[graph.sources >= graph.targets]] = True
        source = np.concatenate([start[ahead[chain]], end[back[chain]]])
        target = np.concatenate([end[ahead[chain]], start[back[chain]]])
        seconds = np.concatenate([took[ahead[chain]], took[back[chain]]])
        moves = source != target
        order = np.lexsort((seconds, target, source))
        order = order[moves[order]]
        new = np.append(True, (np.diff(source[order]) != 0) | (np.diff(target[order]) != 0))
        order = order[new]
        size = len(points)
        lived_in = np.isin(graph.road_class[example], [ROAD_CLASSES.index(name) for name in RESIDENTIAL])
        homes = len(junctions) + np.flatnonzero(lived_in[inner])
        density = KDTree(junctions).query_ball_point(points[homes], NEAR_M, return_length=True).astype(np.float64)
        homes, density = homes[density > 0], density[density > 0]
        return cls(
            points,
            csr_array((seconds[order], (source[order], target[order])), shape=(size, size)),
            homes,
            density / density.sum(),
            len(junctions),
        )


class Ways:
    """The fastest ways from one place to every point, or from every point to it."""

    def __init__(self, streets: Streets, place: int, *, arriving: bool) -> None:
        graph = streets.seconds if arriving else streets.seconds.T.tocsr()
        self.arriving = arriving
        seconds, before = dijkstra(graph, indices=[place], return_predecessors=True)
        self.seconds: Floats = seconds[0]
        """From the place, or to it."""
        self.before = np.where(before[0] < 0, place, before[0]).astype(np.int32)
        """The next point towards the place."""
        self._points = streets.points
        farther = [self.before]
        while not np.all(farther[-1] == place):
            farther.append(farther[-1][farther[-1]])
        self._farther = farther
        self.slots = int(np.ceil(self.seconds[streets.homes].max() / INTERVAL_S)) + 3

    def positions(self, ends: Ints, seconds: Floats) -> Points:
        """Return where a vehicle between the place and each end is, by its time from the place.

        Shapes: ends (G,), seconds (D, T), result (D, G, T, 2). After the end it stays there.
        """
        wanted = seconds[:, None, :]
        point = np.broadcast_to(ends[None, :, None], (len(seconds), len(ends), seconds.shape[1]))
        for farther in reversed(self._farther):
            further = farther[point]
            point = np.where(self.seconds[further] > wanted, further, point)
        before = self.before[point]
        since, piece = self.seconds[before], self.seconds[point] - self.seconds[before]
        share = np.clip((wanted - since) / np.where(piece > 0, piece, 1.0), 0.0, 1.0)[..., None]
        share[piece <= 0] = 1.0
        positions: Points = self._points[before] * (1 - share) + self._points[point] * share
        return positions

    def gates(self, ends: Ints, center: Points, radius_m: float) -> Ints:
        """Return the point of each way that is the first inside a disc, for ends that lie inside."""
        inside = away_m(self._points, center) <= radius_m
        gate = np.where(inside[self.before], self.before, np.arange(len(inside)))
        while True:
            further = gate[gate]
            if np.array_equal(further, gate):
                return np.asarray(gate[ends])
            gate = further


@dataclass(frozen=True, eq=False)
class Commuter:
    """A home, the places that the attacker knows, and when the vehicle passes between them."""

    streets: Streets
    home: int
    """A point of the streets."""
    ways: list[Ways]
    """To the home and from it, for each known place in turn."""
    phases: Floats
    """Seconds from the known place to the first report, of each of the ways and days, shape (ways, days)."""

    @classmethod
    def drawn(
        cls, streets: Streets, rng: np.random.Generator, *, origins: int, days: int, from_m: float = ORIGIN_FROM_M
    ) -> Commuter:
        """Draw a home, and places at some distance from it."""
        home = int(rng.choice(streets.homes, p=streets.prior))
        far = np.flatnonzero(away_m(streets.points[: streets.junctions], streets.points[home]) >= from_m)
        ways = [
            Ways(streets, int(origin), arriving=arriving)
            for origin in rng.choice(far, origins, replace=False)
            for arriving in (True, False)
        ]
        return cls(streets, home, ways, rng.uniform(0, INTERVAL_S, (len(ways), days)))

    @property
    def at(self) -> Points:
        """Where the home is."""
        at: Points = self.streets.points[self.home]
        return at

    def seconds(self, way: int, days: slice) -> Floats:
        """Return the times of reports on a way, from the known place, shape (days, slots)."""
        return self.phases[way, days, None] + INTERVAL_S * np.arange(self.ways[way].slots)


# Mechanisms, and what an attacker makes of their reports --------------------------------------------------------------


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
    """Those that are possible at all, indices of the prior."""
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


@dataclass(frozen=True, eq=False)
class OnWays:
    """Reports of a commuter on one way, all days, and their likelihood by home."""

    noise: Noise
    commuter: Commuter
    way: int
    seen_from: Callable[[Points, Ints], Points]
    """Positions as the mechanism sees them, shape (D, G, T, 2), by the homes, shape (G,); NaN is silence."""
    ends: Callable[[Ways, Ints], Ints]
    """Homes with the same end of the visible way cannot be told apart."""
    is_drawn: Callable[..., Bools]
    reports: list[Points] = field(default_factory=list)
    drawn: list[Bools] = field(default_factory=list)

    def begin(self) -> OnWays:
        """Draw the reports of all days."""
        days = self.commuter.phases.shape[1]
        positions, drawn = self._path(slice(0, days), np.array([self.commuter.home]))
        reports = np.full_like(positions, np.nan)
        reports[drawn] = self.noise.draw(positions[drawn])
        self.reports.append(reports[:, 0])
        self.drawn.append(drawn[:, 0])
        return self

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
        reports, drawn = self.reports[0][days, None], self.drawn[0][days, None]
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
    seen_from: Callable[[Points, Ints], Points],
    ends: Callable[[Ways, Ints], Ints],
    is_drawn: Callable[..., Bools],
) -> list[OnWays]:
    known = range(min(len(commuter.ways), 2 * ORIGINS))
    return [OnWays(noise, commuter, way, seen_from, ends, is_drawn).begin() for way in known]


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

    ways = _all_ways(commuter, noise, _as_is, _at_home, every)
    return Seen(np.flatnonzero(near), lambda known: [nights, *(ways[way] for way in known)])


def hold(commuter: Commuter, noise: Noise) -> Seen:
    """Repeat the report during a stay."""
    streets = commuter.streets
    ways = _all_ways(commuter, noise, _as_is, _at_home, fresh)
    arrival = ways[0]
    # What is repeated all night is the last draw of the evening.
    last = arrival.drawn[0].shape[1] - 1 - arrival.drawn[0][:, ::-1].argmax(axis=1)
    reports = arrival.reports[0][np.arange(len(last)), last]

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
        ways = _all_ways(commuter, noise, seen_from, seen.gates, fresh)
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

        ways = _all_ways(commuter, noise, seen_from, _at_home, every)
        return Seen(np.arange(len(streets.homes)), lambda known: [ways[way] for way in known])


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
        self._metres = 111_000.0  # per degree, as Android has it
        self.offsets = np.arange(-4 * self.phone.deviation_m, 4 * self.phone.deviation_m + 1, self.step_m)
        chances = np.exp(-(self.offsets**2) / (2 * self.phone.deviation_m**2))
        self._usual = chances / chances.sum()
        self._drifts = [self._drift(hours) for hours in self.hours]

    def _drift(self, hours: int) -> Floats:
        kept = np.sqrt(1 - 0.03**2) ** hours
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
        half = self.phone.accuracy_m / self._metres / 2
        scale = self._metres * np.cos(np.radians(lat))
        across = half / np.cos(np.radians(reports[..., 0])) * scale
        middle = np.stack([(reports[..., 1] - lon) * scale, (reports[..., 0] - lat) * self._metres], axis=-1)
        width = np.stack(np.broadcast_arrays(across, half * self._metres), axis=-1)
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


# The attacker ---------------------------------------------------------------------------------------------------------


def best_point(points: Points, logs: Floats) -> Points:
    """Return the point of least expected distance (Weiszfeld's iteration)."""
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    guess = weights @ points
    for _ in range(60):
        pull = weights / np.maximum(away_m(points, guess), 1.0)
        guess = pull @ points / pull.sum()
    # Where one point has half of the probability, it is the answer.
    likeliest = points[weights.argmax()]
    cost = [weights @ away_m(points, point) for point in (guess, likeliest)]
    return np.asarray(guess if cost[0] <= cost[1] else likeliest)


def posteriors(
    streets: Streets, homes: Ints, parts: Sequence[Part], nights: Sequence[int]
) -> Iterator[tuple[Ints, Floats]]:
    """Yield the homes that are left and the logarithms of their probabilities, up to a constant, after some nights."""
    logs = np.log(streets.prior[homes])
    for first, last in zip((0, *nights), nights, strict=False):
        for part in parts:
            logs = logs + part(slice(first, last), homes)
            kept = logs >= logs.max() - NEGLIGIBLE
            homes, logs = homes[kept], logs[kept]
        yield homes, logs


def errors_m(commuter: Commuter, homes: Ints, parts: Sequence[Part], nights: Sequence[int]) -> list[float]:
    """Return the attacker's error after some nights, metres."""
    streets = commuter.streets
    return [
        float(away_m(best_point(streets.points[streets.homes[left]], logs), commuter.at))
        for left, logs in posteriors(streets, homes, parts, nights)
    ]


def leaving_times(commuter: Commuter, spread_s: float, rng: np.random.Generator) -> Part:
    """Return what it says to know when the vehicle left home for the first known place, with a spread each day.

    When it reaches the known place is known exactly, so that this tells how long the drive took.
    """
    ways = commuter.ways[1]
    took = ways.seconds[commuter.home] + rng.normal(0.0, spread_s, commuter.phases.shape[1])

    def part(days: slice, homes: Ints) -> Floats:
        would = ways.seconds[commuter.streets.homes[homes], None]
        return np.asarray(-(((took[days] - would) / spread_s) ** 2).sum(axis=1) / 2)

    return part


def exact_outside(commuter: Commuter, seen: Seen, known: Sequence[int]) -> Part:
    """Return what it says to know everything outside the fence exactly."""
    assert seen.gates is not None
    gates = seen.gates

    def part(_days: slice, homes: Ints) -> Floats:
        possible = np.ones(len(homes), bool)
        for way in known:
            ways = commuter.ways[way]
            true = gates(ways, np.array([commuter.home]))
            possible &= gates(ways, commuter.streets.homes[homes]) == true
        return np.where(possible, 0.0, -np.inf)

    return part


# Commuters ------------------------------------------------------------------------------------------------------------

NIGHTS_ONLY, COMING, ONE, FIVE_COMING, FIVE = (
    "nights only",
    "1 place, coming",
    "1 place, both ways",
    "5 places, coming",
    "5 places, both ways",
)
KNOWN: dict[str, Sequence[int]] = {
    NIGHTS_ONLY: (),
    COMING: (0,),
    ONE: (0, 1),
    FIVE_COMING: range(0, 2 * ORIGINS, 2),
    FIVE: range(2 * ORIGINS),
}
"""Ways that an attacker knows."""
FENCES = {
    "hold + fence ρ = .5 km": Fenced(500, 250),
    "hold + fence ρ = 1 km": Fenced(1000, 300),
    "hold + fence ρ = 1.5 km": Fenced(1500, 300),
}
MECHANISMS: dict[str, tuple[Callable[[Commuter, Noise], Seen], Sequence[str]]] = {
    "lattice alone": (lattice_alone, (NIGHTS_ONLY, ONE)),
    "hold": (hold, (NIGHTS_ONLY, COMING, ONE, FIVE)),
    "silent zone 500 m": (SilentZone(), (COMING, ONE, FIVE)),
    "Android's coarse location": (CoarsePhone(), (NIGHTS_ONLY, COMING, ONE)),
    **{name: (fence, tuple(KNOWN)) for name, fence in FENCES.items()},
}
COLORS = {
    "lattice alone": "#9aa2ae",
    "hold": "#b45309",
    "silent zone 500 m": "#be185d",
    "Android's coarse location": "#4d7c0f",
    "hold + fence ρ = .5 km": "#38bdf8",
    "hold + fence ρ = 1 km": "#0284c7",
    "hold + fence ρ = 1.5 km": "#1e3a8a",
}
LEFT_S = 60.0
TEN, MOST_ORIGINS = "10 places, both ways", 10
CENTERS = 5
"""Fences drawn around each home where everything outside is known: how far off a guess is depends on the centre."""

Errors = dict[tuple[str, str], Floats]
"""By mechanism and attacker: metres, of each home after each number of nights, shape (homes, nights)."""


def attack(streets: Streets, noise: Noise, homes: int) -> Errors:
    """Attack commuters."""
    rng = np.random.default_rng(0)
    found: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for number in range(homes):
        commuter = Commuter.drawn(streets, rng, origins=ORIGINS, days=max(NIGHTS))
        for name, (mechanism, attackers) in MECHANISMS.items():
            if name not in FENCES and number % OTHERS:
                continue
            seen = mechanism(commuter, noise)
            parts = {attacker: seen.parts(KNOWN[attacker]) for attacker in attackers}
            if seen.gates is not None:
                left = leaving_times(commuter, LEFT_S, rng)
                parts |= {f"{attacker}, left home ± 1 min": [*parts[attacker], left] for attacker in (ONE, FIVE)}
            for attacker, its_parts in parts.items():
                found[name, attacker].append(errors_m(commuter, seen.homes, its_parts, NIGHTS))
    return {key: np.array(values) for key, values in found.items()}


def limits(streets: Streets, homes: int) -> dict[tuple[str, str], Floats]:
    """Return the errors where everything outside is known exactly, the mean over several fences of each home."""
    rng = np.random.default_rng(1)
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(homes):
        commuter = Commuter.drawn(streets, rng, origins=MOST_ORIGINS, days=1)
        for name, fence in FENCES.items():
            fences = [fence.around(commuter, fence_center(commuter.at, fence.radius_m)) for _ in range(CENTERS)]
            for attacker, known in {**KNOWN, TEN: range(2 * MOST_ORIGINS)}.items():
                errors = [
                    errors_m(commuter, seen.homes, [exact_outside(commuter, seen, known)], (1,))[0] for seen in fences
                ]
                found[name, attacker].append(float(np.mean(errors)))
    return {key: np.array(values) for key, values in found.items()}


def mean_and_error(values: Floats) -> str:
    """Return a mean and its standard error."""
    return f"{values.mean():.0f} ± {values.std(ddof=1) / np.sqrt(len(values)):.0f}"


def commuters(roads: str, *, quick: bool, picture: str | None) -> None:
    """Print how far off homes of commuters are."""
    graph = RoadGraph.load(roads)
    noise = Noise.over(graph, EPSILON)
    streets = Streets.of(graph, noise.metres(graph.lat, graph.lon))
    errors = attack(streets, noise, HOMES // (5 if quick else 1))
    columns = [NIGHTS.index(nights) for nights in TABLED]
    show(
        f"The attacker's error, m: {len(streets.homes):,} possible homes, ε = {EPSILON:g} a report",
        ("mechanism", "what it knows", "homes", *(f"{nights} night{'s' * (nights > 1)}" for nights in TABLED)),
        [
            (*key, f"{len(values)}", *(mean_and_error(values[:, column]) for column in columns))
            for key, values in errors.items()
        ],
    )
    exact = limits(streets, HOMES // (5 if quick else 1))
    show(
        f"The attacker's error, m, everything outside known exactly: {CENTERS} fences around each home",
        ("mechanism", "what it knows", "homes", "any number of nights"),
        [(*key, f"{len(values)}", mean_and_error(values)) for key, values in exact.items()],
    )
    if picture is not None:
        draw(errors, picture)


def draw(errors: Errors, path: str) -> None:
    """Draw the error against nights, a line for each mechanism."""
    figure = new_figure(width_in=9.0, height_in=4.2)
    axes = figure.subplots(1, 2, sharey=True)
    titles = ("The attacker sees the nights only", "… and knows one place: ways, times and speed")
    for ax, title, wanted in zip(axes, titles, ((NIGHTS_ONLY,), (ONE, COMING)), strict=True):
        ends = []
        for name, color in COLORS.items():
            attacker = next((attacker for attacker in wanted if (name, attacker) in errors), None)
            if attacker is not None:
                means = np.maximum(errors[name, attacker].mean(axis=0), FOUND_M)
                ax.plot(NIGHTS, means, color=color, linewidth=2.4 if name in FENCES else 1.4, marker="o", markersize=3)
                ends.append((float(means[-1]), name, color))
        _label(ax, ends)
        ax.set(xscale="log", yscale="log", xlabel="nights", ylim=(FOUND_M * 0.85, 2000), xlim=(0.92, 33))
        ax.set_xticks(NIGHTS, [str(nights) for nights in NIGHTS])
        ax.set_yticks([10, 30, 100, 300, 1000], ["10 or less", "30", "100", "300", "1,000"])
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="#e3e5e8", linewidth=0.8)
        ax.set_title(title, fontsize=9, loc="left")
    axes[0].set_ylabel("attacker's error, m")
    save_figure(figure, path, dpi=120)


def _label(ax: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Write names beside the ends of lines, far enough from each other."""
    lowest = 0.0
    for end, name, color in sorted(ends):
        lowest = max(float(np.log(end)), lowest)
        ax.annotate(
            name, (1.02, np.exp(lowest)), xycoords=("axes fraction", "data"), color=color, fontsize=8, va="center"
        )
        lowest += 0.26


# On the road and at rest ----------------------------------------------------------------------------------------------


def road_and_rest(roads: str, walks: str, *, quick: bool) -> None:
    """Print the error of a tracker on the road, and at rest after the drive, with hold."""
    known = tracking.load(roads, walks, 200 if quick else None)
    places = known.places
    model = learn_motion(known.graph, places, walks=walks, part="train", split=tracking.SPLIT, order=2)
    last = np.append(known.starts[1:], len(known.place)) - 1
    visited = np.bincount(known.training["place"].to_numpy(), minlength=len(places))
    ended = known.training.group_by("walk").agg(pl.col("place").sort_by("step").last())["place"].to_numpy()
    ends_here = (np.bincount(ended, minlength=len(places)) + 0.5) / (visited + 5.0)
    area = Area(places.lat.min(), places.lon.min(), places.lat.max(), places.lon.max())
    rows = []
    for epsilon in (2.0, 4.0):
        lattice = Lattice.verified(spec_over(area, epsilon=epsilon))
        cells = lattice.draw_many(places.lat[known.place], places.lon[known.place])
        beliefs = BeliefFilter(model, LatticeObservations(lattice, model, interval_s=known.interval_s))
        estimator, errors = Estimator(model), np.empty((2, len(cells)))

        def seen(
            positions: Positions, belief: Singles, beliefs: BeliefFilter = beliefs, errors: Floats = errors,
            estimator: Estimator = estimator,
        ) -> None:  # fmt: skip
            truth = known.place[positions]
            by_place = beliefs.places(belief)
            for number, weighed in enumerate((by_place, by_place * ends_here[:, None].astype(np.float32))):
                guess = estimator.estimates(weighed / weighed.sum(axis=0))
                errors[number, positions] = haversine_m(guess.lat, guess.lon, model.lat[truth], model.lon[truth])

        follow(beliefs, Sequences(np.arange(len(cells)), cells, known.starts), seen)
        on_road, before, rest, knows_ends = errors[0], errors[0, last - 1], errors[0, last], errors[1, last]
        rows.append(
            (
                f"{epsilon:g}",
                f"{len(cells):,}",
                mean_and_error(on_road),
                mean_and_error(before),
                f"{len(last):,}",
                mean_and_error(rest),
                f"{rest.mean() / on_road.mean() - 1:+.1%}",
                mean_and_error(knows_ends),
            )
        )
    show(
        "Tracked with hold, m: on the road, and at rest after the drive",
        (
            "ε",
            "reports",
            "on the road",
            "30 s before the rest",
            "rests",
            "at rest",
            "against road",
            "knows trips' ends",
        ),
        rows,
    )


def took(started: float) -> str:
    """Return the time since the start, the processor's time and the peak memory, in words."""
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    wall, cpu = time.perf_counter() - started, time.process_time()
    return f"{wall:.0f} s, of which {cpu:.0f} s on the processor; peak memory {peak_mb:,.0f} MB"


def main(arguments: Sequence[str]) -> None:
    """Print the tables."""
    options = {name: arguments[arguments.index(name) + 1] for name in ("--picture",) if name in arguments}
    paths = [argument for argument in arguments if not argument.startswith("--") and argument not in options.values()]
    if not 1 <= len(paths) <= 2:
        print("Usage: python -m benchmarks.home ROADS [WALKS] [--picture FILE] [--quick]")
        return
    quick, started = "--quick" in arguments, time.perf_counter()
    print(f"python -m benchmarks.home {' '.join(arguments)}\ngeoblanket {geoblanket.__version__}; {machine()}")
    commuters(paths[0], quick=quick, picture=options.get("--picture"))
    if len(paths) > 1:
        road_and_rest(*paths, quick=quick)
    print(took(started))


if __name__ == "__main__":
    main(sys.argv[1:])
