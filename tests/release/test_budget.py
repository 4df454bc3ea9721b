from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.errors import ParameterError, RefusedError
from geoblanket.mechanism.costs import Costs, Counted
from geoblanket.mechanism.problem import NEVER_MM
from geoblanket.release.budget import Account, Answer, Budget

SECOND = 1000


def answer(slot_ms: int, cost: int, request: str | None = None) -> Answer:
    return Answer(slot_ms, cost, 7, 1, 2, request, slot_ms * 10**6)


def checked(account: Account, slot_ms: int, cost: int) -> int:
    """What is left, if the report is made when its slot begins."""
    return account.checked_left_micro(slot_ms, slot_ms * 10**6, cost)


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 50)), max_size=60),
    st.integers(1, 120),
    st.integers(1, 60),
)
def test_no_window_ever_costs_more_than_the_budget(asked: list[tuple[int, int]], limit: int, window: int) -> None:
    """And nothing is refused that would not have cost more."""
    account = Account(Budget(limit / 1e6, float(window)))
    made: list[Answer] = []
    now = 1_000_000
    for gap, cost in asked:
        now += gap * SECOND
        recent = sum(report.cost_micro for report in made if report.slot_ms > now - window * SECOND)
        if recent + cost > limit:
            with pytest.raises(RefusedError, match="budget"):
                checked(account, now, cost)
            waits = [wait for wait, left in account.freeing(now, now * 10**6) if left >= cost]
            allowed = (
                wait
                for wait in range(0, (window + 1) * SECOND, SECOND)
                if cost + sum(o.cost_micro for o in made if o.slot_ms > now + wait - window * SECOND) <= limit
            )
            assert next(iter(waits), None) == next(allowed, None)
            continue
        assert checked(account, now, cost) == limit - recent - cost
        made.append(answer(now, cost))
        account.add(made[-1])
    for report in made:
        assert (
            sum(o.cost_micro for o in made if report.slot_ms - window * SECOND < o.slot_ms <= report.slot_ms) <= limit
        )
    assert (account.reports, account.spent_micro) == (len(made), sum(report.cost_micro for report in made))
    assert all(first.slot_ms < second.slot_ms for first, second in pairwise(account.answers))


def test_one_unit_too_much_is_refused() -> None:
    account = Account(Budget(0.00001, 60.0))
    account.add(answer(1000, 4))
    assert checked(account, 2000, 6) == 0
    with pytest.raises(RefusedError, match="budget of this window"):
        checked(account, 2000, 7)
    assert checked(account, 61_000, 10) == 0
    with pytest.raises(RefusedError):
        checked(account, 60_999, 10)
    assert checked(account, 2000, 0) == 6
    with pytest.raises(ParameterError, match="less than nothing"):
        checked(account, 2000, -1)
    with pytest.raises(RefusedError):
        checked(account, 2000, 10**30)


def test_times_only_go_forward() -> None:
    account = Account(Budget(1.0, 60.0))
    account.add(answer(10_000_000, 1))
    for slot_ms in (10_000_000, 9_999_999, 0):
        with pytest.raises(RefusedError, match="later report") as caught:
            checked(account, slot_ms, 1)
        assert caught.value.reason == "time"
    # A clock that was set forward and back again gets nothing.
    account.add(answer(99_000_000, 1))
    with pytest.raises(RefusedError, match="later report"):
        checked(account, 11_000_000, 0)


def test_stored_answers_are_found_by_slot_and_by_request_as_long_as_they_are_in_the_window() -> None:
    account = Account(Budget(1.0, 60.0))
    first, second = answer(1000, 1, "a"), answer(31_000, 1)
    account.add(first)
    account.add(second)
    assert account.stored(1000, None) == account.stored(5, "a") == account.stored(31_000, "a") == first
    assert account.stored(31_000, "b") == second
    assert account.stored(2000, None) is None
    account.add(answer(61_000, 1, "c"))
    assert account.stored(1000, "a") is None
    assert account.stored(31_000, None) == second


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 1e16, True, "1", None])
def test_budgets_are_checked(value: Any) -> None:
    with pytest.raises(ParameterError, match=r"epsilon.* must be"):
        Budget(value, 60.0)
    with pytest.raises(ParameterError, match=r"window_s.* must be"):
        Budget(1.0, value)


def test_budgets_are_whole_numbers_rounded_to_the_safe_side() -> None:
    budget = Budget(0.3, 0.1234567)
    assert (budget.micro, budget.window_ms) == (300_000, 124)
    assert Budget(1.0000019, 1).micro == 1_000_001


def table(regime: str, epsilon_micro: int, weights_micro: tuple[int, ...]) -> Counted:
    return SimpleNamespace(regime=regime, epsilon_micro=epsilon_micro, history_weights_micro=weights_micro)


def spent_on_each(epsilon: float, weights: list[float], length: int) -> list[float]:
    """What each place of a walk costs, added up report by report, as the rule fills histories."""
    past = len(weights)
    spent = [0.0] * (length + past)
    for now in range(length + past):
        counted = [1.0, *weights] if now else [1.0]
        for lag, weight in enumerate(counted):
            spent[max(now - lag, 0)] += epsilon * weight
    return spent[:length]


@pytest.mark.parametrize("weights", [[], [1.0], [1.0, 0.5], [0.25, 0.5, 2.0], [0.0, 1.0]])
def test_costs_are_those_of_the_places_added_up_report_by_report(weights: list[float]) -> None:
    tables = [table("start", 2_000_000, ()), table("day", 2_000_000, tuple(int(w * 1e6) for w in weights))]
    costs = Costs.of(tables, "start")
    first, *others = spent_on_each(2.0, weights, 20)
    assert costs.start == pytest.approx(first * 1e6)
    assert costs.other == pytest.approx(max(others) * 1e6)


def test_costs_cover_any_order_of_regimes() -> None:
    """A place may be the last one by day and the one before by night: it pays the dearest of each."""
    tables = [
        table("start", 1_000_000, ()),
        table("day", 1_000_000, (1_000_000, 0)),
        table("night", 1_000_000, (0, 1_000_000)),
    ]
    assert Costs.of(tables, "start").other == 3_000_000


def test_costs_are_rounded_up_and_a_known_past_is_free() -> None:
    assert Costs.of([table("start", 1, ()), table("day", 1, (1,))], "start") == (2, 2)
    assert Costs.of([table("start", 5, ()), table("day", 5, (NEVER_MM,))], "start") == (5, 5)
    assert Costs.of([table("start", 0, ()), table("day", 0, (1_000_000,))], "start") == (0, 0)
