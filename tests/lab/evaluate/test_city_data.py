from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from geoblanket.errors import MismatchError
from geoblanket.lab.evaluate.city_data import CityData
from geoblanket.lab.evaluate.tracking import find_runs
from tests.lab.evaluate.towns import Town


@pytest.fixture(scope="module")
def city(town: Town) -> CityData:
    return CityData(town.files, destinations=50, max_tasks=200)


def test_zones_share_out_the_steps(city: CityData) -> None:
    zones = city.zones(12)
    numbers = city.chosen_zones(zones, 0)
    parts = list(city.zone_data(zones, numbers, "population"))
    assert sum(len(part.steps) for part in parts) == len(city.steps)
    assert sum(part.share for part in parts) <= 1 + 1e-9
    assert sum(0 if part.vehicle_tasks is None else len(part.vehicle_tasks) for part in parts) == 50
    for part in parts:
        assert np.isin(part.counts.histories[:, 0], part.members).all()
        assert np.isin(part.steps.histories[:, 0], part.members).all()
        assert (part.steps.depth > 0).all()
        assert part.predicted is None
        assert part.found is not None
    assert len({part.key for part in parts}) == len(parts)


def test_zones_are_drawn_by_their_steps_and_the_same_each_time(town: Town, city: CityData) -> None:
    zones = city.zones(12)
    chosen = city.chosen_zones(zones, 2)
    assert len(chosen) == 2
    assert chosen == CityData(town.files).chosen_zones(zones, 2)
    steps = np.bincount(zones.zone[city.steps.histories[:, 0]], minlength=len(zones.ids))
    often = np.zeros(len(zones.ids))
    for seed in range(400):
        city._seed = seed
        often[city.chosen_zones(zones, 1)] += 1
    city._seed = 0
    assert np.allclose(often / 400, steps / steps.sum(), atol=0.1)


def test_vehicles_that_are_held_out_are_not_trained_with(city: CityData) -> None:
    assert 0.1 < len(city.steps) / (len(city.steps) + city.counts.count.sum()) < 0.35


def test_case_two_is_another_loss(city: CityData) -> None:
    zones = city.zones(12)
    one, two = (next(city.zone_data(zones, [0], case)) for case in ("population", "case II"))
    assert (one.loss.unit, two.loss.unit) == ("km", "error rate")
    assert two.vehicle_tasks is None


def test_walks_on_other_roads_are_refused(town: Town, tmp_path_factory: pytest.TempPathFactory) -> None:
    from geoblanket.lab.city.model import make_city

    other = tmp_path_factory.mktemp("other") / "other.roads"
    make_city("small", seed=5).graph.save(other)
    with pytest.raises(MismatchError, match="other roads"):
        CityData(replace(town.files, roads=other))


def test_of_many_held_out_steps_stretches_of_walks_are_drawn(town: Town) -> None:
    whole = CityData(town.files)
    part = CityData(town.files, max_steps=len(whole.steps) // 2)
    assert part.held_out_steps == len(whole.steps) == whole.held_out_steps
    assert len(whole.steps) // 4 < len(part.steps) <= len(whole.steps) // 2
    assert set(part.steps.vehicle) <= set(whole.steps.vehicle)
    assert len(find_runs(part.steps)) < len(find_runs(whole.steps))  # whole stretches, not single steps
    assert np.array_equal(part.steps.histories, CityData(town.files, max_steps=len(part.steps)).steps.histories)
