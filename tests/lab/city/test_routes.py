from __future__ import annotations

import numpy as np

from geoblanket._geodesy import haversine_m, local_metres
from geoblanket.lab.city.model import City
from geoblanket.lab.city.moves import BIN_EDGES_M, TICK_S, WAYPOINTS_S
from geoblanket.lab.city.streets import CENTRE_LAT, CENTRE_LON


def test_displacements_lie_in_their_bins(medium_city: City) -> None:
    graph, routes = medium_city.graph, medium_city.moves.routes
    straight = haversine_m(
        graph.lat[routes.source], graph.lon[routes.source], graph.lat[routes.target], graph.lon[routes.target]
    )
    assert (straight > BIN_EDGES_M[routes.bin]).all()
    assert (straight < BIN_EDGES_M[routes.bin + 1]).all()
    np.testing.assert_allclose(np.hypot(*routes.displacement.T), straight, rtol=1e-5)
    # Bin borders are multiples of 5 mph.
    np.testing.assert_allclose(BIN_EDGES_M / TICK_S / 2.2352, np.round(BIN_EDGES_M / TICK_S / 2.2352), atol=1e-9)


def test_roads_lead_from_source_to_target_at_a_possible_speed(medium_city: City) -> None:
    graph, routes = medium_city.graph, medium_city.moves.routes
    for alternative in (0, 1):
        edges = routes.edges[:, alternative]
        assert (graph.sources[edges[:, 0]] == routes.source).all()
        assert (graph.targets[edges[:, -1]] == routes.target).all()
    assert (routes.detour * np.hypot(*routes.displacement.T) / TICK_S).max() < 40.0
    assert (routes.edges[:, 0] != routes.edges[:, 1]).any(1).mean() > 0.05, "some drivers take another road"


def test_way_points_lie_on_their_edges(small_city: City) -> None:
    graph, routes = small_city.graph, small_city.moves.routes
    rng = np.random.default_rng(0)
    for route in rng.choice(len(routes.source), 200, replace=False):
        for at in range(len(WAYPOINTS_S)):
            lat, lon = graph.edge_line(routes.edges[route, 1, 1 + at])
            line = np.stack(local_metres(lat, lon, origin_lat=CENTRE_LAT, origin_lon=CENTRE_LON), 1)
            assert _distance(routes.waypoints[route, 1, at].astype(float), line) < 0.05


def _distance(point: np.ndarray, line: np.ndarray) -> float:
    along = np.diff(line, axis=0)
    share = np.clip(((point - line[:-1]) * along).sum(1) / np.square(along).sum(1), 0.0, 1.0)
    return float(np.hypot(*(line[:-1] + share[:, None] * along - point).T).min())
