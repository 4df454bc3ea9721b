"""Plots: on the axes given or on new ones, with the credit of the roads, and with a word about a missing extra."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from geoblanket import (
    MotionModel,
    Places,
    RoadGraph,
    Tracker,
    choose_places,
    make_lattice,
    partition_zones,
)
from geoblanket.errors import MismatchError, MissingExtraError
from tests.mechanism.bundles import load_zones, save_located, save_plain
from tests.roads.graphs import grid_graph


@pytest.fixture(autouse=True)
def _no_figure_stays() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def graph() -> RoadGraph:
    return replace(grid_graph(6, 6), credit="© somebody")


@pytest.fixture(scope="module")
def places(graph: RoadGraph) -> Places:
    return choose_places(graph, spacing_m=150)


@pytest.fixture
def ax() -> Axes:
    return Figure().add_subplot()


def texts(axes: Axes) -> set[str]:
    return {text.get_text() for text in axes.texts}


def test_a_plot_without_axes_is_on_a_new_figure_that_notebooks_show(graph: RoadGraph) -> None:
    axes = graph.plot()
    assert plt.gcf() is axes.figure
    assert "© somebody" in texts(axes)


def test_a_plot_on_axes_makes_no_figure(graph: RoadGraph, places: Places, ax: Axes) -> None:
    assert places.plot(ax=ax, roads=graph) is ax
    assert plt.get_fignums() == []
    assert np.shape(ax.collections[-1].get_offsets()) == (len(places), 2)
    assert "© somebody" in texts(ax)


def test_a_map_without_roads_has_no_credit_but_a_scale(places: Places, ax: Axes) -> None:
    places.plot(ax=ax)
    assert texts(ax) == {"50 m"}


def test_zones_are_coloured_on_their_roads(graph: RoadGraph, places: Places, ax: Axes) -> None:
    zones = partition_zones(graph, places, max_places=len(places) // 2)
    assert zones.plot(graph, places, ax=ax) is ax
    colours = next(bands for bands in ax.collections if bands.get_zorder() == 0).get_edgecolor()
    assert len(np.unique(np.asarray(colours), axis=0)) == len(zones)
    assert "© somebody" in texts(ax)


def test_bundles_with_zones_show_them_and_one_of_them(tmp_path: Path, ax: Axes) -> None:
    bundle = load_zones(save_located(tmp_path / "a.bundle"))
    assert bundle.plot(ax=ax).get_title(loc="left") == "1 zone, 5 places, ε = 4 per km"
    assert "night" in bundle.plot(ax=Figure().add_subplot(), regime="night").get_title()
    plain = load_zones(save_plain(tmp_path / "b.bundle"))
    with pytest.raises(MismatchError, match="no coordinates"):
        plain.plot(ax=ax)
    assert "<img" not in plain._repr_html_()


def test_a_tracker_shows_where_a_vehicle_is(graph: RoadGraph, places: Places, tmp_path: Path, ax: Axes) -> None:
    bundle = make_lattice(graph, tmp_path / "a.bundle", epsilon=20, cell_m=20)
    model = MotionModel.by_distance(places.coordinates_e7, interval_s=30)
    tracker = Tracker(bundle, model)
    tracker.see("taxi", 57_000_000, bundle.lattice.cells // 2)
    assert tracker.plot("taxi", ax=ax, roads=graph) is ax
    (circle,) = (patch for patch in ax.patches if isinstance(patch, Ellipse))
    estimate = tracker.estimate("taxi")
    assert circle.get_center() == pytest.approx((estimate.lon[0], estimate.lat[0]))
    assert circle.get_height() / 2 == pytest.approx(float(estimate.radius_m[0]) / 111_195, rel=1e-3)


def test_without_matplotlib_the_extra_is_named(graph: RoadGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "matplotlib" or name.startswith("matplotlib.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "geoblanket.roads.picture", raising=False)
    monkeypatch.delitem(sys.modules, "geoblanket._picture", raising=False)
    with pytest.raises(MissingExtraError, match=r"RoadGraph\.plot.*city"):
        graph.plot()
