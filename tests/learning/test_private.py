"""`learn_privately`: nothing of the walks but through noise, and a promise that says what was done."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from geoblanket._arrays import Floats, Ints
from geoblanket._training import PrivatePart, Unit
from geoblanket.errors import BudgetError, InputError, MismatchError, ParameterError, RandomnessError
from geoblanket.learning import TrainingBudget, TrainingLedger, learn_privately, private
from geoblanket.learning.noise import BOUND, noisy
from geoblanket.roads.places import choose_places
from geoblanket.tracking.motion_model import MotionModel
from tests.learning.fleets import (
    GRAPH,
    ORDERS,
    PLACES,
    Walk,
    by_place,
    cells_of,
    drawn_fleet,
    off,
    save_fleet,
    truth_of,
)
from tests.roads.graphs import grid_graph

ONE = TrainingBudget.of(1.0, 1e-6)
PLENTY = TrainingBudget.of(64.0, 1e-6)
Noise = Callable[..., tuple[Ints, PrivatePart]]


def instead_of_noise(counts: Callable[[Ints], Ints]) -> Noise:
    def drawn(sums: Ints, *, name: str, rho: float, **_: object) -> tuple[Ints, PrivatePart]:
        return counts(sums), PrivatePart(name, sums.size, BOUND, BOUND / math.sqrt(2 * rho) * (1 + 1e-9))

    return drawn


def the_same(sums: Ints) -> Ints:
    """Numbers well above the noise, so that the model follows them closely, and anything that is added to them."""
    return np.random.default_rng(len(sums)).integers(5 * BOUND, 10 * BOUND, len(sums))


def learned(
    path: Path, *, order: int = 2, unit: Unit = "vehicle", units: int | None = 60, budget: TrainingBudget = PLENTY
) -> MotionModel:
    ledger = TrainingLedger(path.with_name(f"{uuid4()}.json"), total_epsilon=100)  # counts nothing before
    budget = replace(budget, unit=unit, units=units)
    return learn_privately(GRAPH, PLACES, path, budget=budget, order=order, ledger=ledger)


def arrays(model: MotionModel) -> list[bytes]:
    return [part.tobytes() for part in (model.start, model.chances, model.hours, model.lengths)]


@pytest.fixture
def unlike(tmp_path: Path) -> tuple[Path, Path]:
    """Two fleets that have nothing in common: 40 vehicles stand at night, 60 race about at noon."""
    standing = [Walk(f"a{number % 40}", number, [3] * 4, hour=2, speed_m_s=0.0) for number in range(120)]
    rng = np.random.default_rng(0)
    racing = [
        Walk(f"z{number % 60}", 7 * number, rng.integers(48, size=40).tolist(), hour=12, speed_m_s=33.0)
        for number in range(300)
    ]
    return save_fleet(tmp_path / "standing.parquet", standing), save_fleet(tmp_path / "racing.parquet", racing)


@pytest.mark.parametrize("order", ORDERS)
def test_without_what_was_counted_all_fleets_give_the_same_file(
    order: int, unlike: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Always the same numbers in place of noisy counts: then nothing may tell fleets apart, not even their sizes."""
    monkeypatch.setattr("secrets.token_hex", lambda length: "5e" * length)
    monkeypatch.setattr(private, "noisy", instead_of_noise(the_same))
    files = []
    for walks in unlike:
        model = learned(walks, order=order)
        assert model.training.promise is not None
        assert "long runs" in {part.name for part in model.training.promise.parts} or order < 3
        model.save(tmp_path / "model")
        files.append((tmp_path / "model").read_bytes())
    assert files[0] == files[1]
    # The same with the counts themselves: each array tells the fleets apart, so that this test looks at all of them.
    monkeypatch.setattr(private, "noisy", instead_of_noise(lambda sums: sums))
    for standing, racing in zip(*(arrays(learned(walks, order=order)) for walks in unlike), strict=True):
        assert standing != racing


@pytest.mark.parametrize("order", ORDERS)
def test_by_trip_too(order: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "noisy", instead_of_noise(the_same))
    one = [Walk("a" if trip % 3 else "b", trip, [trip % 48, 4], hour=1) for trip in range(80)]
    other = [Walk(f"v{trip % 2}", 1000 - trip, [5, 6, trip % 7] * 20, hour=23, speed_m_s=1.0) for trip in range(80)]
    models = [
        learned(save_fleet(tmp_path / "walks", fleet), order=order, unit="trip") for fleet in (one, [*other, *other])
    ]
    assert arrays(models[0]) == arrays(models[1])
    told = [{**model.learned, "promise": model.training.promise and replace(model.training.promise, noise_id="")}
            for model in models]  # fmt: skip
    assert told[0] == told[1]


def test_noise_is_drawn_once_for_each_part_from_what_was_counted(
    unlike: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part is drawn with its own share of the budget, and the shares are no more than all of it."""
    asked: dict[str, float] = {}

    def noted(sums: Ints, *, name: str, rho: float, **options: object) -> tuple[Ints, PrivatePart]:
        assert name not in asked
        assert "bound" not in options
        asked[name] = rho
        return noisy(sums, name=name, rho=rho)

    monkeypatch.setattr(private, "noisy", noted)
    promise = learned(unlike[0], budget=ONE).training.promise
    assert promise is not None
    assert promise.problem() is None
    assert math.fsum(asked.values()) <= ONE.rho
    assert promise.rho <= ONE.rho
    assert promise.rho > 0.999 * ONE.rho
    assert {part.name: part.bound for part in promise.parts} == dict.fromkeys(asked, BOUND)
    assert (promise.unit, promise.units, promise.epsilon, promise.delta) == ("vehicle", 60, 1.0, 1e-6)
    assert (promise.units_are, "units" in asked) == ("declared", False)
    asked.clear()
    counted = learned(unlike[0], budget=ONE, units=None).training.promise
    assert counted is not None
    assert counted.problem() is None
    assert next(iter(asked)) == "units"  # first, since the number decides how the rest is split
    assert asked["units"] == pytest.approx(0.02 * ONE.rho)
    assert 0.999 * ONE.rho < counted.rho <= math.fsum(asked.values()) <= ONE.rho
    assert (counted.units_are, {part.name for part in counted.parts}) == ("noisy", set(asked))


def fixed_noise(sums: Ints, *, name: str, rho: float, **_: object) -> tuple[Ints, PrivatePart]:
    """Noise that is always the same: what differs between two models then differs by what was counted."""
    part = PrivatePart(name, sums.size, BOUND, BOUND / math.sqrt(2 * rho) * (1 + 1e-9))
    drawn = np.random.default_rng(len(name)).normal(scale=part.scale, size=sums.size)
    return sums + np.rint(drawn).astype(np.int64), part


@pytest.mark.parametrize("others", [60, 1, 0])
def test_one_vehicle_more_changes_noisy_counts_and_nothing_else(
    others: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the others each has one trip, so that a look at the walks could take vehicles for trips; or there are none."""
    monkeypatch.setattr("secrets.token_hex", lambda length: "5e" * length)
    fleet = [Walk(f"v{trip}", trip, [trip % 48, (trip + 1) % 48]) for trip in range(others)]
    more = [*fleet, *(Walk("more", others + trip, [5, 6, 7, 8], hour=3) for trip in range(2))]
    paths = [save_fleet(tmp_path / name, walks) for name, walks in (("fleet", fleet), ("more", more))]
    files = []
    monkeypatch.setattr(private, "noisy", instead_of_noise(the_same))
    for path in paths:
        learned(path, units=None).save(tmp_path / "model")
        files.append((tmp_path / "model").read_bytes())
    assert files[0] == files[1]
    monkeypatch.setattr(private, "noisy", fixed_noise)
    models = [learned(path, units=None) for path in paths]
    promises = [model.training.promise for model in models]
    assert promises[0] is not None
    assert promises[1] is not None
    assert (arrays(models[0]) != arrays(models[1])) == (others > 1)  # a single vehicle drowns in the noise
    assert promises[1].units - promises[0].units == (1 if others > 1 else 0)  # no fewer than 2 are ever told
    assert [part.name for part in promises[0].parts] == [part.name for part in promises[1].parts]
    assert replace(promises[0], units=2, parts=()) == replace(promises[1], units=2, parts=())
    told = [{name: value for name, value in model.learned.items() if name != "promise"} for model in models]
    assert told[0] == told[1]


def test_two_learnings_differ_and_are_told_apart(unlike: tuple[Path, Path]) -> None:
    first, second = (learned(unlike[0]) for _ in range(2))
    assert all(one != other for one, other in zip(arrays(first), arrays(second), strict=True))
    one, other = first.training.promise, second.training.promise
    assert one is not None
    assert other is not None
    assert one != other
    assert replace(one, noise_id="") == replace(other, noise_id="")


def test_a_large_fleet_gives_the_true_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From end to end: trips drawn from a known chain of order 2, step by step; each vehicle stands for a hundred."""
    truth = truth_of(2)
    fleet = drawn_fleet(truth, vehicles=60, trips=1000, steps=50, seed=1)
    monkeypatch.setattr(private, "noisy", instead_of_noise(lambda sums: 100 * sums))
    model = learned(save_fleet(tmp_path / "walks", fleet))
    road = cells_of(2).road
    assert off(model, truth) < 0.25 * off(road, truth)
    true, found, before = (by_place(part, part.usual) for part in (truth, model, road))
    assert distance(found, true) < 0.2 * distance(before, true)
    true, found, before = (by_place(part, part.start) for part in (truth, model, road))
    assert distance(found, true) < 0.5 * distance(before, true)


def distance(one: Floats, other: Floats) -> float:
    return float(np.abs(one - other).sum())


def test_ledger_is_asked_before_noise_is_drawn(unlike: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was learned before adds up; beyond the total nothing is drawn; what fails after counts."""
    walks, ledger = unlike[0], TrainingLedger.beside(unlike[0], total_epsilon=1.6)

    def learn(ledger: TrainingLedger | None = None) -> MotionModel:
        return learn_privately(GRAPH, PLACES, walks, budget=ONE, order=1, ledger=ledger)

    first = learn(ledger).training.promise
    assert first is not None
    assert first.rho_before == 0

    def fails(*_: object, **__: object) -> tuple[Ints, PrivatePart]:
        raise RandomnessError("none")

    with monkeypatch.context() as patch:
        patch.setattr(private, "noisy", fails)
        with pytest.raises(RandomnessError):
            learn()
        with pytest.raises(BudgetError, match=r"2 learning\(s\)"):
            learn()
    account = ledger.account()
    assert account is not None
    assert account.rho("vehicle") == pytest.approx(2 * ONE.rho)
    assert [learning.purpose for learning in account.learnings] == ["a motion model of order 1"] * 2
    later = learn_privately(
        GRAPH, PLACES, walks, budget=TrainingBudget.of(0.1, 1e-6), order=1, ledger=ledger
    ).training.promise
    assert later is not None
    assert later.rho_before == pytest.approx(2 * ONE.rho)
    assert later.total_epsilon > 1.4


def test_delta_is_compared_with_the_noisy_number_after_it_was_paid_for(
    unlike: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The true number would allow this δ. A look at it before would tell the walks."""
    monkeypatch.setattr(private, "noisy", instead_of_noise(lambda sums: 0 * sums + 1000 * BOUND))
    budget, ledger = TrainingBudget.of(1, 1e-3), TrainingLedger.beside(unlike[0])
    with pytest.raises(ParameterError, match="too weak for 1,000 vehicles"):
        learn_privately(GRAPH, PLACES, unlike[0], budget=budget, order=1, ledger=ledger)
    account = ledger.account()
    assert account is not None
    assert len(account.learnings) == 1


@pytest.mark.parametrize("order", [0, 4])
def test_orders_are_1_to_3(unlike: tuple[Path, Path], order: int) -> None:
    with pytest.raises(ParameterError, match="order of a motion model is 1 to 3"):
        learned(unlike[0], order=order)


def test_bad_input_costs_nothing(unlike: tuple[Path, Path], tmp_path: Path) -> None:
    ledger = TrainingLedger.beside(unlike[0])
    other = grid_graph(6, 8, step_deg=0.005)
    with pytest.raises(MismatchError, match="matched to other roads"):
        learn_privately(other, choose_places(other), unlike[0], budget=ONE, ledger=ledger)
    with pytest.raises(MismatchError, match="matched to places at"):
        learn_privately(GRAPH, choose_places(GRAPH, spacing_m=500), unlike[0], budget=ONE, ledger=ledger)
    for delta, options, words in (
        (1 / 60, {"units": 60}, r"too weak for 60 vehicles: .* such as 2e-04"),
        (1e-6, {"units": 1}, "number of units must be 2 or more. Got 1"),
        (1e-6, {"unit": "person"}, "unit"),
    ):
        with pytest.raises(ParameterError, match=words):
            TrainingBudget.of(1, delta, **options)
    assert ledger.account() is None
    bad = {
        "unnamed": [Walk("a" if trip else None, trip, [1, 2, 3]) for trip in range(9)],
        "nowhere": [Walk(f"v{trip % 3}", trip, [1, 2, 48]) for trip in range(9)],
    }
    for name, fleet in bad.items():
        walks = save_fleet(tmp_path / name, fleet)
        with pytest.raises(InputError):
            learn_privately(GRAPH, PLACES, walks, budget=ONE, ledger=TrainingLedger.beside(walks))
        assert TrainingLedger.beside(walks).account() is None
