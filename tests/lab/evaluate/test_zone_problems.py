from __future__ import annotations

import numpy as np
import pytest

from geoblanket._arrays import Indices, Ints
from geoblanket.build.row_tree import FixedLengths
from geoblanket.build.rows import make_problem
from geoblanket.lab.evaluate.city_data import ZoneData
from geoblanket.lab.evaluate.comparing import ZoneProblems
from geoblanket.lab.evaluate.experiment import Blanket, Setting
from geoblanket.loss.standard import StraightLine
from geoblanket.tracking.motion_model import MotionModel
from tests.build.worlds import counted, grid, straight_on

PLACES = grid(5, 4)
STEPS = straight_on(PLACES, 4000, past=3)
SETTING = Setting(methods=("lp",), epsilon=2.0, max_rows=120)


def by_speed(now: Indices, before: Indices) -> Ints:
    return np.where(np.asarray(now) == np.asarray(before), 1, 2)


def problems(predicted: int | None = None) -> ZoneProblems:
    data = ZoneData(
        key="one",
        number=0,
        members=np.arange(6, 14, dtype=np.int32),
        places=PLACES,
        counts=counted(STEPS),
        steps=STEPS,
        loss=StraightLine(PLACES),
        predicted=None if predicted is None else FixedLengths(predicted),
        found=by_speed,
        vehicle_tasks=None,
        reach_m=700.0,
        interval_s=30.0,
        share=1.0,
        zone_of=np.zeros(len(PLACES), np.int32),
        motion=MotionModel.by_distance(PLACES.coordinates_e7, interval_s=30.0),
    )
    return ZoneProblems(data)


def test_rows_with_the_same_blankets_are_the_same() -> None:
    one = problems(predicted=1)
    predicted, first_order = (one.rows(kind, SETTING) for kind in ("predicted", "order:1"))
    assert predicted is first_order
    assert one.rows("found", SETTING) is not predicted
    assert one.rows("found", SETTING) is one.rows("found", SETTING)
    assert not problems().has("predicted")
    assert one.has("none")


def test_problems_are_those_of_a_build() -> None:
    one = problems()
    rows = one.rows("order:1", SETTING)
    for epsilon in (1.0, 3.0):
        made, wanted = (
            one.problem(rows, epsilon=epsilon, eta_km=2.0),
            make_problem(rows, StraightLine(PLACES), epsilon=epsilon, eta_km=2.0),
        )
        assert made.epsilon == epsilon
        assert np.array_equal(made.distance_mm, wanted.distance_mm)
        assert np.allclose(made.loss, wanted.loss)
        assert np.array_equal(made.prior, wanted.prior)


@pytest.mark.parametrize(("blanket", "longest"), [("too short", 2), ("as told", 3), ("too long", 4)])
def test_wrong_blankets_are_longer_or_shorter(blanket: Blanket, longest: int) -> None:
    setting = Setting(methods=("lp",), epsilon=2.0, max_rows=600, blanket=blanket)
    rows = problems().rows("found", setting)
    assert rows.histories.shape[1] == longest


def test_shuffled_blankets_have_the_same_lengths_elsewhere() -> None:
    setting = Setting(methods=("lp",), epsilon=2.0, max_rows=150, blanket="shuffled")
    one = problems()
    told, shuffled = (one.rows("found", s) for s in (Setting(methods=("lp",), epsilon=2.0, max_rows=150), setting))
    assert told.histories.shape[1] == shuffled.histories.shape[1]
    assert not np.array_equal(told.histories, shuffled.histories)
