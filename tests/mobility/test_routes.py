from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from geoblanket.mobility.routes import RouteFinder
from tests.mobility.simulator import town

TOWN = town(14, 14, seed=3)
PAIRS = np.random.default_rng(0).integers(0, TOWN.node_count, (2, 400)).astype(np.int64)
TABLE, FULL_AT_ONCE = 1 << 20, 125_000
"""Bytes: room for all 16 pages of 24 KiB, and for five of them."""


@pytest.fixture(scope="module")
def lengths() -> np.ndarray:
    network = nx.DiGraph()
    network.add_weighted_edges_from(
        zip(TOWN.sources.tolist(), TOWN.targets.tolist(), TOWN.length_m.tolist(), strict=True)
    )
    every = dict(nx.all_pairs_dijkstra_path_length(network))
    return np.array([every[source][target] for source, target in PAIRS.T.tolist()])


@pytest.mark.parametrize("limit_m", [700.0, 3000.0, 8000.0])
@pytest.mark.parametrize("table_bytes", [TABLE, FULL_AT_ONCE, 0])
def test_lengths_are_those_of_networkx_up_to_the_limit(limit_m: float, table_bytes: int, lengths: np.ndarray) -> None:
    routes = RouteFinder(TOWN, table_bytes=table_bytes)
    for reach_m in (limit_m / 2, limit_m):  # the table grows
        found = routes.lengths(*PAIRS, limit_m=np.full(400, reach_m))
        np.testing.assert_allclose(found[lengths <= reach_m], lengths[lengths <= reach_m], rtol=1e-6)
        longer = found[lengths > reach_m]
        np.testing.assert_allclose(longer[np.isfinite(longer)], lengths[lengths > reach_m][np.isfinite(longer)])


def test_arrays_are_broadcast() -> None:
    nodes = np.arange(6)
    routes = RouteFinder(TOWN)
    table = routes.lengths(nodes[:, None], nodes, limit_m=np.array(1e9))
    each = routes.lengths(np.repeat(nodes, 6), np.tile(nodes, 6), limit_m=np.full(36, 1e9))
    np.testing.assert_array_equal(table, each.reshape(6, 6))


@pytest.mark.parametrize("table_bytes", [TABLE, FULL_AT_ONCE, 0])
@pytest.mark.parametrize("limit_m", [8000.0, 1e9])
def test_paths_lead_from_source_to_target_and_have_the_right_length(
    table_bytes: int, limit_m: float, lengths: np.ndarray
) -> None:
    offsets, edges = RouteFinder(TOWN, table_bytes=table_bytes).paths(*PAIRS, limit_m=np.full(400, limit_m))
    for number, (source, target) in enumerate(PAIRS.T):
        path = edges[offsets[number] : offsets[number + 1]]
        assert TOWN.length_m[path].sum() == pytest.approx(lengths[number])
        nodes = [source, *TOWN.targets[path]]
        np.testing.assert_array_equal(nodes[:-1], TOWN.sources[path])
        assert nodes[-1] == target


def test_no_pairs() -> None:
    none = np.empty(0, np.int64)
    offsets, edges = RouteFinder(TOWN).paths(none, none, limit_m=np.empty(0))
    assert offsets.tolist() == [0]
    assert len(edges) == 0
