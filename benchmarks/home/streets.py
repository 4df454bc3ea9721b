"""Streets, the fastest ways along them, and commuters: where vehicles of the attack on homes drive and stay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import KDTree

from geoblanket import RoadGraph
from geoblanket._arrays import Floats, Ints
from geoblanket.roads.graph import ROAD_CLASSES

INTERVAL_S = 30.0
STREET_STEP_M = 25.0
SLOWER = 1.5
"""Driving takes this many times as long as at free flow."""
RESIDENTIAL = ("secondary", "tertiary", "unclassified", "residential", "living_street", "road")
NEAR_M = 250.0
ORIGIN_FROM_M = 3400.0
"""Known places lie outside of every fence: ρ + R of the largest."""

Points = Floats
"""Metres east and north in the lattice's frame, shape (..., 2)."""


def away_m(points: Points, point: Points) -> Floats:
    """Return distances, metres."""
    apart = points - point
    return np.hypot(apart[..., 0], apart[..., 1])


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
        # A street joins two junctions in one length; its directions are edges of their own.
        low, high = np.minimum(graph.sources, graph.targets), np.maximum(graph.sources, graph.targets)
        street, edge_street = np.unique(
            np.stack([low, high, np.rint(graph.length_m).astype(np.int64)]), axis=1, return_inverse=True
        )
        count, example = street.shape[1], np.empty(street.shape[1], np.int64)
        example[edge_street] = np.arange(graph.edge_count)
        # The points inside streets: of which street, and at which share of its length.
        pieces = np.maximum(np.ceil(street[2] / step_m), 1).astype(np.int64)
        inner = np.repeat(np.arange(count), pieces - 1)
        number = np.arange(len(inner)) - np.repeat(np.cumsum(pieces - 1) - (pieces - 1), pieces - 1) + 1
        share = (number / pieces[inner])[:, None]
        points = np.concatenate(
            [junctions, junctions[street[0, inner]] * (1 - share) + junctions[street[1, inner]] * share]
        )
        # Each piece of a street goes from one of its points to the next.
        first_inner = len(junctions) + np.cumsum(pieces - 1) - (pieces - 1)
        chain = np.repeat(np.arange(count), pieces)
        step = np.arange(len(chain)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        start = np.where(step == 0, street[0, chain], first_inner[chain] + step - 1)
        end = np.where(step == pieces[chain] - 1, street[1, chain], first_inner[chain] + step)
        took = (SLOWER * graph.time_s[example] / pieces)[chain]
        # Pieces may be driven in the directions that the street has edges for.
        ahead = np.zeros(count, bool)
        back = np.zeros(count, bool)
        ahead[edge_street[graph.sources <= graph.targets]] = True
        back[edge_street[graph.sources >= graph.targets]] = True
        source = np.concatenate([start[ahead[chain]], end[back[chain]]])
        target = np.concatenate([end[ahead[chain]], start[back[chain]]])
        seconds = np.concatenate([took[ahead[chain]], took[back[chain]]])
        # Of several pieces between the same points the quickest stays.
        moves = source != target
        order = np.lexsort((seconds, target, source))
        order = order[moves[order]]
        new = np.append(True, (np.diff(source[order]) != 0) | (np.diff(target[order]) != 0))
        order = order[new]
        size = len(points)
        # Homes are inside residential streets, the more probable the more junctions are near.
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
