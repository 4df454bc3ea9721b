"""How near an attacker comes to the homes of real cabs with a fence, from everything they did outside for 24 days.

Run `python -m benchmarks.home_cabs ROADS CABS` with San Francisco's road graph and the archive of `new_NAME.txt` files,
one for each cab (CRAWDAD epfl/mobility); `--quick` takes a third of the cabs and a quarter of the fences.

A cab's home is where it rests for 3 hours or more, on 3 days or more. Places where more than 5 cabs rest are depots,
and left out. The attacker knows the fence and sees the true positions outside, without any noise. It looks at the
visits of 3 hours or more: where the cab came from, and where it went. In the last column it is also told which of them
went to the home. Means are over fences, then over cabs; standard errors are over cabs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import KDTree

import geoblanket
from benchmarks._measure import machine, mean_and_error, show, took
from benchmarks.home.attacker import best_point
from benchmarks.home.mechanisms import fence_center
from benchmarks.home.streets import NEAR_M, Points, Streets, Ways, away_m
from geoblanket import Cleaning, RoadGraph, import_traces, scan_traces
from geoblanket._arrays import Floats, Ints
from geoblanket._geodesy import local_metres

RADIUS_M, MARGIN_M = 1000.0, 300.0
REST_S, STAY_M, JITTER_M = 3 * 3600, 100.0, 30.0
"""A cab rests if it stays this long within this distance, apart from steps of a few metres."""
SHARED_BY, LEAST_NIGHTS = 5, 3
"""Places where more cabs rest are depots; a home has a rest on this many days at least."""
CENTERS = 4
"""Fences drawn around each home."""
FAR_S, AHEAD = 600, 15
"""How far back, or ahead, an attacker looks from the fence: seconds, and points at most."""


@dataclass(frozen=True, eq=False)
class Cab:
    """A cab's true points, and where it rests."""

    points: Points
    seconds: Ints
    home: Points
    nights: int


def resting_cabs(graph: RoadGraph, archive: str) -> Iterator[Cab]:
    """Yield the cabs with a recurrent place to rest of their own, inside the road network."""
    origin = {"origin_lat": float(graph.lat.mean()), "origin_lon": float(graph.lon.mean())}
    as_recorded = Cleaning(max_speed_m_s=None, max_gap_s=None, min_points=1)
    with tempfile.TemporaryDirectory() as folder:
        import_traces(archive, f"{folder}/cabs.parquet", format="cabspotting", cleaning=as_recorded)
        traces = scan_traces(f"{folder}/cabs.parquet").collect()
    cabs = []
    for rows in traces.partition_by("vehicle", maintain_order=True):
        points = np.stack(local_metres(rows["lat"], rows["lon"], **origin), axis=-1)
        cabs.append((points, rows["time"].dt.epoch("s").to_numpy()))
    stays = [_stays(*cab) for cab in cabs]
    rests = np.concatenate([places for places, _ in stays])
    owner = np.repeat(np.arange(len(cabs)), [len(places) for places, _ in stays])
    near = KDTree(rests).query_ball_point(rests, 2 * STAY_M)
    own = np.array([len(np.unique(owner[others])) for others in near]) <= SHARED_BY
    corners = np.stack(local_metres(graph.lat, graph.lon, **origin), axis=-1)
    low, high = corners.min(axis=0), corners.max(axis=0)
    for number, (points, seconds) in enumerate(cabs):
        mine = own[owner == number]
        places, times = stays[number][0][mine], stays[number][1][mine]
        if len(places) == 0:
            continue
        together = away_m(places, places[:, None]) <= STAY_M
        there = together[together.sum(axis=1).argmax()]
        home, nights = np.median(places[there], axis=0), len(np.unique(times[there] // 86_400))
        if nights >= LEAST_NIGHTS and (home > low).all() and (home < high).all():
            yield Cab(points, seconds, home, nights)


def _stays(points: Points, seconds: Ints) -> tuple[Points, Ints]:
    """Return where and when a cab rested for `REST_S` or longer."""
    steps = away_m(points[1:], points[:-1]) > JITTER_M
    moves = np.append(steps, False) | np.insert(steps, 0, False)
    points, seconds = points[moves], seconds[moves]
    rests = (np.diff(seconds) >= REST_S) & (away_m(points[1:], points[:-1]) <= 2 * STAY_M)
    return ((points[1:] + points[:-1]) / 2)[rests], seconds[1:][rests]


@dataclass(frozen=True, eq=False)
class Visit:
    """What is seen of one long stay in a fence, from the last point before to the first after; relative to the centre.

    Each side, coming and going, has the point next to the fence, the direction there, and a point some minutes away.
    """

    near: Points
    """Shape (2, 2): of the two sides."""
    direction: Points
    """Towards the fence's inside, of length 1, or 0 if it is not known."""
    far: Points
    at_home: bool
    """Whether the visit went to the home, which an attacker may be told."""


def visits(cab: Cab, center: Points, reach_m: float) -> list[Visit]:
    """Return the visits that are long enough for a rest."""
    inside = away_m(cab.points, center) <= reach_m
    outside = np.flatnonzero(~inside)
    at_home = np.cumsum(away_m(cab.points, cab.home) <= 2 * STAY_M)
    ends = np.flatnonzero((np.diff(outside) > 1) & (np.diff(cab.seconds[outside]) >= REST_S))
    found = []
    for end in ends.tolist():
        coming, going = _side(cab, center, outside, end, -1), _side(cab, center, outside, end + 1, 1)
        near, direction, far = (np.stack(both) for both in zip(coming, going, strict=True))
        found.append(Visit(near, direction, far, bool(at_home[outside[end + 1]] > at_home[outside[end]])))
    return found


def _side(cab: Cab, center: Points, outside: Ints, at: int, way: int) -> tuple[Points, Points, Points]:
    here = outside[at]
    some = outside[max(at - AHEAD, 0) : at + 1][::-1] if way < 0 else outside[at : at + AHEAD + 1]
    some = some[np.abs(cab.seconds[some] - cab.seconds[here]) <= FAR_S]
    far = cab.points[some[-1]]
    direction = cab.points[here] - cab.points[some[min(2, len(some) - 1)]]
    return cab.points[here] - center, direction / max(float(np.hypot(*direction)), 1.0), far


@dataclass(frozen=True, eq=False)
class Chase:
    """All that an attacker has of one cab and one centre."""

    cab: int
    home: Points
    """Relative to the centre, as all here."""
    visits: list[Visit]
    grid: Points
    """Possible homes."""
    detours: Floats
    """Seconds that the seen way is longer than the fastest by way of each home, shape (sides of visits, homes)."""
    gates: Floats
    """Metres from where the fastest way to each home crosses the fence to where the cab was seen next to it."""
    density: Floats
    """Of junctions near each home."""

    @property
    def features(self) -> Points:
        """Means over visits: near points and directions, coming and going, shape (4, 2), metres and kilometres."""
        if not self.visits:
            return np.zeros((4, 2))
        near = np.mean([visit.near for visit in self.visits], axis=0)
        return np.concatenate([near, 1000 * np.mean([visit.direction for visit in self.visits], axis=0)])

    def told(self) -> Chase:
        """Return it with the visits that went to the home alone."""
        chosen = np.array([visit.at_home for visit in self.visits], bool)
        sides = np.repeat(chosen, 2)
        kept = [visit for visit in self.visits if visit.at_home]
        return replace(self, visits=kept, detours=self.detours[sides], gates=self.gates[sides])


def chases(graph: RoadGraph, cabs: Sequence[Cab], *, draws: int) -> Iterator[Chase]:
    """Draw fences around the cabs' homes, and yield what is seen of each."""
    origin = {"origin_lat": float(graph.lat.mean()), "origin_lon": float(graph.lon.mean())}
    junctions = np.stack(local_metres(graph.lat, graph.lon, **origin), axis=-1)
    streets = Streets.of(graph, junctions, 100.0)
    tree, crossings = KDTree(streets.points), KDTree(junctions)
    axis = np.arange(-RADIUS_M, RADIUS_M + 1, 50.0)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    grid = grid[away_m(grid, np.zeros(2)) <= RADIUS_M]
    reach = RADIUS_M + MARGIN_M
    for number, cab in enumerate(cabs):
        for _ in range(draws):
            center = fence_center(cab.home, RADIUS_M)
            seen = visits(cab, center, reach)
            ends = np.asarray(tree.query(grid + center)[1])
            detours, gates = [], []
            for visit in seen:
                for side in (0, 1):
                    near, far = (int(tree.query(point)[1]) for point in (visit.near[side] + center, visit.far[side]))
                    ways = Ways(streets, far, arriving=side == 0)
                    onward = Ways(streets, near, arriving=side == 0)
                    detours.append(ways.seconds[near] + onward.seconds[ends] - ways.seconds[ends])
                    crossed = streets.points[ways.gates(ends, center, reach)]
                    gates.append(away_m(crossed, visit.near[side] + center))
            density = crossings.query_ball_point(grid + center, NEAR_M, return_length=True)
            shape = (2 * len(seen), len(grid))
            yield Chase(
                number, cab.home - center, seen, grid,
                np.reshape(detours, shape), np.reshape(gates, shape), np.asarray(density, np.float64),
            )  # fmt: skip


def linear_guesses(found: Sequence[Chase]) -> Points:
    """Return guesses by a linear rule of the mean points and directions, learned from the other cabs."""
    cab, homes = np.array([chase.cab for chase in found]), np.array([chase.home for chase in found])
    features = np.array([chase.features for chase in found]).transpose(0, 2, 1)
    guesses = np.empty_like(homes)
    for one in np.unique(cab):
        known, truth = features[cab != one].reshape(-1, 4), homes[cab != one].reshape(-1)
        squares = known.T @ known
        weights = np.linalg.solve(squares + 1e-3 * np.trace(squares) * np.eye(4), known.T @ truth)
        guesses[cab == one] = features[cab == one] @ weights
    return guesses


def road_guess(chase: Chase, *, gate_m: float, detour_s: float, density: float) -> Points:
    """Return the guess by roads: the likelier a home, the better the fastest ways to it fit what was seen.

    Visits of a cab resemble each other, so that n of them count as √n.
    """
    logs = density * np.log(chase.density + 1)
    each = 1 / np.sqrt(max(len(chase.visits), 1))
    logs = logs - each * (np.minimum(chase.gates, 1500.0) / gate_m).sum(axis=0)
    detours = np.minimum(np.nan_to_num(chase.detours, posinf=600.0), 600.0)
    return best_point(chase.grid, logs - each * (detours / detour_s).sum(axis=0))


def real_cabs(roads: str, archive: str, *, quick: bool) -> None:
    """Print how far off homes of real cabs are."""
    graph = RoadGraph.load(roads)
    cabs = list(resting_cabs(graph, archive))[:: 3 if quick else 1]
    found = list(chases(graph, cabs, draws=1 if quick else CENTERS))
    told = [chase.told() for chase in found]
    cab = np.array([chase.cab for chase in found])
    homes = np.array([chase.home for chase in found])

    def off(guesses: Sequence[Points] | Points) -> str:
        errors = away_m(np.array(guesses), homes)
        return mean_and_error(np.bincount(cab, errors) / np.bincount(cab))

    rows = [("the fence's centre", off(np.zeros_like(homes)), "")]
    rows.append(("linear, learned from the other cabs", off(linear_guesses(found)), off(linear_guesses(told))))
    for name, gate_m, detour_s in (
        ("roads: where fastest ways cross the fence", 300.0, np.inf),
        ("roads: detours", np.inf, 300.0),
        ("roads: both", 300.0, 300.0),
        ("roads: both, narrower", 150.0, 100.0),
    ):
        for more, density in (("", 0.0), (", density of junctions", 1.0)):
            options = {"gate_m": gate_m, "detour_s": detour_s, "density": density}
            both = [[road_guess(chase, **options) for chase in some] for some in (found, told)]
            rows.append((name + more, off(both[0]), off(both[1])))
    long = [len(chase.visits) for chase in found]
    show(
        f"San Francisco, m: {len(cabs)} cabs, {len(found)} fences, ρ = 1 km, {np.median(long):.0f} long visits each",
        ("attacker", "all long visits", "told which went home"),
        rows,
    )


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    paths = [argument for argument in arguments if not argument.startswith("--")]
    if len(paths) != 2:
        print("Usage: python -m benchmarks.home_cabs ROADS CABS [--quick]")
        return
    started = time.perf_counter()
    print(f"python -m benchmarks.home_cabs {' '.join(arguments)}\ngeoblanket {geoblanket.__version__}; {machine()}")
    real_cabs(*paths, quick="--quick" in arguments)
    print(took(started))


if __name__ == "__main__":
    main(sys.argv[1:])
