from __future__ import annotations

import math

import pytest

from geoblanket._display import (
    Interval,
    counted,
    interval_text,
    number,
    p_text,
    parameter,
    percent,
    share,
    signed,
    text,
)


@pytest.mark.parametrize(("low", "high"), [(None, 1.0), (0.0, None), (-math.inf, math.inf), (0.0, math.inf)])
def test_an_interval_has_two_finite_bounds_or_is_none(low: float | None, high: float | None) -> None:
    assert Interval.of(low, high) is None
    assert Interval.of(0.25, 0.75) == Interval(0.25, 0.75)
    assert Interval(0.25, 0.75).half == 0.25


def test_an_interval_is_above_another() -> None:
    low, middle, high = Interval(0, 1), Interval(1, 2), Interval(1.5, 3)
    assert high.above(low)
    assert not low.above(high)
    assert not middle.above(low)


def test_numbers_as_people_write_them() -> None:
    assert (number(2.0), number(math.inf), number("too short")) == ("2", "∞", "too short")
    assert (percent(0.125), percent(-0.042), percent(0.02, 0.3), percent(0.3, 0.3)) == (
        "12%",
        "−4.2%",
        "2.0% to 30%",
        "30%",
    )
    assert (share(0.5), share(None), signed(-0.5), signed(None)) == ("50.0%", "–", "-0.500", "–")
    assert (p_text(0.0004), p_text(0.04), p_text(None)) == ("< 0.001", "0.040", "–")
    assert (counted(1, "group"), counted(1200, "group")) == ("1 group", "1,200 groups")
    assert interval_text(Interval(-0.01, 0.02), ".1%") == "−1.0% to 2.0%"
    assert text(0.15, ".2f", Interval(0.1, 0.2)) == "0.15 (0.10 to 0.20)"
    assert (text(0.15), text(None)) == ("0.15", "–")


def test_parameters_of_every_kind() -> None:
    assert parameter({"a": [1.0, math.inf], "b": None, "c": {"d": "e"}, "f": True}) == "a: 1, ∞; b: –; c: d: e; f: true"
