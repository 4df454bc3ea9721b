from __future__ import annotations

import numpy as np
import pytest

from geoblanket._arrays import Bools, Floats
from geoblanket._geodesy import haversine_m
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.evaluate.measures.mobility_model import MobilityModel
from tests.build.worlds import no_steps
from tests.evaluate.walking import COUNTS, TOWN, TRAINING, ZONE, random_channel, rows_of

ROWS = rows_of("none")
APART = haversine_m(TOWN.lat[ZONE][:, None], TOWN.lon[ZONE][:, None], TOWN.lat[ZONE], TOWN.lon[ZONE]) / 1000


def dense(model: MobilityModel) -> Floats:
    """The transition matrix."""
    own = model.own if isinstance(model.own, np.ndarray) else model.own.toarray()
    table: Floats = own + (model.leave @ model.back).toarray()
    return table


def witten_bell(chosen: Bools, fallback: Floats) -> Floats:
    """Where steps lead: the places of the zone, and elsewhere."""
    seen = np.array([np.count_nonzero(TRAINING.next_place[chosen] == place) for place in ZONE], np.float64)
    seen = np.append(seen, np.count_nonzero(chosen) - seen.sum())
    kinds = np.count_nonzero(seen)
    return fallback if not kinds else (seen + kinds * fallback) / (seen.sum() + kinds)


def expected(place: int, before: int | None) -> Floats:
    """Where a vehicle goes, worked out step by step."""
    near = np.exp(-APART[ZONE.tolist().index(place)] / 0.3)
    here = TRAINING.histories[:, 0] == place
    by_place = witten_bell(here, np.append(near / near.sum(), 0.0))
    return by_place if before is None else witten_bell(here & (TRAINING.histories[:, 1] == before), by_place)


def test_without_memory_states_are_places() -> None:
    model = MobilityModel.from_counts(ROWS, COUNTS, memory=0)
    assert model.states.ravel().tolist() == ZONE.tolist()
    assert model.memory == 0
    for row, place in zip(dense(model), ZONE, strict=True):
        assert row == pytest.approx(expected(int(place), None)[:-1], rel=1e-4)  # coordinates are rounded to 1e-7°


def test_with_memory_states_are_pairs_and_one_leads_to_those_that_go_on() -> None:
    model = MobilityModel.from_counts(ROWS, COUNTS)
    table = dense(model)
    pairs = [tuple(state) for state in model.states.tolist()]
    assert len(set(pairs)) == len(pairs)
    assert {(int(here), int(before)) for here, before in TRAINING.histories[:, :2] if here in ZONE} <= set(pairs)
    for row, (place, before) in zip(table, pairs, strict=True):
        later = np.zeros(len(pairs))
        for next_place, chance in zip(ZONE.tolist(), expected(place, before), strict=False):
            later[pairs.index((next_place, place))] = chance
        assert row == pytest.approx(later, rel=1e-4)


def test_pairs_that_hardly_ever_are_have_no_state() -> None:
    rows = rows_of("none", zone=np.arange(20, dtype=np.int32))
    states = {tuple(state) for state in MobilityModel.from_counts(rows, COUNTS).states.tolist()}
    chance = dense(MobilityModel.from_counts(rows, COUNTS, memory=0))
    likely = {(int(later), int(before)) for before, later in np.argwhere(chance > 1e-4)}
    seen = set(zip(TRAINING.next_place.tolist(), TRAINING.histories[:, 0].tolist(), strict=True))
    assert states == likely | seen
    assert len(states) < 20 * 20


def test_a_vehicle_leaves_as_often_as_it_did() -> None:
    model = MobilityModel.from_counts(ROWS, COUNTS)
    stays = float(model.start @ dense(model).sum(axis=1))
    here = np.isin(TRAINING.histories[:, 0], ZONE)
    assert stays == pytest.approx(np.isin(TRAINING.next_place[here], ZONE).mean(), abs=0.02)


def test_states_are_as_probable_as_they_were_seen() -> None:
    model = MobilityModel.from_counts(ROWS, COUNTS)
    here = TRAINING.histories[np.isin(TRAINING.histories[:, 0], ZONE)]
    assert model.start.sum() == pytest.approx(1.0)
    assert (model.start > 0).all()
    for state, chance in zip(model.states, model.start, strict=True):
        assert chance == pytest.approx((here[:, :2] == state).all(axis=1).mean(), abs=1e-4)


@pytest.mark.parametrize("memory", [0, 1])
def test_steps_forward_and_backward_are_those_of_the_matrix(memory: int) -> None:
    model = MobilityModel.from_counts(ROWS, COUNTS, memory=memory)
    values = np.random.default_rng(0).random((len(model), 3))
    assert model.forward(values) == pytest.approx(dense(model).T @ values)
    assert model.backward(values) == pytest.approx(dense(model) @ values)


@pytest.mark.parametrize("context", ["none", "markov:1", "markov:2"])
@pytest.mark.parametrize("memory", [0, 1])
def test_a_state_uses_the_rows_of_the_histories_seen_in_it(context: str, memory: int) -> None:
    rows = rows_of(context)
    model = MobilityModel.from_counts(ROWS, COUNTS, memory=memory)
    q = random_channel(len(rows), 6, seed=0)
    here = TRAINING.histories[np.isin(TRAINING.histories[:, 0], ZONE)]
    for state, emission in zip(model.states, model.mixture(rows) @ q, strict=True):
        mine = here[(here[:, : memory + 1] == state).all(axis=1)]
        used = rows.row_of(mine if len(mine) else state[None])
        assert emission == pytest.approx(q[used].mean(axis=0))


def test_without_any_walk_vehicles_go_to_near_places() -> None:
    model = MobilityModel.from_counts(ROWS, no_steps())
    assert dense(model).sum(axis=1) == pytest.approx(np.ones(36))
    assert model.to_places @ model.start == pytest.approx(np.full(6, 1 / 6))
    assert (model.mixture(rows_of("markov:2")).sum(axis=1) == 1).all()


def test_what_does_not_belong_together_is_refused() -> None:
    with pytest.raises(ParameterError, match="memory"):
        MobilityModel.from_counts(ROWS, COUNTS, memory=2)
    with pytest.raises(ParameterError, match="memory"):
        MobilityModel.from_counts(ROWS, no_steps(past=0), memory=1)
    with pytest.raises(MismatchError, match="another zone"):
        MobilityModel.from_counts(ROWS, COUNTS).mixture(rows_of("none", zone=ZONE[:-1]))
