"""The picture of zones: colours, and that it is drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import LineCollection

from geoblanket._picture import save_figure
from geoblanket.roads.picture import colour_numbers, zones_figure
from geoblanket.roads.places import choose_places
from geoblanket.roads.zones import partition_zones
from tests.roads.graphs import grid_graph


@given(st.integers(1, 20), st.data())
def test_neighbours_have_different_colours(count: int, data: st.DataObject) -> None:
    zone = st.integers(0, count - 1)
    drawn = data.draw(st.lists(st.tuples(zone, zone)))
    pairs = np.array([pair for pair in drawn if pair[0] != pair[1]], np.int32).reshape(-1, 2)
    numbers = colour_numbers(count, pairs)
    assert numbers.min() >= 0
    assert (numbers[pairs[:, 0]] != numbers[pairs[:, 1]]).all()


def test_more_neighbours_than_colours_get_new_ones() -> None:
    everyone = np.argwhere(np.triu(np.ones((15, 15)), 1)).astype(np.int32)
    assert len(set(colour_numbers(15, everyone).tolist())) == 15


def test_each_place_lies_in_its_zones_colour() -> None:
    graph = grid_graph(9, 12)
    places = choose_places(graph)
    zones = partition_zones(graph, places, max_places=30)
    axes = zones_figure(graph, places, zones).axes[0]
    bands = next(drawn for drawn in axes.collections if drawn.get_zorder() == 0)
    assert isinstance(bands, LineCollection)
    of_zone: list[set[tuple[float, ...]]] = [set() for _ in range(len(zones))]
    for line, colour in zip(bands.get_segments(), np.asarray(bands.get_colors(), np.float64), strict=True):
        place, _ = places.nearest(line[:, 1].mean(), line[:, 0].mean())
        of_zone[zones.zone[place]].add(tuple(colour))
    assert all(len(found) == 1 for found in of_zone)
    for one, other in zones.neighbours.tolist():
        assert of_zone[one] != of_zone[other]


def test_the_picture_is_the_same_each_time(tmp_path: Path) -> None:
    graph = grid_graph(5, 5)
    places = choose_places(graph)
    zones = partition_zones(graph, places, max_places=9)
    for name in ("one.png", "two.png"):
        save_figure(zones_figure(graph, places, zones, caption="4 zones"), tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
