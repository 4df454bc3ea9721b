"""Wishes: how they are read, and the largest ε that keeps them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from geoblanket import Wishes, certainty, make_lattice, make_plan
from geoblanket.errors import ParameterError
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.planning.plan import plan_facts
from geoblanket.planning.schedules import Schedule, round_up
from geoblanket.planning.wishes import affordable, metres_of, right, seconds_of

TOWN = Area.around(41.15, -8.61, 2)


def test_units_are_read() -> None:
    wishes = Wishes.read(home="350m/month", apart=".2 km", sure="72.5%", for_="15min", road="0.5km", more={"hour": 60})
    assert wishes == Wishes(home_m=350, apart_m=200, sure=0.725, for_s=900, road_m=500, hour=60)
    assert Wishes.read(home="0.35km", road="500").given() == {"home": 350.0, "road": 500.0}
    assert [seconds_of("for", text) for text in ("90s", "1.5h", "30d")] == [90, 5400, 2_592_000]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"home": "350m/week"}, "--home must be a distance such as 350m or 350m/month. Got a text that cannot"),
        ({"home": "41.15794,-8.61"}, "--home must be a distance such as"),
        ({"apart": "100 miles"}, "--apart must be a distance such as 100m or 0.5km"),
        ({"apart": "0m"}, "--apart must be a distance such as"),
        ({"apart": "-5m"}, "--apart must be a distance such as"),
        ({"sure": "70"}, "--sure must be a share such as 70%"),
        ({"sure": "50%"}, "above 50 %, which is chance, and below 100 %. Got 50 %"),
        ({"sure": "100%"}, "below 100 %. Got 100 %"),
        ({"for_": "1 fortnight"}, "--for must be a time such as 90s, 15min"),
        ({"road": ""}, "--road must be a distance such as"),
        ({"home": "6km"}, "at most 5,700 m"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ParameterError, match=message) as raised:
        Wishes.read(**given)  # type: ignore[arg-type]
    assert "41.15" not in str(raised.value)


@pytest.mark.parametrize("name", ["home_m", "apart_m", "for_s", "road_m", "hour", "report"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_absurd_numbers_are_refused(name: str, value: float) -> None:
    with pytest.raises(ParameterError, match=f"The wish {name} must be a number above 0"):
        Wishes(**{name: value})


@pytest.mark.parametrize(
    ("sure", "apart_m", "interval_s"), [(0.7, 100.0, 30.0), (0.9, 50.0, 120.0), (0.6, 400.0, 600.0)]
)
def test_the_largest_epsilon_is_that_of_the_closed_form(sure: float, apart_m: float, interval_s: float) -> None:
    """Φ(ε·d·√(n/8)) is within a point of the truth for small losses: see docs/choosing.md."""
    wishes = Wishes(sure=sure, apart_m=apart_m)
    schedule, draws = affordable(wishes, interval_s=interval_s), wishes.draws(interval_s)
    by_hand = 0.5 * (1 + math.erf(schedule.epsilon * apart_m / 1000 * math.sqrt(draws / 8) / math.sqrt(2)))
    assert by_hand == pytest.approx(sure, abs=0.02)
    assert right(schedule.epsilon, apart_m=apart_m, draws=draws) <= sure
    assert right(round_up(1.001 * schedule.epsilon), apart_m=apart_m, draws=draws) > sure - 3e-4


@pytest.mark.parametrize(
    ("epsilon", "apart_m", "draws"), [(0.4, 250.0, 8), (1.3, 100.0, 120), (6.0, 30.0, 40), (19.0, 20.0, 9)]
)
def test_the_small_lattice_stands_for_those_that_are_made(epsilon: float, apart_m: float, draws: int) -> None:
    lattice = Lattice.known(spec_over(Area.around(60.0, 20.0, 3), epsilon=epsilon), 0)
    truth = certainty(lattice, apart_m=apart_m, reports=draws).right
    assert right(epsilon, apart_m=apart_m, draws=draws) == pytest.approx(truth, abs=2e-4)


def test_limits_of_an_hour_and_of_a_report_hold_as_well() -> None:
    found = [affordable(Wishes(hour=240, report=6), interval_s=interval_s) for interval_s in (30.0, 60.0, 240.0)]
    assert found == [Schedule(2.0, 30.0), Schedule(4.0, 60.0), Schedule(6.0, 240.0)]
    strict = affordable(Wishes(hour=240, report=6, sure=0.6), interval_s=60.0)
    assert strict == affordable(Wishes(sure=0.6), interval_s=60.0)
    assert strict.epsilon < 4


def test_what_no_epsilon_keeps_gets_the_smallest() -> None:
    assert affordable(Wishes(report=0.001), interval_s=30.0).epsilon == 0.01
    assert affordable(Wishes(sure=0.501, apart_m=1e4), interval_s=30.0).epsilon == 0.01
    (outcome,) = make_plan(TOWN, Wishes(sure=0.501, apart_m=1e4)).outcomes
    assert (outcome.wish, outcome.kept) == ("sure", False)
    assert outcome.got is not None
    assert outcome.got > 0.501
    assert outcome.asked_in_words == "10,000 m apart, 1 h on the road: right at most 50.1 times in 100"


def test_a_plan_without_simulation_promises_what_certainty_computes(tmp_path: Path) -> None:
    wishes = Wishes(home_m=350, apart_m=100, sure=0.95, road_m=500)
    plan = make_plan(TOWN, wishes)
    bundle = make_lattice((41.15, -8.61, 2), tmp_path / "a.bundle", **plan.lattice)
    found = certainty(bundle, apart_m=100, reports=120).right
    assert plan.schedule.interval_s == 30.0
    assert plan.right == found <= 0.95
    assert [(each.wish, each.kept) for each in plan.outcomes] == [("home", True), ("sure", True), ("road", None)]
    assert plan.promise.certain == bundle.promise.certain
    facts = plan_facts(plan)
    assert facts["certainty"] == {"apart_m": 100, "for_s": 3600, "right": found}
    assert facts["limit_m"] == 2000 / plan.schedule.epsilon
    assert facts["recommended"]["on_the_road"] is None
    assert metres_of("x", "1km") == 1000
    with pytest.raises(ParameterError, match="nothing to draw"):
        plan.plot()


def test_without_a_wish_two_places_100_m_apart_are_told_apart_70_times_in_100() -> None:
    plan = make_plan(TOWN)
    assert plan.schedule == make_plan(TOWN, Wishes(sure=0.7)).schedule
    assert plan.fence_km == 1.0
    assert not plan.outcomes
