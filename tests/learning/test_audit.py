"""OpenDP cannot be seeded. Bounds hold with a confidence of 1 − 10⁻⁷ here, so that each of them raises a false alarm in
10⁷ runs; the numbers of trainings are such that a fault escapes more seldom still: the bound on μ lies more than five
standard deviations above what is promised.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from benchmarks.membership import CANARY, Town, too_little_noise
from benchmarks.membership_game import MembershipGame, VehicleTrips
from geoblanket._arrays import Ints
from geoblanket._tables import write_table
from geoblanket.errors import InputError, ParameterError
from geoblanket.lab.city.model import make_city
from geoblanket.learning import TrainingBudget, private
from geoblanket.learning.noise import BOUND
from geoblanket.learning.private import learn_privately, with_noise
from geoblanket.learning.spending import TrainingLedger
from geoblanket.mobility.walks import scan_walks
from geoblanket.roads.places import choose_places
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel
from tests.roads.graphs import grid_graph

SURE = 1 - 1e-7
GRAPH = grid_graph(2, 4, step_deg=0.006)
PLACES = choose_places(GRAPH)
EPSILON = 10.0
"""Large, so that 1,600 trainings are enough to tell noise from half of it."""


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    return Town.made(tmp_path_factory.mktemp("town"), GRAPH, PLACES)


def test_audit_finds_faults_and_no_others(town: Town) -> None:
    game = town.game(EPSILON, order=1)
    honest = game.played(800, confidence=SURE, models=False)
    assert honest.is_kept
    assert honest.mu == pytest.approx(math.sqrt(2 * game.budget.rho))
    assert honest.on_counts.mu > honest.mu / 4  # an attack that could find something
    halved = replace(game, add_noise=too_little_noise(0.5)).played(800, confidence=SURE, models=False)
    assert halved.mu == pytest.approx(honest.mu)
    assert halved.on_counts.mu > halved.mu
    assert halved.on_counts.epsilon_by_mu > EPSILON
    assert not halved.is_kept
    unclipped = town.without_clipping(game, order=1).played(300, confidence=SURE, models=False)
    assert unclipped.on_counts.mu > unclipped.mu
    assert unclipped.on_counts.rates.found - unclipped.on_counts.rates.false_alarms == 150  # always found
    assert not unclipped.is_kept


def test_without_privacy_the_attack_on_models_wins_and_with_it_does_not(town: Town) -> None:
    open_to_all = town.attack_without_privacy(12, order=2, confidence=SURE)
    assert (open_to_all.rates.found, open_to_all.rates.false_alarms) == (6, 0)
    budget = TrainingBudget.of(1, 1e-5)
    hidden = MembershipGame.of(GRAPH, PLACES, town.present, vehicle=CANARY, budget=budget).played(40, confidence=SURE)
    assert hidden.is_kept
    assert hidden.on_model is not None
    assert hidden.on_model.mu <= hidden.mu


@pytest.mark.slow
def test_thousands_of_trainings(tmp_path: Path) -> None:
    """At order 2, with ε = 4; a vehicle that is not clipped breaks ε whatever the noise is taken for."""
    graph = make_city("small").graph
    town = Town.made(tmp_path, graph, choose_places(graph, spacing_m=700.0))
    game = town.game(4.0, order=2)
    honest = game.played(2000, confidence=SURE)
    assert honest.is_kept
    assert honest.on_counts.mu > 0.05
    halved = replace(game, add_noise=too_little_noise(0.5)).played(2000, confidence=SURE, models=False)
    assert halved.on_counts.mu > halved.mu
    unclipped = town.without_clipping(game, order=2).played(2000, confidence=SURE, models=False)
    assert unclipped.on_counts.mu > unclipped.mu
    assert unclipped.on_counts.epsilon > 4.0
    open_to_all = town.attack_without_privacy(300, order=2, confidence=SURE)
    assert (open_to_all.rates.found, open_to_all.rates.false_alarms) == (150, 0)


@pytest.mark.parametrize("order", [1, 2])
def test_audited_sums_are_those_that_learning_adds_noise_to(
    town: Town, order: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Ints]] = []

    def listening(sums: dict[str, Ints], shares: dict[str, float], **options: Any) -> Any:
        seen.append(sums)
        return with_noise(sums, shares, **options)

    monkeypatch.setattr(private, "with_noise", listening)
    budget = TrainingBudget.of(EPSILON, 1e-5)
    for walks in (town.present, town.absent):
        ledger = TrainingLedger(tmp_path / walks.name, total_epsilon=EPSILON)
        learn_privately(GRAPH, PLACES, walks, budget=budget, order=order, ledger=ledger)
    game = town.game(EPSILON, order=order)
    for audited, number, sums in zip((game.present, game.absent), seen[::2], seen[1::2], strict=True):
        assert number.keys() == {"units"}
        assert audited.keys() == game.shares.keys() >= {"units", "hours", "places"}
        counted = number | sums
        assert all(np.array_equal(audited[name], counted[name]) for name in audited.keys() & counted.keys())


def test_canary_changes_every_part_by_nearly_the_bound(town: Town) -> None:
    game = town.game(EPSILON, order=2)
    for name, absent in game.absent.items():
        length = float(np.linalg.norm(game.present[name] - absent))
        assert (1 - 1e-4) * BOUND < length <= BOUND
    raw = town.without_clipping(game, order=2)
    assert all(np.linalg.norm(raw.present[name] - sums) > 10 * BOUND for name, sums in game.absent.items())


def test_canary_drives_where_others_do_not(town: Town) -> None:
    others, about = scan_walks(town.absent)
    frame, about_all = scan_walks(town.present)
    assert about_all == about
    rows = frame.collect()
    own = rows.filter(pl.col("vehicle") == CANARY)
    assert rows.filter(pl.col("vehicle") != CANARY).equals(others.collect())
    assert own["walk"].n_unique() == own["trip"].n_unique() == 20
    assert not set(own["trip"]) & set(others.collect()["trip"])
    trips = [group["place"].to_list() for _, group in own.group_by("walk", maintain_order=True)]
    here, there = trips[0][:2]
    assert here != there
    assert all(trip == [here, there] * (len(trip) // 2) + [here] * (len(trip) % 2) for trip in trips)
    steps_s = own.select(pl.col("time").diff().over("walk").dt.total_seconds().drop_nulls())["time"]
    assert steps_s.unique().to_list() == [about["interval_s"]]

    def often(one: int, other: int) -> int:
        walks = others.collect().group_by("walk", maintain_order=True).agg("place")["place"].to_list()
        return sum({move} <= {(one, other), (other, one)} for walk in walks for move in pairwise(walk))

    road = learn_motion(GRAPH, PLACES, order=1)
    moves = [(int(a), int(b)) for a, b in zip(*np.nonzero(road.moves.toarray()), strict=True)]
    assert often(here, there) == min(often(*move) for move in moves if move[0] < move[1] and move[::-1] in moves)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_attacker_reads_what_the_model_says_of_the_trips(town: Town, order: int) -> None:
    model = learn_motion(GRAPH, PLACES, walks=town.present, order=order)
    frame, _ = scan_walks(town.present)
    trips = VehicleTrips.read(frame, "drawn 007", path=town.present)
    assert len(trips.walks) == 10
    expected = [*model.hours[trips.hours], *model.lengths[trips.bins]]
    expected += [model.start[model.present == place].sum() for place in trips.starts]
    runs = {tuple(walk[now - order : now + 1].tolist()) for walk in trips.walks for now in range(order, len(walk))}
    expected += [chance_by_search(model, run) for run in sorted(runs)]
    assert trips.seen_in(model) == pytest.approx(np.log(np.maximum(expected, 1e-9)), abs=1e-5)


def chance_by_search(model: MotionModel, run: tuple[int, ...]) -> float:
    """How probable the last place of a run is, from the longest state that fits the places before."""
    past = run[-2::-1]
    fitting = {}
    for state, row in enumerate(model.states.tolist()):
        places = [place for place in row if place >= 0]
        if places == list(past[: len(places)]):
            fitting[len(places)] = state
    if not fitting:
        return 0.0
    state = fitting[max(fitting)]
    moves = range(int(model.offsets[state]), int(model.offsets[state + 1]))
    return sum(float(model.chances[move]) for move in moves if model.present[model.targets[move]] == run[-1])


def test_what_cannot_be_audited_is_refused(town: Town, tmp_path: Path) -> None:
    budget = TrainingBudget.of(1, 1e-5)
    with pytest.raises(ParameterError, match="has no vehicle 'ghost'"):
        MembershipGame.of(GRAPH, PLACES, town.present, vehicle="ghost", budget=budget)
    with pytest.raises(ParameterError, match="4 trainings or more"):
        town.game(EPSILON, order=1).played(3)
    frame, about = scan_walks(town.absent)
    names = frame.select("vehicle").collect()["vehicle"].unique().sort()
    nameless = frame.with_columns(vehicle=pl.when(pl.col("vehicle") != names[0]).then("vehicle"))
    write_table(nameless, tmp_path / "nameless.parquet", kind="walks", about=about)
    with pytest.raises(InputError, match="a walk names no vehicle"):
        MembershipGame.of(GRAPH, PLACES, tmp_path / "nameless.parquet", vehicle=names[1], budget=budget)
