"""The refined method in one zone: its rows are parts of those of its first stage, and cost accordingly."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from geoblanket.lab.evaluate.comparing import ComparisonTask, compare_zone
from geoblanket.lab.evaluate.experiment import Experiment, Setting
from tests.lab.evaluate.test_zone_problems import problems

COMPARED = ("lp_cmdp", "lp_cmdp_refined")
SETTING = Setting(methods=COMPARED, epsilon=4.0, max_rows=20, history_weights=(1.0, 0.5))


def measured(setting: Setting, *names: str) -> list[list[float]]:
    """Measures of the first stage and of the refined method."""
    experiment = Experiment(name="stages", title="Two stages", settings=(setting,), gap=0.02, reports=(4,))
    data = problems(predicted=1).data
    inside = data.steps.where(np.isin(data.steps.histories[:, 0], data.members))
    task = ComparisonTask("one", replace(data, steps=inside), setting, COMPARED, experiment, os.getpid())
    methods = compare_zone(task).methods
    assert [method.verified for method in methods] == [True, True]
    values = [{value.measure: value.value for value in method.values} for method in methods]
    return [[each[name] for each in values] for name in names]


def test_one_more_place_is_more_rows_less_loss_and_more_cost() -> None:
    rows, loss, cost = measured(SETTING, "rows", "design_loss", "epsilon_per_location")
    assert rows[0] < rows[1]
    assert loss[0] > loss[1]
    assert cost == pytest.approx([8.0, 10.0])


def test_at_equal_cost_it_costs_the_same() -> None:
    (cost,) = measured(SETTING.replaced(equal_cost=True), "epsilon_per_location")
    assert cost == pytest.approx([4.0, 4.0], rel=1e-5)


def test_rows_that_cannot_be_split_stay() -> None:
    zone = problems(predicted=1)
    assert len(zone.rows("predicted, split", SETTING)) > len(zone.rows("predicted", SETTING))
    short = SETTING.replaced(history_weights=(1.0,))
    assert zone.rows("predicted, split", short) is zone.rows("predicted", short)
    assert not problems().has("predicted, split")
    rows, loss = measured(short, "rows", "design_loss")
    assert rows[0] == rows[1]
    assert loss[0] == loss[1]
