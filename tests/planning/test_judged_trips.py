from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from geoblanket.errors import InputError
from geoblanket.planning.on_the_road import JudgedTrips, Judges
from tests.planning.worlds import walking
from tests.roads.graphs import grid_graph


def test_short_trips_are_left_out_and_long_ones_cut() -> None:
    lengths = np.array([4, 5, 300, 1])
    place = np.arange(lengths.sum(), dtype=np.int32)
    starts = np.cumsum(lengths) - lengths
    trips = JudgedTrips.of(place, np.isin(place, starts))
    assert trips.lengths.tolist() == [5, 240]
    assert trips.place.tolist() == [*range(4, 9), *range(9, 249)]
    assert trips.chosen(np.array([1])).place.tolist() == list(range(9, 249))
    assert trips.some(5, seed=0) is trips
    assert len(trips.some(1, seed=0)) == 1


def test_trips_sampled_from_a_model_follow_its_moves(tmp_path: Path) -> None:
    model = walking(side=4).model
    model.save(tmp_path / "city.motion")
    judges = Judges.of_model(tmp_path / "city.motion", trips=2000)
    place = judges.trips.place.reshape(2000, -1)
    seen = np.zeros((16, 16))
    np.add.at(seen, (place[:, :-1].ravel(), place[:, 1:].ravel()), 1)
    assert np.abs(seen / seen.sum(axis=1, keepdims=True) - model.moves.toarray()).max() < 0.02
    assert np.abs(np.bincount(place[:, 0], minlength=16) / 2000 - model.start).max() < 0.03
    assert "sampled from the motion model" in judges.words


def test_trips_driven_over_roads_are_not_those_that_the_model_knows(tmp_path: Path) -> None:
    grid_graph(12, 12).save(tmp_path / "a.roads")
    judges = Judges.of_roads(tmp_path / "a.roads", spacing_m=200, order=1)
    assert judges.trips.place.max() < judges.model.place_count
    assert len(judges.trips) > 50
    assert "driven over the roads" in judges.words


def test_roads_that_are_too_short_are_refused(tmp_path: Path) -> None:
    grid_graph(2, 2).save(tmp_path / "a.roads")
    with pytest.raises(InputError):
        Judges.of_roads(tmp_path / "a.roads", spacing_m=50)
