"""A lattice over roads, a box or a point, in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from geoblanket import RoadGraph, load_bundle, make_lattice
from geoblanket.errors import ParameterError
from tests.roads.graphs import grid_graph

COARSE: dict[str, Any] = {"epsilon": 20, "cell_m": 20}


def test_what_is_returned_is_what_was_written(tmp_path: Path) -> None:
    made = make_lattice((41.15, -8.61, 1), tmp_path / "a.bundle", interval_s=60, **COARSE)
    read = load_bundle(tmp_path / "a.bundle")
    assert (made.sha256, repr(made.header), made.signed) == (read.sha256, repr(read.header), False)
    assert repr(made) == repr(read)
    assert (made.lattice.epsilon, made.lattice.hold_m) == (20, 50)


def test_roads_their_file_and_their_box_are_the_same_area(tmp_path: Path) -> None:
    graph: RoadGraph = grid_graph(5, 5)
    graph.save(tmp_path / "a.roads")
    box = (graph.lat.min(), graph.lon.min(), graph.lat.max(), graph.lon.max())
    areas: dict[str, RoadGraph | Path | tuple[float, ...]] = {"graph": graph, "file": tmp_path / "a.roads", "box": box}
    made = {make_lattice(area, tmp_path / f"{name}.bundle", **COARSE).sha256 for name, area in areas.items()}
    assert len(made) == 1


def test_a_report_can_be_held_over_several_cells(tmp_path: Path) -> None:
    lattice = make_lattice((41.15, -8.61, 1), tmp_path / "a.bundle", hold_m=90, **COARSE).lattice
    assert lattice.hold_m == 90 > 4 * lattice.cell_m
    metre = 1000 // lattice.spec.plane.unit_mm
    assert lattice.holds(500, 500, 500 + 90 * metre, 500)
    assert not lattice.holds(500, 500, 500 + 90 * metre + 1, 500)


def test_a_bundle_that_replaces_another_has_the_next_version(tmp_path: Path) -> None:
    graph: RoadGraph = grid_graph(5, 5)
    versions = [make_lattice(graph, tmp_path / "a.bundle", **COARSE).header.version for _ in range(2)]
    assert versions == [1, 2]


@pytest.mark.parametrize(
    ("area", "options", "problem"),
    [
        ((41.0, -8.6), {}, "Got 2 numbers"),
        ((41.0, -8.6, 15), {"hold_m": -1}, "hold_m must be 0 to 100 m, the mean error of a report at ε = 20"),
        ((41.0, -8.6, 15), {"hold_m": float("nan")}, "hold_m must be 0 to 100 m"),
        ((41.0, -8.6, 15), {"hold_m": 101}, "Got 101 m instead"),
        ((41.0, -8.6, 15), {"hold_m": 0.1}, "at least the 1 m to which this lattice rounds coordinates"),
        ((41.0, -8.6, 15), {"epsilon": 0.02, "cell_m": None}, "at least the 70 m to which this lattice rounds"),
        ((41.0, -8.6, 15), {"epsilon": 0}, "ε must be"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    tmp_path: Path, area: tuple[float, ...], options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ParameterError, match=problem):
        make_lattice(area, tmp_path / "a.bundle", **COARSE | options)
    assert not list(tmp_path.iterdir())
