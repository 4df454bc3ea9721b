from __future__ import annotations

import numpy as np
import pytest
from shapely import LineString, Point

from geoblanket.errors import InputError
from geoblanket.mobility.edge_index import EdgeIndex, EdgeLines
from geoblanket.roads.graph import Edges, Nodes, RoadGraph
from tests.mobility.simulator import degrees, town

TOWN = town(6, 6)


def line_of(lines: EdgeLines, graph: RoadGraph, edge: int) -> LineString:
    return LineString(np.column_stack(lines.project(*graph.edge_line(edge))))


def test_finds_the_edges_that_shapely_finds() -> None:
    rng = np.random.default_rng(3)
    lat, lon = degrees(*rng.uniform(-100, 1100, (2, 200)))
    index = EdgeIndex(TOWN, radius_m=60.0)
    found = index.nearest(lat, lon, count=40)
    shapes = [line_of(index.lines, TOWN, edge) for edge in range(TOWN.edge_count)]
    for row, point in enumerate(np.column_stack(index.lines.project(lat, lon))):
        distance = np.array([shape.distance(Point(point)) for shape in shapes])
        expected = np.flatnonzero(distance <= 60.0)
        got = found.edge[row][found.edge[row] >= 0]
        assert set(got.tolist()) == set(expected.tolist())
        np.testing.assert_allclose(found.distance_m[row, : len(got)], np.sort(distance[expected]), atol=1e-6)
        for edge, offset in zip(got, found.offset_m[row], strict=False):
            along = shapes[edge].project(Point(point)) / shapes[edge].length * TOWN.length_m[edge]
            # Two positions on a bent line can be equally near.
            at = Point(
                np.column_stack(index.lines.project(*index.lines.locate(np.array([edge]), np.array([offset]))))[0]
            )
            assert offset == pytest.approx(along, abs=1e-3) or at.distance(Point(point)) == pytest.approx(
                distance[edge], abs=1e-6
            )


def test_fewer_candidates_are_the_nearest_ones() -> None:
    rng = np.random.default_rng(4)
    points = degrees(*rng.uniform(0, 1000, (2, 100)))
    index = EdgeIndex(TOWN, radius_m=150.0)
    many, few = index.nearest(*points, count=30), index.nearest(*points, count=4)
    np.testing.assert_array_equal(few.edge, many.edge[:, :4])
    np.testing.assert_array_equal(few.distance_m, many.distance_m[:, :4])


def test_far_away_and_impossible_points_find_nothing() -> None:
    index = EdgeIndex(TOWN, radius_m=50.0)
    found = index.nearest(np.array([0.0, np.nan, np.inf, 89.0]), np.array([0.0, 0.0, -np.inf, 179.0]), count=3)
    assert (found.edge == -1).all()
    assert np.isinf(found.distance_m).all()


def test_no_points_and_no_edges() -> None:
    assert EdgeIndex(TOWN, radius_m=50.0).nearest(np.empty(0), np.empty(0), count=3).edge.shape == (0, 3)
    with pytest.raises(InputError, match="no edges"):
        EdgeIndex(TOWN.keep_nodes(np.arange(TOWN.node_count) == 0), radius_m=50.0)


def test_a_loop_without_extent_is_never_found() -> None:
    graph = RoadGraph.from_edges(
        Nodes(ids=[1, 2], lat=[41.0, 41.001], lon=[-8.6, -8.6]),
        Edges(
            sources=[0, 0, 1],
            targets=[0, 1, 0],
            length_m=[300.0, 111.0, 111.0],
            speed_m_s=[10.0] * 3,
            road_class=[6] * 3,
        ),
        length_model="given",
    )
    found = EdgeIndex(graph, radius_m=50.0).nearest(np.array([41.0]), np.array([-8.6]), count=5)
    ends = {(int(graph.sources[edge]), int(graph.targets[edge])) for edge in found.edge[0] if edge >= 0}
    assert ends == {(0, 1), (1, 0)}


def test_positions_along_an_edge_are_where_shapely_puts_them() -> None:
    lines = EdgeLines.of_graph(TOWN, longest_piece_m=30.0)
    rng = np.random.default_rng(5)
    edge = rng.integers(0, TOWN.edge_count, 300).astype(np.int32)
    part = rng.choice([0.0, 1.0, *rng.random(6)], 300)
    x, y = lines.project(*lines.locate(edge, part * TOWN.length_m[edge]))
    for number in range(300):
        at = line_of(lines, TOWN, edge[number]).interpolate(part[number], normalized=True)
        assert np.hypot(x[number] - at.x, y[number] - at.y) < 1e-3
