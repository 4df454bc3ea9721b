from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from geoblanket.mobility.map_matcher import RouteFinder
from tests.mobility.simulator import town

TOWN = town(7, 7, seed=3)
PAIRS = np.random.default_rng(0).integers(0, TOWN.node_count, (2, 400)).astype(np.int64)
FAR = np.full(400, 1e9)


@pytest.fixture(scope="module")
def lengths() -> np.ndarray:
    network = nx.DiGraph()
    network.add_weighted_edges_from(
        zip(TOWN.sources.tolist(), TOWN.targets.tolist(), TOWN.length_m.tolist(), strict=True)
    )
    every = dict(nx.all_pairs_dijkstra_path_length(network))
    return np.array([every[source][target] for source, target in PAIRS.T.tolist()])


def test_near_routes_are_networkx_routes_up_to_the_bound(lengths: np.ndarray) -> None:
    routes = RouteFinder(TOWN, near_m=700.0)
    for half in (slice(0, 200), slice(0, 400)):  # the table grows
        near = routes.near(*PAIRS[:, half])
        np.testing.assert_allclose(near, np.where(lengths <= 700.0, lengths, np.inf)[half], rtol=1e-6)


def test_far_routes_are_networkx_routes(lengths: np.ndarray) -> None:
    far = RouteFinder(TOWN, near_m=100.0).far(*PAIRS, limit_m=FAR)
    np.testing.assert_allclose(far, lengths, rtol=1e-6)


@pytest.mark.parametrize("near_m", [1.0, 700.0, 1e6])
def test_paths_lead_from_source_to_target_and_have_the_right_length(near_m: float, lengths: np.ndarray) -> None:
    offsets, edges = RouteFinder(TOWN, near_m=near_m).paths(*PAIRS, limit_m=FAR)
    for number, (source, target) in enumerate(PAIRS.T):
        path = edges[offsets[number] : offsets[number + 1]]
        assert TOWN.length_m[path].sum() == pytest.approx(lengths[number])
        nodes = [source, *TOWN.targets[path]]
        np.testing.assert_array_equal(nodes[:-1], TOWN.sources[path])
        assert nodes[-1] == target


def test_no_pairs() -> None:
    none = np.empty(0, np.int64)
    offsets, edges = RouteFinder(TOWN, near_m=100.0).paths(none, none, limit_m=np.empty(0))
    assert offsets.tolist() == [0]
    assert len(edges) == 0
