"""Small road graphs for the tests of this folder, drawn by Hypothesis or laid out as a grid."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from geoblanket.roads.graph import ROAD_CLASSES, Edges, Nodes, RoadGraph


@st.composite
def road_graphs(draw: st.DrawFn, *, max_nodes: int = 12, max_edges: int = 40) -> RoadGraph:
    """Directed multigraphs with parallel edges, self-loops, zero lengths and parts without a way between them."""
    nodes = draw(st.integers(1, max_nodes))
    node = st.integers(0, nodes - 1)
    # Few different lengths, so that ties and parallel edges of the same length happen.
    edge = st.tuples(node, node, st.sampled_from([0.0, 0.5, 1.0, 2.5, 7.0]), st.sampled_from([1.0, 2.0, 10.0]))
    edges = draw(st.lists(edge, max_size=max_edges))
    position = st.tuples(st.integers(-50, 50), st.integers(-50, 50))
    where = np.array(draw(st.lists(position, min_size=nodes, max_size=nodes)), float).reshape(nodes, 2)
    columns = np.array(edges, float).reshape(len(edges), 4).T
    return RoadGraph.from_edges(
        Nodes(
            ids=draw(st.permutations(range(100, 100 + nodes))),
            lat=41.0 + where[:, 0] * 1e-3,
            lon=-8.6 + where[:, 1] * 1e-3,
        ),
        Edges(
            sources=columns[0],
            targets=columns[1],
            length_m=columns[2],
            speed_m_s=columns[3],
            road_class=draw(st.lists(st.integers(0, len(ROAD_CLASSES) - 1), min_size=len(edges), max_size=len(edges))),
        ),
        length_model="given",
    )


def to_multigraph(graph: RoadGraph) -> nx.MultiDiGraph:
    """The same graph for networkx, edge by edge."""
    result = nx.MultiDiGraph()
    result.add_nodes_from(range(graph.node_count))
    for edge in range(graph.edge_count):
        result.add_edge(
            int(graph.sources[edge]),
            int(graph.targets[edge]),
            length=float(graph.length_m[edge]),
            time=float(graph.length_m[edge] / graph.speed_m_s[edge]),
        )
    return result


def grid_graph(rows: int, columns: int, *, step_deg: float = 1e-3, lat: float = 41.0, lon: float = -8.6) -> RoadGraph:
    """A city of square blocks, every street both ways; node `row * columns + column`, 100 m from the next."""
    index = np.arange(rows * columns).reshape(rows, columns)
    one = np.concatenate([index[:, :-1].ravel(), index[:-1].ravel()])
    other = np.concatenate([index[:, 1:].ravel(), index[1:].ravel()])
    row, column = np.divmod(np.arange(rows * columns), columns)
    edges = 2 * len(one)
    return RoadGraph.from_edges(
        Nodes(
            ids=1000 + np.arange(rows * columns),
            lat=lat + row * step_deg,
            lon=(lon + column * step_deg + 180) % 360 - 180,
        ),
        Edges(
            sources=np.concatenate([one, other]),
            targets=np.concatenate([other, one]),
            length_m=np.full(edges, 1e5 * step_deg),
            speed_m_s=np.full(edges, 10.0),
            road_class=np.full(edges, ROAD_CLASSES.index("residential")),
        ),
        length_model="given",
    )


def permute_nodes(graph: RoadGraph, order: np.ndarray) -> RoadGraph:
    """The same roads with the nodes listed in another order."""
    new_index = np.argsort(order)
    return RoadGraph.from_edges(
        Nodes(ids=graph.node_ids[order], lat=graph.lat[order], lon=graph.lon[order]),
        Edges(
            sources=new_index[graph.sources],
            targets=new_index[graph.targets],
            length_m=graph.length_m,
            speed_m_s=graph.speed_m_s,
            road_class=graph.road_class,
        ),
        length_model=graph.length_model,
        shapes=(graph.shape_offsets, graph.shape_lat, graph.shape_lon),
    )
