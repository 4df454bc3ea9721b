from __future__ import annotations

import numpy as np
import pytest

from geoblanket.lab.city.fleet import _Driver
from geoblanket.lab.city.model import City
from geoblanket.lab.city.moves import BANDS, ORDERS, speed_range_m_s
from geoblanket.lab.city.plan import DISTRICTS


def test_chances_and_weights_are_distributions(medium_city: City) -> None:
    moves = medium_city.moves
    np.testing.assert_allclose(moves.chances[:, moves.usable, -1], 1.0, atol=1e-6)
    assert not moves.chances[:, ~moves.usable].any()
    rows = moves.order > 0
    slot = np.arange(moves.weight.shape[1])
    stays = slot < moves.stay_slots[:, None]
    np.testing.assert_allclose((moves.weight * stays).sum(1)[rows], 1.0, atol=1e-5)
    leaves = moves.slots > moves.stay_slots
    np.testing.assert_allclose((moves.weight * ~stays).sum(1)[leaves], 1.0, atol=1e-5)
    assert (moves.stay_chance[rows & ~leaves] == 1.0).all()
    assert ((moves.route >= 0) == (slot < moves.slots[:, None])).all()


def test_vehicles_never_get_stuck(small_city: City, medium_city: City) -> None:
    for city in (small_city, medium_city):
        moves = city.moves
        assert moves.usable[moves.routes.target].all()
        assert moves.usable.mean() > 0.85


def test_slots_that_stay_are_those_in_the_same_district(medium_city: City) -> None:
    moves, district = medium_city.moves, medium_city.district
    rows = np.flatnonzero(moves.order > 1)
    target = moves.routes.target[moves.route[rows]]
    same = district[target] == district[rows // 3][:, None]
    stays = np.arange(moves.weight.shape[1]) < moves.stay_slots[rows][:, None]
    there = moves.route[rows] >= 0
    assert (same[there] == stays[there]).all()


@pytest.mark.parametrize(("district", "band"), ORDERS)
def test_the_next_node_depends_on_exactly_the_last_nodes_of_its_order(
    medium_city: City, district: str, band: str
) -> None:
    """With the same random numbers, a lag matters if and only if the order says so."""
    driver, order = _Driver(medium_city, 0), ORDERS[district, band]
    rng = np.random.default_rng(1)
    usable = np.flatnonzero(medium_city.moves.usable & (medium_city.district == DISTRICTS.index(district)))
    node = rng.choice(usable, 20_000)
    draw = rng.random((3, len(node)), np.float32)
    hour = np.full(len(node), 8)
    past = _directions(rng, len(node))
    step = driver.step(node, hour, past, draw)
    chosen = step.band == BANDS.index(band)
    for lag in (1, 2):
        other = past.copy()
        other[:, lag - 1] = _directions(rng, len(node))[:, 0]
        changed = driver.step(node, hour, other, draw)
        assert (changed.band == step.band).all(), "the band never depends on the past"
        leaves = medium_city.district[step.node] != medium_city.district[node]
        assert (changed.node[leaves] == step.node[leaves]).all(), "nor does crossing a border"
        assert (changed.order == step.order).all()
        share = (changed.node != step.node)[chosen & ~leaves].mean()
        assert share > 0.2 if lag < order else share == 0.0


def _directions(rng: np.random.Generator, count: int) -> np.ndarray:
    angle = rng.uniform(0, 2 * np.pi, (count, 2))
    return np.stack([np.cos(angle), np.sin(angle)], 2).astype(np.float32)


def test_the_hour_changes_bands_but_not_where_a_band_leads(medium_city: City) -> None:
    driver = _Driver(medium_city, 0)
    rng = np.random.default_rng(2)
    node = rng.choice(np.flatnonzero(medium_city.moves.usable), 20_000)
    draw, past = rng.random((3, len(node)), np.float32), _directions(rng, len(node))
    night, rush = (driver.step(node, np.full(len(node), hour), past, draw) for hour in (3, 8))
    same_band = night.band == rush.band
    assert 0.02 < 1 - same_band.mean() < 0.3
    assert (night.node == rush.node)[same_band].all()
    assert (rush.band == 0).mean() > 1.2 * (night.band == 0).mean()


def test_orders_differ_between_districts_and_speeds() -> None:
    for district in DISTRICTS:
        unusual, usual = sorted(order for (name, _), order in ORDERS.items() if name == district)
        assert unusual == 1 < usual, "groups of mean speeds mix bands, and must not mix two kinds of memory"
    assert {ORDERS[district, "medium"] for district in DISTRICTS} == {1, 2}
    assert {ORDERS[district, "fast"] for district in DISTRICTS[1:]} == {1, 3}
    assert set(ORDERS.values()) == {1, 2, 3}
    assert speed_range_m_s("stopped") == (0.0, 0.0)
    assert speed_range_m_s("medium") == pytest.approx((20 * 0.44704, 30 * 0.44704))
