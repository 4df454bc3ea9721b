from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.image import imread

from geoblanket._picture import save_figure
from geoblanket.errors import ParameterError
from geoblanket.roads.importer import import_roads
from geoblanket.roads.picture import map_figure
from tests.roads.samples import osm_xml


@pytest.fixture
def figure(tmp_path: Path) -> Figure:
    path = tmp_path / "some.osm"
    path.write_text(osm_xml([([1, 2, 3, 4], {"highway": "primary"}), ([2, 5, 6], {})]))
    return map_figure(import_roads([path])[0], caption="by nobody")[0]


def test_each_road_is_drawn_once_and_large_ones_on_top(figure: Figure) -> None:
    axes = figure.axes[0]
    small, large = (artist for artist in axes.collections if isinstance(artist, LineCollection))
    assert [len(small.get_segments()), len(large.get_segments())] == [1, 2]
    assert np.max(large.get_linewidth()) > np.max(small.get_linewidth())
    assert {text.get_text() for text in axes.texts} == {"by nobody · © OpenStreetMap contributors", "100 m"}


def test_a_metre_is_as_long_northwards_as_eastwards(figure: Figure) -> None:
    assert figure.axes[0].get_aspect() == pytest.approx(1 / np.cos(np.radians(41.1515)), rel=1e-4)


def test_pictures_are_written_wholly_and_always_the_same(figure: Figure, tmp_path: Path) -> None:
    for ending in ("png", "svg"):
        first, second = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
        save_figure(figure, first)
        save_figure(figure, second)
        assert first.read_bytes() == second.read_bytes()
    pixels = imread(tmp_path / "a.png")
    assert len(np.unique(pixels.reshape(-1, pixels.shape[-1]), axis=0)) > 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.svg", "b.png", "b.svg", "some.osm"]


def test_other_endings_are_refused(figure: Figure, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="must end in"):
        save_figure(figure, tmp_path / "a.docx")
