from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapely import LineString, Point

from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.lab.city.model import make_city
from geoblanket.mobility.map_matcher import MapMatcher, MatchedPoints, MatchOptions
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.importer import import_roads
from tests.mobility.simulator import METRE, START_US, Drives, degrees, drive, town
from tests.towns import simulate

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
TOWN = town()
MATCHER = MapMatcher(TOWN)


class PlainMatcher:
    """The same model in plain Python: Shapely's distances, networkx's routes, one candidate pair at a time."""

    def __init__(self, graph: RoadGraph, options: MatchOptions) -> None:
        self.graph, self.options = graph, options
        self.lines = MapMatcher(graph, options).index.lines
        self.shapes = [
            LineString(np.column_stack(self.lines.project(*graph.edge_line(edge)))) for edge in range(graph.edge_count)
        ]
        network = nx.DiGraph()
        network.add_weighted_edges_from(
            zip(graph.sources.tolist(), graph.targets.tolist(), graph.length_m.tolist(), strict=True)
        )
        self.lengths = dict(nx.all_pairs_dijkstra_path_length(network))

    def candidates(self, lat: float, lon: float) -> dict[int, tuple[float, float]]:
        """Edges within the radius, each with its offset and cost."""
        point = Point(*(float(value) for value in self.lines.project(lat, lon)))
        found = {}
        for edge, shape in enumerate(self.shapes):
            if (distance := shape.distance(point)) <= self.options.radius_m:
                offset = shape.project(point) / shape.length * float(self.graph.length_m[edge])
                found[edge] = (offset, 0.5 * (distance / self.options.sigma_m) ** 2)
        return found

    def move(self, a: int, offset_a: float, b: int, offset_b: float, straight: float, seconds: float) -> float:
        length = self.graph.length_m
        start, end = int(self.graph.targets[a]), int(self.graph.sources[b])
        route = float(length[a]) - offset_a + self.lengths[start][end] + offset_b
        if a == b and offset_b >= offset_a - self.options.jitter_m:
            route = offset_b - offset_a
        back = offset_a + float(length[b]) - offset_b
        if a != b and self.graph.targets[b] == self.graph.sources[a] and back <= self.options.jitter_m:
            route = -back - 60.0
        limit = min(self.options.max_speed_m_s * seconds, 2 * straight + 500) + 2 * self.options.radius_m
        return abs(route - straight) / self.options.beta_m if route <= limit else np.inf

    def costs(self, drives: Drives) -> tuple[list[dict[int, tuple[float, float]]], list[dict[tuple[int, int], float]]]:
        near = [self.candidates(lat, lon) for lat, lon in zip(drives.lat, drives.lon, strict=True)]
        moves: list[dict[tuple[int, int], float]] = [{}]
        for i in range(1, len(near)):
            straight = float(haversine_m(drives.lat[i - 1], drives.lon[i - 1], drives.lat[i], drives.lon[i]))
            seconds = (drives.time_us[i] - drives.time_us[i - 1]) / 1e6
            moves.append(
                {
                    (a, b): self.move(a, near[i - 1][a][0], b, near[i][b][0], straight, seconds)
                    for a in near[i - 1]
                    for b in near[i]
                }
            )
        return near, moves


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("interval_s", [8.0, 40.0])
def test_finds_a_path_as_probable_as_plain_viterbi_does(seed: int, interval_s: float) -> None:
    options = MatchOptions(candidates=60)
    graph = town(7, 7, seed=seed)
    drives = drive(graph, 1, interval_s=interval_s, noise_m=12.0, seed=seed)
    near, moves = PlainMatcher(graph, options).costs(drives)
    best = {edge: cost for edge, (_, cost) in near[0].items()}
    for candidates, move in zip(near[1:], moves[1:], strict=True):
        best = {
            b: min(best[a] + cost for (a, to), cost in move.items() if to == b) + emission
            for b, (_, emission) in candidates.items()
        }
    matched = MapMatcher(graph, options).match(*drives.points())
    path = matched.edge.tolist()
    cost = sum(near[i][edge][1] for i, edge in enumerate(path))
    cost += sum(moves[i][path[i - 1], path[i]] for i in range(1, len(path)))
    assert cost == pytest.approx(min(best.values()), rel=1e-4)
    assert matched.begins.sum() == 1


def test_noisy_points_are_matched_to_the_right_edges() -> None:
    drives = drive(TOWN, 60, noise_m=6.0, seed=1)
    matched = MATCHER.match(*drives.points())
    assert matched.matched.all()
    assert (matched.edge == drives.edge).mean() >= 0.95
    driven = [edge in drives.routes[trip] for edge, trip in zip(matched.edge, drives.trip, strict=True)]
    assert np.mean(driven) >= 0.98


def test_the_synthetic_citys_noisy_points_are_matched_to_the_right_edges() -> None:
    city = make_city("small")
    points = next(iter(simulate(city, trips=300, seed=1)))
    matched = MapMatcher(city.graph).match(points.trip, points.time_s * 1_000_000, points.lat, points.lon)
    # At the ends of trips vehicles stand at a junction, of which only one of their two edges is known.
    known = (points.edge_in >= 0) & (points.edge_out >= 0) & ~points.jump
    assert matched.matched[known].mean() > 0.999
    right = (matched.edge == points.edge_in) | (matched.edge == points.edge_out)
    assert right[known].mean() >= 0.95
    assert matched.matched[points.jump].mean() < 0.3


@pytest.mark.parametrize("interval_s", [1.0, 5.0, 15.0])
def test_exact_points_give_back_the_true_positions(interval_s: float) -> None:
    drives = drive(TOWN, 20, interval_s=interval_s, seed=2)
    matched = MATCHER.match(*drives.points())
    # At a crossing, the position is the end of one edge and the start of the next.
    clear = (drives.offset_m > 2) & (drives.offset_m < TOWN.length_m[drives.edge] - 2)
    assert (matched.edge == drives.edge)[clear].all()
    right = matched.edge == drives.edge
    np.testing.assert_allclose(matched.offset_m[right], drives.offset_m[right], atol=0.1)
    assert (matched.distance_m < 0.1).all()


def test_the_route_connects_consecutive_points_and_has_the_stated_length() -> None:
    drives = drive(TOWN, 10, interval_s=20.0, noise_m=6.0, seed=3)
    matched = MATCHER.match(*drives.points())
    after = np.flatnonzero(matched.matched & ~matched.begins)
    pieces = 400
    for point in after.tolist():
        part = np.linspace(0.0, 1.0, pieces + 1) * matched.route_m[point]
        where = np.full(pieces + 1, point)
        edge, offset = MATCHER.positions_on_route(matched, where - 1, where, travelled_m=part)
        lat, lon = MATCHER.index.lines.locate(edge, offset)
        steps = haversine_m(lat[:-1], lon[:-1], lat[1:], lon[1:])
        assert steps.max() <= matched.route_m[point] / pieces * 1.02 + 0.01
        assert steps.sum() == pytest.approx(matched.route_m[point], rel=0.01, abs=0.1)
        changes = np.flatnonzero(np.diff(edge))
        np.testing.assert_array_equal(TOWN.targets[edge[changes]], TOWN.sources[edge[changes + 1]])
        if matched.route_m[point] > 0:
            end = MATCHER.index.lines.locate(matched.edge[[point]], matched.offset_m[[point]])
            assert haversine_m(lat[-1], lon[-1], *end)[0] < 0.1


@given(shift_s=st.integers(-(10**9), 10**9), order=st.permutations(range(6)))
@settings(max_examples=20, deadline=None)
def test_neither_the_date_nor_the_other_trips_matter(shift_s: int, order: list[int]) -> None:
    drives = drive(TOWN, 6, noise_m=6.0, seed=4)
    whole = MATCHER.match(*drives.points())
    moved = np.concatenate([np.flatnonzero(drives.trip == trip) for trip in order])
    trip, time_us, lat, lon = drives.take(moved).points()
    again = MATCHER.match(trip, time_us + shift_s * 1_000_000, lat, lon)
    assert_same(again, whole, moved)


def assert_same(got: MatchedPoints, expected: MatchedPoints, which: np.ndarray) -> None:
    np.testing.assert_array_equal(got.edge, expected.edge[which])
    np.testing.assert_array_equal(got.offset_m, expected.offset_m[which])
    np.testing.assert_array_equal(got.begins, expected.begins[which])
    np.testing.assert_allclose(got.route_m, expected.route_m[which])


def test_a_point_off_the_roads_is_left_out_and_bridged() -> None:
    drives = drive(TOWN, 1, interval_s=5.0, seed=5)
    lat = drives.lat.copy()
    lat[4] += 3000 * METRE
    matched = MATCHER.match(drives.trip, drives.time_us, lat, drives.lon)
    assert matched.matched.tolist() == [point != 4 for point in range(len(lat))]
    assert np.isnan(matched.route_m[4])
    assert np.isnan(matched.distance_m[4])
    assert matched.begins.tolist() == [point == 0 for point in range(len(lat))]


@pytest.mark.parametrize("jump", [0, 4, -1])
def test_a_jump_to_another_road_is_left_out_and_bridged(jump: int) -> None:
    drives = drive(TOWN, 1, interval_s=5.0, seed=5)
    jump %= len(drives.trip)
    lat, lon = drives.lat.copy(), drives.lon.copy()
    far = np.argmax(haversine_m(TOWN.lat, TOWN.lon, lat[jump], lon[jump]))
    lat[jump], lon[jump] = TOWN.lat[far], TOWN.lon[far]
    matched = MATCHER.match(drives.trip, drives.time_us, lat, lon)
    assert matched.matched.tolist() == [point != jump for point in range(len(lat))]
    assert matched.begins.sum() == 1


def test_a_long_gap_and_a_missing_route_end_a_stretch() -> None:
    drives = drive(TOWN, 1, interval_s=5.0, seed=6)
    late = drives.time_us + np.where(np.arange(len(drives.trip)) >= 7, 181_000_000, 0)
    begins = MATCHER.match(drives.trip, late, drives.lat, drives.lon).begins
    assert np.flatnonzero(begins).tolist() == [0, 7]
    there, back = drive(TOWN, 1, interval_s=5.0, seed=7), drives
    lat, lon = np.concatenate([back.lat, there.lat]), np.concatenate([back.lon, there.lon])
    assert haversine_m(back.lat[-1], back.lon[-1], there.lat[0], there.lon[0]) > 500  # in 5 s
    time_us = START_US + 5_000_000 * np.arange(len(lat))
    begins = MATCHER.match(np.zeros(len(lat), np.int64), time_us, lat, lon).begins
    assert np.flatnonzero(begins).tolist() == [0, len(back.trip)]


def test_a_parked_car_does_not_circle() -> None:
    rng = np.random.default_rng(8)
    node = np.argmin(haversine_m(TOWN.lat, TOWN.lon, *degrees(1100.0, 1100.0)))
    noise = rng.normal(0.0, 8 * METRE, (2, 300))
    time_us = START_US + 10_000_000 * np.arange(300)
    matched = MATCHER.match(np.zeros(300, np.int64), time_us, TOWN.lat[node] + noise[0], TOWN.lon[node] + noise[1])
    assert matched.matched.all()
    assert matched.route_m.max() < 60


def test_identical_points_and_equal_times() -> None:
    drives = drive(TOWN, 1, seed=9)
    lat, lon = np.full(20, drives.lat[3]), np.full(20, drives.lon[3])
    matched = MATCHER.match(np.zeros(20, np.int64), np.full(20, START_US), lat, lon)
    assert matched.matched.all()
    assert matched.begins.sum() == 1
    assert matched.route_m.max() == 0.0


def test_one_point_and_none() -> None:
    drives = drive(TOWN, 1, seed=10)
    one = MATCHER.match(*drives.take(slice(1)).points())
    assert one.matched.tolist() == one.begins.tolist() == [True]
    assert one.route_m.tolist() == [0.0]
    none = MATCHER.match(*drives.take(slice(0)).points())
    assert len(none.edge) == 0


def test_points_far_outside_the_map_are_unmatched() -> None:
    drives = drive(TOWN, 2, seed=11)
    matched = MATCHER.match(drives.trip, drives.time_us, drives.lat + 10.0, drives.lon)
    assert not matched.matched.any()
    assert not matched.begins.any()
    assert np.isnan(matched.offset_m).all()


def test_roads_without_geometry_are_straight_lines() -> None:
    straight = replace(
        TOWN, shape_offsets=np.zeros(TOWN.edge_count + 1, np.int64), shape_lat=np.empty(0), shape_lon=np.empty(0)
    )
    drives = drive(straight, 20, noise_m=4.0, seed=12)
    matched = MapMatcher(straight).match(*drives.points())
    assert (matched.edge == drives.edge).mean() >= 0.95


@pytest.mark.parametrize(
    ("name", "value"),
    [("radius_m", 0.0), ("sigma_m", np.nan), ("beta_m", -1), ("max_gap_s", np.inf), ("candidates", 101)],
)
def test_options_must_be_positive(name: str, value: float) -> None:
    with pytest.raises(ParameterError, match=name):
        replace(MatchOptions(), **{name: value})  # type: ignore[arg-type]  # one option of several types


@pytest.mark.skipif(not (DATA / "porto").is_dir(), reason="needs the real road data of Porto in ../shared/data")
def test_drives_through_porto_are_found() -> None:
    graph, _ = import_roads([DATA / "porto" / "porto_drive_2022-11.osm.pbf"])
    drives = drive(graph, 8, noise_m=7.0, seed=13)
    matched = MapMatcher(graph).match(*drives.points())
    driven = [edge in drives.routes[trip] for edge, trip in zip(matched.edge, drives.trip, strict=True)]
    assert np.mean(driven) >= 0.96
