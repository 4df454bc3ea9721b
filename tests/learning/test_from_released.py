"""Models from released reports: expectation–maximisation beside sums over all paths, and on fleets that are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from inspect import unwrap
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoblanket._arrays import Floats, Ints
from geoblanket._training import NOBODY, ReleasedReports
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.learning import from_released, learn_from_released
from geoblanket.learning.estimating import normalised
from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.release.bulk import perturb_walks
from geoblanket.tracking import filtering
from geoblanket.tracking.filtering import NO_REPORT, BeliefFilter
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.released import ReleasedRows
from tests.learning.fleets import drawn_fleet, off
from tests.release.worlds import GRAPH, save_certain
from tests.serve.service.city_lattices import save_city
from tests.tracking.chains import TableObservations, make_model, second_order
from tests.tracking.lattice_reports import SLOT, cells_near, near_model, save_cells
from tests.tracking.worlds import MIDNIGHT, pair_model, save_timed_walks, wander


def first_order() -> MotionModel:
    moves = {(0, 0): 0.6, (0, 1): 0.4, (1, 0): 0.2, (1, 1): 0.3, (1, 2): 0.5, (2, 1): 0.9, (2, 2): 0.1}
    return make_model([(0,), (1,), (2,)], moves, [0.5, 0.2, 0.3])


CHAINS = {1: first_order(), 2: second_order()}
TABLES = {order: np.random.default_rng(order).dirichlet(np.ones(4), size=len(model)) for order, model in CHAINS.items()}
Trip = tuple[list[int], list[int]]
"""Slots, ascending, and the outputs in them."""


@pytest.fixture
def no_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a prediction leaves for a vehicle being anywhere is no part of the model that is learned."""
    monkeypatch.setattr(filtering, "_ANYWHERE", 0.0)


@dataclass(frozen=True)
class Reported:
    """Reports that need no file: one vehicle for each trip. Stands for `ReleasedTable`."""

    trips: Sequence[Trip]
    at_once: int = 25

    @property
    def rows(self) -> int:
        return sum(len(slots) for slots, _ in self.trips)

    @property
    def vehicles(self) -> int:
        return len(self.trips)

    @property
    def statement(self) -> ReleasedReports:
        return ReleasedReports()

    def parts(self, *, outputs: int) -> Iterator[ReleasedRows]:
        """Yield them, those of some vehicles at a time."""
        assert outputs == 4
        for start in range(0, len(self.trips), self.at_once):
            some = self.trips[start : start + self.at_once]
            vehicle = np.repeat(np.arange(len(some)), [len(slots) for slots, _ in some])
            slot, output = (np.concatenate([trip[side] for trip in some]).astype(np.int64) for side in (0, 1))
            yield ReleasedRows(np.arange(len(slot)), vehicle, slot, output, None, None)


def learn_from(trips: Sequence[Trip], start: MotionModel, table: Floats, *, rounds: int) -> list[MotionModel]:
    """`learn_from_released` with a mechanism whose probabilities are given: the start, and the model of each round."""
    models = [start]
    updated = from_released._Prior.updated

    def noted(*given: Any) -> MotionModel:
        models.append(updated(*given))
        return models[-1]

    clock = SimpleNamespace(interval_s=30.0)
    bundle = SimpleNamespace(holds=False, output_kind="place", needed_clock=lambda: clock, sha256="5e", training=NOBODY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(from_released, "ReleasedTable", lambda *_: Reported(trips))
        patch.setattr(from_released, "observations_of", lambda _bundle, _model: TableObservations(table))
        patch.setattr(from_released._Prior, "updated", noted)
        learned = unwrap(learn_from_released)("none", bundle, start, rounds=rounds, workers=1)
    assert (learned.chances == models[-1].chances).all()
    return models


def drawn_trips(model: MotionModel, table: Floats, *, trips: int, seed: int, steps: int = 12) -> list[Trip]:
    """Reports of vehicles that a chain moves, a fifth of them missing."""
    rng = np.random.default_rng(seed)
    dense, found = model.moves.toarray().astype(np.float64), []
    dense /= dense.sum(axis=1, keepdims=True)
    for _ in range(trips):
        state, slots, outputs = int(rng.choice(len(model), p=model.start / model.start.sum())), [], []
        for slot in range(steps):
            state = int(rng.choice(len(model), p=dense[state])) if slot else state
            if not 0 < slot < steps - 1 or rng.random() < 0.8:
                slots.append(slot)
                outputs.append(int(rng.choice(4, p=table[state])))
        found.append((slots, outputs))
    return found


def log_likelihood(model: MotionModel, table: Floats, trips: Sequence[Trip]) -> float:
    """How probable all reports are: the forward algorithm, in matrices."""
    dense, total = model.moves.toarray().astype(np.float64), 0.0
    for slots, outputs in trips:
        state = model.start * table[:, outputs[0]]
        for (before, after), output in zip(pairwise(slots), outputs[1:], strict=True):
            state = (state @ np.linalg.matrix_power(dense, after - before)) * table[:, output]
        total += float(np.log(state.sum()))
    return total


SLOTS = st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=5)
"""Outputs of slots in a row, None where there was no report."""


@settings(max_examples=30)
@given(st.sampled_from([1, 2]), st.lists(SLOTS, min_size=1, max_size=4))
def test_counts_are_those_of_all_paths(order: int, drawn: list[list[int | None]]) -> None:
    """Slots without a report between others count with all that may have happened in them."""
    model, table = CHAINS[order], TABLES[order]
    trips = [
        ([slot for slot, output in enumerate(outputs) if output is not None], [o for o in outputs if o is not None])
        for outputs in drawn
    ]
    trips = [trip for trip in trips if trip[0]] or [([3], [0])]
    moves = from_released._Moves.none(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filtering, "_ANYWHERE", 0.0)
        patch.setattr(from_released, "_COLUMNS_AT_ONCE", 3)
        for rows in Reported(trips, at_once=2).parts(outputs=4):
            parts = from_released._divided(from_released._trips(rows, 30.0))
            for part in from_released._counted(BeliefFilter(model, TableObservations(table)), parts):
                moves.add(part)
    expected, starts = np.zeros((len(model), len(model))), np.zeros(len(model))
    for slots, outputs in trips:
        paths, chances = all_paths(model, table, [slot - slots[0] for slot in slots], outputs)
        np.add.at(starts, paths[:, 0], chances)
        for before, after in pairwise(paths.T):
            np.add.at(expected, (before, after), chances)
    found = np.zeros_like(expected)
    np.add.at(found, (np.repeat(np.arange(len(model)), np.diff(model.offsets)), model.targets), moves.counts)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(moves.starts, starts, atol=1e-4)


def all_paths(model: MotionModel, table: Floats, slots: list[int], outputs: list[int]) -> tuple[Ints, Floats]:
    """All ways through the states, slot by slot from 0 on, and how probable each is after the reports."""
    dense = model.moves.toarray().astype(np.float64)
    paths = np.array(list(product(range(len(model)), repeat=slots[-1] + 1)))
    chances = model.start.astype(np.float64)[paths[:, 0]]
    for before, after in pairwise(paths.T):
        chances = chances * dense[before, after]
    for slot, output in zip(slots, outputs, strict=True):
        chances = chances * table[paths[:, slot], output]
    return paths, chances / chances.sum()


@pytest.mark.usefixtures("no_jumps")
@pytest.mark.parametrize("order", [1, 2])
def test_without_trust_in_the_start_reports_only_become_more_probable(
    order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Baum and Welch's promise."""
    monkeypatch.setattr(from_released, "_TRUST_MOVES", 0.0)
    monkeypatch.setattr(from_released, "_TRUST_STARTS", 0.0)
    model, table = CHAINS[order], TABLES[order]
    trips = drawn_trips(perturbed(model), table, trips=40, seed=1)
    found = [log_likelihood(learned, table, trips) for learned in learn_from(trips, model, table, rounds=10)]
    assert (np.diff(found) > -1e-4).all()
    assert found[-1] > found[0] + 2


@pytest.mark.usefixtures("no_jumps")
def test_with_trust_the_reports_and_the_prior_together_become_more_probable() -> None:
    """At order 1 the start is worth 10 moves from each place and 100 starts: Dirichlet priors, and no other."""
    model, table = CHAINS[1], TABLES[1]
    trips = drawn_trips(perturbed(model), table, trips=40, seed=2)

    def objective(learned: MotionModel) -> float:
        prior = 10 * float(model.chances @ np.log(learned.chances)) + 100 * float(model.start @ np.log(learned.start))
        return log_likelihood(learned, table, trips) + prior

    models = learn_from(trips, model, table, rounds=60)
    assert (np.diff([objective(learned) for learned in models]) > -1e-4).all()
    # It is the maximum that is found: no small change is better.
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert objective(perturbed(models[-1], rng, by=0.1)) < objective(models[-1])


@pytest.mark.usefixtures("no_jumps")
def test_with_memory_reports_become_more_probable_round_by_round() -> None:
    model, table = CHAINS[2], TABLES[2]
    trips = drawn_trips(perturbed(model), table, trips=60, seed=3)
    found = [log_likelihood(learned, table, trips) for learned in learn_from(trips, model, table, rounds=6)]
    assert (np.diff(found) > 0).all()


def perturbed(model: MotionModel, rng: np.random.Generator | None = None, *, by: float = 1.0) -> MotionModel:
    rng = np.random.default_rng(7) if rng is None else rng
    state = np.repeat(np.arange(len(model)), np.diff(model.offsets))
    weight = model.chances.astype(np.float64) * np.exp(by * rng.normal(size=len(state)))
    chances = normalised(weight, state, len(model))
    return replace(model, chances=chances.astype(np.float32))


def test_where_nothing_was_reported_the_start_stays() -> None:
    """One report tells of no move, and hardly of the start."""
    for order, model in CHAINS.items():
        learned = learn_from([([3], [1])], model, TABLES[order], rounds=3)[-1]
        np.testing.assert_allclose(learned.chances, model.chances, atol=1e-6)
        assert np.abs(learned.start - model.start).sum() < 0.03


def test_of_many_reports_only_they_count() -> None:
    """Reports that tell the state for certain: the shares of the moves that were made."""
    model = CHAINS[1]
    table = np.eye(3, 4)
    trips = [(list(range(200)), [0, 0, 1, 2, 1] * 40)] * 20
    learned = learn_from(trips, model, table, rounds=2)[-1]
    np.testing.assert_allclose(learned.moves.toarray()[0], [0.5, 0.5, 0.0], atol=0.01)
    np.testing.assert_allclose(learned.moves.toarray()[1], [0.5, 0.0, 0.5], atol=0.01)
    np.testing.assert_allclose(learned.moves.toarray()[2], [0.0, 1.0, 0.0], atol=0.01)
    assert learned.start[0] == pytest.approx((20 + 50) / 120, abs=1e-3)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=40),
    st.sampled_from([30.0, 60.0, 400.0]),
    st.booleans(),
)
def test_trips_are_those_of_a_slow_loop(rows: list[tuple[int, int, int]], interval_s: float, steps: bool) -> None:
    """In any order, several reports in a slot (the first counts), gaps filled up to 300 s, and longer ones divide."""
    columns = np.array(rows, np.int64).T
    number = np.arange(len(rows))
    told = (number + 100, number + 5000) if steps else (None, None)
    found = from_released._trips(ReleasedRows(number, *columns, *told), interval_s)
    expected: list[tuple[int, int, int, int]] = []
    starts = []
    for vehicle in range(3):
        first = {slot: number for number, (whose, slot, _) in reversed(list(enumerate(rows))) if whose == vehicle}
        before = None
        for slot in sorted(first):
            if before is None or (slot - before) * interval_s > 300:
                starts.append(len(expected))
            else:
                expected += [(empty, NO_REPORT, 0, 0) for empty in range(before + 1, slot)]
            expected.append((slot, rows[first[slot]][2], first[slot] + 100, first[slot] + 5000))
            before = slot
    assert found.starts.tolist() == starts
    assert list(zip(found.slot.tolist(), found.output.tolist(), strict=True)) == [row[:2] for row in expected]
    if steps:
        assert found.follows is not None
        assert found.time_ms is not None
        assert list(zip(found.follows.tolist(), found.time_ms.tolist(), strict=True)) == [row[2:] for row in expected]
    else:
        assert found.follows is None


@pytest.fixture(scope="module")
def lattice(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Reports that are some 250 m off."""
    return load_bundle(save_city(tmp_path_factory.mktemp("lattice") / "b", epsilon=8.0))


@pytest.fixture(scope="module")
def holding(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(save_city(tmp_path_factory.mktemp("holding") / "b", epsilon=8.0, hold_m=50.0))


def around(model: MotionModel) -> MotionModel:
    """Vehicles that go round the middle of the city, mostly, with few of the moves that distances allow."""
    state = np.repeat(np.arange(len(model)), np.diff(model.offsets))
    here, there = model.xy_m[model.present[state]], model.xy_m[model.present[model.targets]]
    turned = here[:, 0] * there[:, 1] - here[:, 1] * there[:, 0]
    weight: Floats = model.chances * np.exp(4 * turned / 300**2 / np.maximum(np.hypot(*here.T) / 300, 1))
    return replace(model, chances=normalised(weight, state, len(model)).astype(np.float32))


def save_reports(path: Path, bundle: Bundle, truth: MotionModel, *, vehicles: int, seed: int = 0) -> Path:
    fleet = drawn_fleet(truth, vehicles=vehicles, trips=vehicles, steps=30, seed=seed)
    return save_cells(
        path,
        bundle,
        [
            (walk.vehicle, SLOT + step, cell)
            for walk in fleet
            for step, cell in enumerate(cells_near(bundle, truth, walk.places))
        ],
    )


def test_more_reports_tell_more(lattice: Bundle, tmp_path: Path) -> None:
    """From a model of distances alone, towards that of the vehicles that reported."""
    start = near_model()
    truth = around(start)
    errors = [off(start, truth)]
    for vehicles in (10, 60, 400):
        reports = save_reports(tmp_path / "r", lattice, truth, vehicles=vehicles)
        errors.append(off(learn_from_released(reports, lattice, start, rounds=6), truth))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.25 * errors[0]


@pytest.mark.usefixtures("no_jumps")
def test_reports_of_zones_with_a_past_tell_moves(tmp_path: Path) -> None:
    """At ε = 20 a report follows from regime, place and place before: only who has all three right learns the moves."""
    bundle = load_bundle(save_certain(tmp_path / "town.bundle"))
    GRAPH.save(tmp_path / "town.roads")
    rng = np.random.default_rng(6)
    walks = [
        (f"v{number}", MIDNIGHT + timedelta(hours=number % 20), wander(rng, 24, columns=4)) for number in range(40)
    ]
    save_timed_walks(tmp_path / "walks.parquet", walks)
    perturb_walks(tmp_path / "walks.parquet", tmp_path / "town.roads", tmp_path / "r.parquet", bundle=bundle)
    start = pair_model(1)
    learned = learn_from_released(tmp_path / "r.parquet", bundle, start, rounds=2)
    dense = start.moves.toarray(), learned.moves.toarray()
    number = {(now, before): state for state, (now, before) in enumerate(start.states.tolist())}
    score = [0.0, 0.0]
    for _ in range(40):  # of the same habits, not the same walks
        for first, second, third in triples(wander(rng, 24, columns=4)):
            for index, chances in enumerate(dense):
                score[index] += float(np.log(chances[number[second, first], number[third, second]]))
    assert score[1] > score[0] + 150  # 880 moves


def triples(places: list[int]) -> list[tuple[int, int, int]]:
    return list(zip(places, places[1:], places[2:], strict=False))


def test_what_does_not_fit_is_refused(lattice: Bundle, holding: Bundle, tmp_path: Path) -> None:
    start = near_model()
    reports = save_reports(tmp_path / "r", lattice, start, vehicles=2)
    with pytest.raises(ParameterError, match="1 round or more"):
        learn_from_released(reports, lattice, start, rounds=0)
    with pytest.raises(MismatchError, match="made by another bundle"):
        learn_from_released(reports, holding, start)
    for interval_s in (15.0, 60.0):
        with pytest.raises(MismatchError, match="step of the motion model takes"):
            learn_from_released(reports, lattice, near_model(interval_s=interval_s))


@pytest.mark.parametrize("share", [0.4, 0.7])
def test_hold_does_not_change_how_often_vehicles_seem_to_stay(holding: Bundle, tmp_path: Path, share: float) -> None:
    """From the truth, learning stays near it, whatever share of the stays at a place repeats the last report."""
    plain, rng = near_model(across=5), np.random.default_rng(1)
    state = np.repeat(np.arange(len(plain)), np.diff(plain.offsets))
    stays = state == plain.targets
    weight: Floats = plain.chances.astype(np.float64) * np.where(stays, 2.0, 1.0)
    truth = replace(plain, chances=normalised(weight, state, len(plain)).astype(np.float32))
    rows: list[tuple[str | None, int, int | None]] = []
    stayed: list[bool] = []
    for walk in drawn_fleet(truth, vehicles=120, trips=120, steps=30, seed=2):
        cells = cells_near(holding, truth, walk.places)
        for step, (before, after) in enumerate(pairwise(walk.places), start=1):
            stayed.append(before == after)
            if before == after and rng.random() < share:
                cells[step] = cells[step - 1]
        rows += [(walk.vehicle, SLOT + step, cell) for step, cell in enumerate(cells) if step % 7]
    learned = learn_from_released(save_cells(tmp_path / "r", holding, rows), holding, truth)
    chance = float(learned.usual[state] @ (learned.chances * stays) / learned.usual.sum())
    assert chance == pytest.approx(np.mean(stayed), abs=0.04)
