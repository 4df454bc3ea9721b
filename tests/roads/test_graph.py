from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoblanket._arrayfile import write_arrays
from geoblanket.errors import InputError
from geoblanket.roads.graph import Edges, Nodes, RoadGraph
from tests.roads.samples import edges_of

ARRAYS = (
    "node_ids", "lat", "lon", "offsets", "targets", "length_m", "speed_m_s", "road_class", "shape_offsets", "shape_lat",
    "shape_lon",
)  # fmt: skip


def bent_triangle() -> RoadGraph:
    """Three nodes; 0→1 has two inner points, 1→2 one, 2→0 and 1→0 none; given out of order."""
    return RoadGraph.from_edges(
        Nodes(ids=[10, 20, 30], lat=[41.0, 41.1, 41.2], lon=[-8.0, -8.1, -8.0]),
        Edges(
            sources=[2, 1, 0, 1],
            targets=[0, 2, 1, 0],
            length_m=[300.0, 200.0, 100.0, 90.0],
            speed_m_s=[10.0, 20.0, 30.0, 5.0],
            road_class=[6, 1, 2, 3],
        ),
        length_model="given",
        shapes=([0, 0, 1, 3, 3], [41.15, 41.03, 41.06], [-8.05, -8.03, -8.06]),
    )


def test_edges_are_sorted_and_keep_their_shape() -> None:
    graph = bent_triangle()
    assert edges_of(graph) == [(10, 20), (20, 10), (20, 30), (30, 10)]
    assert graph.offsets.tolist() == [0, 1, 3, 4]
    assert graph.time_s.tolist() == pytest.approx([100 / 30, 18, 10, 30])
    assert graph.edge_line(0)[0].tolist() == [41.0, 41.03, 41.06, 41.1]
    assert graph.edge_line(2)[1].tolist() == [-8.1, -8.05, -8.0]
    assert graph.is_one_way.tolist() == [False, False, True, True]


def test_both_directions_are_one_road() -> None:
    graph = RoadGraph.from_edges(
        Nodes(ids=[1, 2], lat=[41.0, 41.1], lon=[-8.0, -8.0]),
        Edges(
            sources=[0, 1, 0, 1],
            targets=[1, 0, 1, 0],
            length_m=[100.005, 100.005 + 1e-9, 150.0, 200.0],
            speed_m_s=np.full(4, 10.0),
            road_class=np.full(4, 6),
        ),
        length_model="given",
    )
    assert graph.length_m[graph.one_of_each_road()].round(2).tolist() == pytest.approx([100.0, 150, 200], abs=0.02)


def test_lines_are_those_of_each_edge() -> None:
    graph = bent_triangle()
    offsets, lat, lon = graph.lines()
    for edge in range(graph.edge_count):
        one_lat, one_lon = graph.edge_line(edge)
        np.testing.assert_array_equal(lat[offsets[edge] : offsets[edge + 1]], one_lat)
        np.testing.assert_array_equal(lon[offsets[edge] : offsets[edge + 1]], one_lon)


def test_subgraphs() -> None:
    graph = bent_triangle()
    nodes = graph.keep_nodes(np.array([True, True, False]))
    assert edges_of(nodes) == [(10, 20), (20, 10)]
    assert nodes.shape_lat.tolist() == [41.03, 41.06]
    edges = graph.keep_edges(np.array([False, True, True, False]))
    assert edges_of(edges) == [(20, 10), (20, 30)]
    assert edges.node_count == 3
    assert edges.shape_lat.tolist() == [41.15]


def test_saving_and_loading(tmp_path: Path) -> None:
    graph = bent_triangle()
    graph.save(tmp_path / "a.roads")
    again = RoadGraph.load(tmp_path / "a.roads")
    assert again.identity == graph.identity
    assert edges_of(again) == edges_of(graph)
    again.save(tmp_path / "b.roads")
    assert (tmp_path / "a.roads").read_bytes() == (tmp_path / "b.roads").read_bytes()


def test_an_interrupted_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, path = bent_triangle(), tmp_path / "a.roads"
    graph.save(path)
    before = path.read_bytes()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("geoblanket._files.sync_to_disk", interrupt)
    with pytest.raises(KeyboardInterrupt):
        graph.keep_edges(np.array([True, True, True, False])).save(path)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("a.roads", before)]


def test_identity_sees_every_part() -> None:
    graph = bent_triangle()
    changed: dict[str, Any] = {"length_model": "sphere"}
    for name in ARRAYS:
        values = getattr(graph, name).copy()
        values[-1] += 1
        changed[name] = values
    identities = {replace(graph, **{name: value}).identity for name, value in changed.items()}
    assert len(identities | {graph.identity}) == len(changed) + 1


def test_a_credit_is_kept_and_leaves_the_identity_as_it_was(tmp_path: Path) -> None:
    plain = bent_triangle()
    credited = replace(plain, credit="© somebody")
    assert credited.identity == plain.identity
    credited.save(tmp_path / "credited.roads")
    assert RoadGraph.load(tmp_path / "credited.roads").credit == "© somebody"
    assert credited.keep_nodes(np.array([True, True, False])).credit == "© somebody"
    # As all files were before there were credits.
    plain.save(tmp_path / "plain.roads")
    assert b"credit" not in (tmp_path / "plain.roads").read_bytes()
    assert RoadGraph.load(tmp_path / "plain.roads").credit == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays | {"targets": arrays["targets"].astype(np.int64)},
        lambda arrays: {name: array for name, array in arrays.items() if name != "lat"},
    ],
)
def test_a_file_of_another_version_is_refused(tmp_path: Path, change: Callable[[Any], dict[str, Any]]) -> None:
    graph = bent_triangle()
    arrays = {name: getattr(graph, name) for name in ARRAYS}
    path = tmp_path / "other.roads"
    write_arrays(path, magic=b"GBROADS1", fields={"length_model": "given"}, arrays=change(arrays))
    with pytest.raises(InputError, match="not a road graph of this version"):
        RoadGraph.load(path)
    write_arrays(path, magic=b"GBROADS1", fields={"length_model": "given"}, arrays=arrays)
    assert RoadGraph.load(path).identity == graph.identity
