"""Places: the choice, the nearest one against brute force, and the snapping radius."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket._geodesy import EARTH_RADIUS_M, haversine_m
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.roads.graph import ROAD_CLASSES, Edges, Nodes, RoadGraph
from geoblanket.roads.places import Places, choose_places
from tests.roads.graphs import grid_graph, permute_nodes, road_graphs

BLOCK_M = EARTH_RADIUS_M * math.radians(1e-3)
"""Height of one block of `grid_graph`, metres."""


def places_at(lat: list[float], lon: list[float]) -> Places:
    graph = RoadGraph.from_edges(
        Nodes(ids=np.arange(len(lat)), lat=lat, lon=lon),
        Edges(sources=[], targets=[], length_m=[], speed_m_s=[], road_class=[]),
        length_model="given",
    )
    return choose_places(graph)


coordinates = st.tuples(st.floats(-90, 90), st.floats(-180, 180))


@given(st.lists(coordinates, min_size=1, max_size=20), st.lists(coordinates, min_size=1, max_size=20))
def test_the_nearest_place_is_the_one_brute_force_finds(
    places: list[tuple[float, float]], points: list[tuple[float, float]]
) -> None:
    (lat, lon), (point_lat, point_lon) = (np.array(pairs).T for pairs in (places, points))
    found, distance = places_at(lat.tolist(), lon.tolist()).nearest(point_lat, point_lon)
    truth = haversine_m(point_lat[:, None], point_lon[:, None], lat, lon)
    # The Haversine formula itself is only good to decimetres for points on opposite sides of the Earth.
    np.testing.assert_allclose(distance, truth.min(axis=1), rtol=1e-12, atol=0.5)
    np.testing.assert_allclose(truth[np.arange(len(points)), found], truth.min(axis=1), rtol=1e-12, atol=0.5)


def test_many_points_in_a_city_match_brute_force() -> None:
    rng = np.random.default_rng(5)
    graph = grid_graph(7, 9)
    places = choose_places(graph)
    lat, lon = rng.uniform(40.99, 41.02, 70_000), rng.uniform(-8.61, -8.59, 70_000)
    found, distance = places.nearest(lat, lon)
    truth = haversine_m(lat[:, None], lon[:, None], graph.lat, graph.lon)
    np.testing.assert_array_equal(found, truth.argmin(axis=1))
    np.testing.assert_allclose(distance, truth.min(axis=1), atol=1e-6)
    assert found.dtype == np.int32


@given(st.permutations(range(4)), st.floats(-1e-10, 1e-10))
def test_equally_near_places_give_the_first(order: list[int], noise_deg: float) -> None:
    corners = np.array([(0.0, 0.0), (0.0, 0.002), (0.002, 0.0), (0.002, 0.002)])[order]
    # Near the equator the corners of a small square are equally far from its centre, to far less than a micrometre.
    places = places_at(corners[:, 0].tolist(), corners[:, 1].tolist())
    middle_lat = 0.001 + noise_deg * 1e-3
    found, _ = places.nearest([middle_lat], [0.001])
    distance = haversine_m(middle_lat, 0.001, corners[:, 0], corners[:, 1])
    assert found[0] == np.flatnonzero(distance <= distance.min() + 1e-6)[0]


def test_two_places_at_one_spot_give_the_first() -> None:
    places = places_at([41.0, 41.0, 41.0], [-8.6, -8.5, -8.6])
    found, distance = places.nearest(41.0001, -8.6)
    assert found.shape == ()
    assert int(found) == 0
    assert float(distance) == pytest.approx(haversine_m(41.0001, -8.6, 41.0, -8.6), abs=1e-6)


def test_the_date_line_is_no_border() -> None:
    places = places_at([0.0, 0.0], [179.99, 0.0])
    found, distance = places.nearest([0.0, 0.0, 0.0], [-179.99, 180.0, -180.0])
    assert found.tolist() == [0, 0, 0]
    degree = EARTH_RADIUS_M * math.radians(1)
    np.testing.assert_allclose(distance, [0.02 * degree, 0.01 * degree, 0.01 * degree])


@pytest.mark.parametrize(
    ("lat", "lon"), [(math.nan, 0.0), (0.0, math.inf), (91.23456, 0.0), (0.0, -181.23456), (1e308, 0.0)]
)
def test_a_point_that_is_not_on_earth_is_refused_without_echo(lat: float, lon: float) -> None:
    with pytest.raises(InputError, match="1 of 3 points are not on Earth, the first at position 1") as caught:
        places_at([0.0], [0.0]).nearest([0.0, lat, 0.0], [0.0, lon, 0.0])
    assert "23456" not in str(caught.value)
    assert "nan" not in str(caught.value)


def test_latitudes_without_longitudes_are_refused() -> None:
    with pytest.raises(ParameterError, match="one shape"):
        places_at([0.0], [0.0]).nearest([0.0, 1.0], [0.0])


def test_no_points_have_no_places() -> None:
    found, distance = places_at([0.0], [0.0]).nearest([], [])
    assert found.shape == distance.shape == (0,)


def test_without_spacing_every_node_is_a_place() -> None:
    graph = grid_graph(3, 4)
    places = choose_places(graph)
    assert places.nodes.tolist() == list(range(12))
    assert places.nearest(graph.lat, graph.lon)[0].tolist() == list(range(12))


@given(road_graphs(max_nodes=30), st.floats(1, 8000))
def test_thinned_places_keep_their_distance_and_cover_every_node(graph: RoadGraph, spacing_m: float) -> None:
    places = choose_places(graph, spacing_m=spacing_m)
    apart = haversine_m(places.lat[:, None], places.lon[:, None], places.lat, places.lon)
    np.fill_diagonal(apart, math.inf)
    assert apart.min() >= spacing_m - 1e-5
    assert places.nearest(graph.lat, graph.lon)[1].max() < spacing_m


@given(road_graphs(max_nodes=30), st.floats(1, 8000), st.randoms(use_true_random=False))
def test_the_choice_does_not_depend_on_the_order_of_the_nodes(
    graph: RoadGraph, spacing_m: float, random: Random
) -> None:
    order = np.array(random.sample(range(graph.node_count), graph.node_count))
    other = permute_nodes(graph, order)
    chosen = graph.node_ids[choose_places(graph, spacing_m=spacing_m).nodes]
    assert set(chosen.tolist()) == set(other.node_ids[choose_places(other, spacing_m=spacing_m).nodes].tolist())


def test_a_spacing_of_exactly_one_block_keeps_the_grid() -> None:
    graph = grid_graph(6, 1)
    assert len(choose_places(graph, spacing_m=BLOCK_M)) == 6
    assert len(choose_places(graph, spacing_m=BLOCK_M * 1.001)) == 3


def test_places_lie_on_important_roads() -> None:
    # Three nodes 111 m apart; the last two are on a primary road, the last also on a second street.
    graph = RoadGraph.from_edges(
        Nodes(ids=[1, 2, 3], lat=[0, 0.001, 0.002], lon=[0, 0, 0]),
        Edges(
            sources=[0, 1, 2],
            targets=[2, 2, 0],
            length_m=[1, 1, 1],
            speed_m_s=[1, 1, 1],
            road_class=[ROAD_CLASSES.index(name) for name in ("residential", "primary_link", "residential")],
        ),
        length_model="given",
    )
    assert choose_places(graph, spacing_m=500).nodes.tolist() == [2]


def test_the_identity_tells_choices_apart() -> None:
    graph = grid_graph(6, 6)
    identities = {
        choose_places(graph).identity,
        choose_places(graph, spacing_m=1).identity,
        choose_places(graph, spacing_m=300).identity,
        choose_places(grid_graph(6, 5)).identity,
    }
    assert len(identities) == 4
    assert choose_places(grid_graph(6, 6), spacing_m=300).identity in identities


@pytest.mark.parametrize("spacing_m", [-1.0, math.nan, math.inf])
def test_a_wrong_spacing_is_refused(spacing_m: float) -> None:
    with pytest.raises(ParameterError, match="spacing"):
        choose_places(grid_graph(2, 2), spacing_m=spacing_m)


def test_a_graph_without_nodes_has_no_places() -> None:
    with pytest.raises(InputError, match="no nodes"):
        places_at([], [])


def test_the_snapping_radius_is_found_in_the_middle_of_a_road() -> None:
    graph = grid_graph(2, 1)
    radius = choose_places(graph).snapping_radius_m(graph)
    assert BLOCK_M / 2 <= radius <= BLOCK_M / 2 + 0.2


@given(road_graphs(), st.sampled_from([0.0, 2000.0]))
def test_every_point_of_every_road_lies_within_the_snapping_radius(graph: RoadGraph, spacing_m: float) -> None:
    places = choose_places(graph, spacing_m=spacing_m)
    radius = places.snapping_radius_m(graph)
    offsets, lat, lon = graph.lines()
    share = np.linspace(0, 1, 101)
    ends = np.delete(np.arange(len(lat)), offsets[1:] - 1)
    along_lat = lat[ends, None] * (1 - share) + lat[ends + 1, None] * share
    along_lon = lon[ends, None] * (1 - share) + lon[ends + 1, None] * share
    every_lat, every_lon = np.append(along_lat, graph.lat), np.append(along_lon, graph.lon)
    truth = places.nearest(every_lat, every_lon)[1].max()
    longest = max([0.0, *haversine_m(lat[ends], lon[ends], lat[ends + 1], lon[ends + 1])])
    # The straight line in degrees bends away from the great circle by centimetres over 14 km.
    assert truth <= radius + 0.5
    assert radius <= truth + longest / 200 + 0.6


def test_the_snapping_radius_asks_for_the_right_roads() -> None:
    with pytest.raises(MismatchError, match="another road graph"):
        choose_places(grid_graph(2, 2)).snapping_radius_m(grid_graph(2, 3))
