"""A plan in one call, in words, and as the options of what it recommends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from geoblanket import make_lattice, make_plan
from geoblanket.errors import ParameterError
from geoblanket.planning import Plan
from geoblanket.planning.words import in_words
from tests.planning.worlds import walking


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(model=walking(6).model, night=72, hour=240, trips=40, workers=1)


def test_a_plan_reads_as_sentences_and_shows_itself_in_one_line(plan: Plan) -> None:
    assert str(plan) == "\n".join(in_words(plan))
    assert repr(plan).startswith("<Plan: every ")
    assert "anchor ε₀ = 8 per km for an hour" in repr(plan)


def test_what_is_planned_can_be_made(plan: Plan, tmp_path: Path) -> None:
    bundle = make_lattice((41.15, -8.61), tmp_path / "a.bundle", radius_km=2, **plan.lattice)
    schedule = plan.recommended.schedule
    assert bundle.lattice is not None
    assert bundle.lattice.anchor is not None
    assert (bundle.lattice.epsilon, bundle.lattice.anchor.epsilon) == (schedule.epsilon, schedule.anchor_epsilon)
    assert (plan.budget.epsilon, plan.budget.anchor_epsilon) == (schedule.hour, schedule.anchors_of_hour)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"hour": 60}, "either roads or a motion model"),
        ({"hour": 60, "roads": "a.roads", "model": "a.model"}, "either roads or a motion model"),
        ({"hour": 60, "model": "a.model", "spacing_m": 100}, "has its own places"),
        ({"model": "a.model"}, "needs a limit"),
    ],
)
def test_what_is_missing_is_said(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ParameterError, match=problem):
        make_plan(**options)
