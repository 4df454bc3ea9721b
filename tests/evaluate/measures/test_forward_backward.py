from __future__ import annotations

import itertools

import numpy as np
import pytest

from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError
from geoblanket.evaluate.measures.forward_backward import place_posteriors, prior_posteriors
from geoblanket.evaluate.measures.mobility_model import MobilityModel
from tests.evaluate.measures.test_mobility_model import dense
from tests.evaluate.walking import COUNTS, ZONE, random_channel, rows_of


def by_enumeration(model: MobilityModel, likelihood: Floats) -> Floats:
    """Pr[place at t | all reports], over all paths of states; likelihood has the shape (T, N)."""
    table = dense(model)
    steps, places = len(likelihood), len(model.zone)
    result = np.zeros((steps, places))
    for path in itertools.product(range(len(model)), repeat=steps):
        chance = model.start[path[0]] * likelihood[0, path[0]]
        for step in range(1, steps):
            chance *= table[path[step - 1], path[step]] * likelihood[step, path[step]]
        for step, state in enumerate(path):
            result[step, model.present[state]] += chance
    posterior: Floats = result / result.sum(axis=1, keepdims=True)
    return posterior


def tiny(memory: int) -> MobilityModel:
    """Six places without memory, or two with pairs of them and of places around."""
    zone = ZONE if memory == 0 else ZONE[:2]
    return MobilityModel.from_counts(rows_of("none", zone=zone), COUNTS, memory=memory)


@pytest.mark.parametrize(("memory", "steps"), [(0, 1), (0, 2), (0, 5), (1, 1), (1, 2), (1, 4)])
def test_against_the_sum_over_all_paths(memory: int, steps: int) -> None:
    model = tiny(memory)
    emissions = random_channel(len(model), 4, seed=1)
    reports = np.random.default_rng(2).integers(0, 4, (steps, 3))
    found = place_posteriors(model, emissions, reports)
    for sequence in range(3):
        likelihood = emissions[:, reports[:, sequence]].T
        assert found.smoothed[:, :, sequence] == pytest.approx(by_enumeration(model, likelihood))
        for step in range(steps):
            so_far = by_enumeration(model, likelihood[: step + 1])[-1]
            assert found.filtered[step, :, sequence] == pytest.approx(so_far)


@pytest.mark.parametrize("memory", [0, 1])
def test_without_reports_only_staying_tells(memory: int) -> None:
    model = tiny(memory)
    assert prior_posteriors(model, 3) == pytest.approx(by_enumeration(model, np.ones((3, len(model)))))
    hidden = place_posteriors(model, np.full((len(model), 4), 0.25), np.zeros((3, 2), np.int64))
    assert hidden.smoothed[:, :, 1] == pytest.approx(prior_posteriors(model, 3))


def test_long_sequences_do_not_vanish() -> None:
    model = tiny(0)
    emissions = random_channel(6, 6, seed=3)
    emissions[:, 0] = 1e-200
    found = place_posteriors(model, emissions, np.zeros((500, 2), np.int64))
    assert np.isfinite(found.smoothed).all()
    assert found.smoothed.sum(axis=1) == pytest.approx(np.ones((500, 2)))


def test_an_impossible_report_is_left_out() -> None:
    model = tiny(0)
    emissions = np.column_stack([random_channel(6, 3, seed=4), np.zeros(6)])
    found = place_posteriors(model, emissions, np.array([[0, 0], [3, 1], [2, 2]]))
    likelihood = np.stack([emissions[:, 0], np.ones(6), emissions[:, 2]])
    assert found.smoothed[:, :, 0] == pytest.approx(by_enumeration(model, likelihood))
    assert found.smoothed[:, :, 1] == pytest.approx(by_enumeration(model, emissions[:, [0, 1, 2]].T))


@pytest.mark.parametrize("memory", [0, 1])
def test_more_reports_never_help_less(memory: int) -> None:
    """The expected success about the first place, over all reports that there can be, by the model itself."""
    model = tiny(memory)
    # Nobody leaves, so that more reports do not also tell that the vehicle stayed.
    table = dense(model)
    stays = MobilityModel(
        model.zone,
        model.states,
        model.start,
        table / table.sum(axis=1, keepdims=True),
        model.leave[:, :0],
        model.back[:0],
        model.seen,
    )
    emissions = random_channel(len(model), 3, seed=5, sharpness=2.0)
    successes = []
    for steps in (1, 2, 3, 4):
        reports = np.array(list(itertools.product(range(3), repeat=steps))).T
        found = place_posteriors(stays, emissions, reports)
        chance = stays.start[:, None] * emissions[:, reports[0]]
        for step in range(1, steps):
            chance = stays.forward(chance) * emissions[:, reports[step]]
        assert chance.sum() == pytest.approx(1.0)
        successes.append(float(found.smoothed[0].max(axis=0) @ chance.sum(axis=0)))
    assert all(later >= earlier - 1e-12 for earlier, later in itertools.pairwise(successes))
    assert successes[-1] > successes[0] + 1e-4


def test_tables_of_other_models_are_refused() -> None:
    with pytest.raises(ParameterError, match="6 states"):
        place_posteriors(tiny(0), np.ones((5, 2)), np.zeros((1, 1), np.int64))
    with pytest.raises(ParameterError, match="reports"):
        place_posteriors(tiny(0), np.ones((6, 2)), np.zeros((0, 1), np.int64))
