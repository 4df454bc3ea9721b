"""What ε means, against closed forms and draws."""

from __future__ import annotations

import math
import random
import re

import numpy as np
import pytest
from geoblanket.mechanism.lattice.anchor import make_anchor

from geoblanket.errors import ParameterError
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.mechanism.meaning import DISTANCES_KM, AtRest, laplace_errors, lattice_in_words, odds, odds_in_words
from geoblanket.planning.schedules import Schedule


def test_odds_at_distances() -> None:
    assert odds(2, 0.5) == pytest.approx(math.e)
    assert odds_in_words(2) == (
        "Whatever is reported, it is at most so many times as probable from one location as from another: 1.2 times "
        "for 100 m, 2.7 times for 500 m and 7.4 times for 1 km between them."
    )
    assert "a million or more times for 1 km" in odds_in_words(50)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.1, 0.3, 1.0])
def test_a_small_epsilon_is_not_once_as_probable(epsilon: float) -> None:
    """Rounded to 1, the sentence would promise more than is true, and the same at every distance."""
    told = [float(times) for times in re.findall(r"([\d.]+) times for", odds_in_words(epsilon))]
    assert len(set(told)) == 3
    for value, km in zip(told, DISTANCES_KM, strict=True):
        assert 1 < value == pytest.approx(odds(epsilon, km), rel=0.05)
        assert value >= odds(epsilon, km) or value >= 1.2


@pytest.mark.parametrize("epsilon", [0.1, 2.0, 30.0])
def test_errors_of_planar_laplace(epsilon: float) -> None:
    errors = laplace_errors(epsilon)
    assert errors.mean_km == pytest.approx(2 / epsilon, rel=0.01)
    # (1 + r)·e^(−r) = 1/2 and 1/20.
    assert errors.median_km == pytest.approx(1.67835 / epsilon, rel=0.02)
    assert errors.most_km == pytest.approx(4.74386 / epsilon, rel=0.02)


@pytest.mark.parametrize(("epsilon", "anchor"), [(2.0, 2.0), (8.0, 4.0)])
def test_errors_with_an_anchor(epsilon: float, anchor: float) -> None:
    rng = np.random.default_rng(11)
    noise = sum(
        rng.gamma(2, 1 / each, 200_000) * np.exp(2j * np.pi * rng.random(200_000)) for each in (epsilon, anchor)
    )
    drawn = np.abs(noise)
    errors = laplace_errors(epsilon, anchor)
    assert errors.mean_km == pytest.approx(drawn.mean(), rel=0.01)
    assert errors.median_km == pytest.approx(float(np.median(drawn)), rel=0.02)
    assert errors.most_km == pytest.approx(float(np.quantile(drawn, 0.95)), rel=0.02)


def test_an_epsilon_of_nothing_is_refused() -> None:
    with pytest.raises(ParameterError):
        laplace_errors(0)


def test_a_night_can_begin_within_a_period() -> None:
    assert AtRest(4.0, 30.0).night_cost == 3840
    assert AtRest(4.0, 30.0, 4.0).night_cost == 36
    assert AtRest(4.0, 30.0, 4.0, 86_400).night_cost == 8
    # Rare reports tell less than the anchors allow.
    assert AtRest(1.0, 3600.0, 4.0).night_cost == 8


def test_nights_add_up() -> None:
    # Without an anchor, √(π/n)/ε; with one an hour, each night has nine shifts.
    assert [*AtRest(4.0, 30.0).found_m.values()] == pytest.approx([40, 14, 5.4, 2.6], rel=0.03)
    assert [*AtRest(4.0, 30.0, 4.0).found_m.values()] == pytest.approx([500, 148, 55.8, 27], rel=0.01)
    # With one a day, nights share days: two, eight and 31 of them.
    assert AtRest(4.0, 30.0, 4.0, 86_400).found_m["month"] == pytest.approx(250 * math.sqrt(math.pi / 31))


@pytest.fixture(scope="module")
def anchored() -> Lattice:
    """A small frame with ε = 8 and ε₀ = 4 per km for an hour."""
    spec = spec_over(Area.around(45.0, 7.0, 3.0), epsilon=8.0)
    return Lattice.verified(spec, make_anchor(spec.plane, epsilon_micro=4_000_000, period_s=3600))


def test_parked_cars_are_found_as_near_as_the_formula_says(anchored: Lattice) -> None:
    """By the most probable centre of a night's and of a week's shifted points, as the product itself draws them."""
    plane, anchor = anchored.spec.plane, anchored.anchor
    assert anchor is not None
    below, middle = random.Random(5).randrange, plane.side // 2  # noqa: S311
    found_m = AtRest(8.0, 120.0, 4.0).found_m
    for name, periods, homes in (("night", 9, 80), ("week", 63, 40)):
        shifts = np.array([anchor.draw(plane.side, below) for _ in range(homes * periods)])
        east, north = np.repeat(shifts, 30, axis=0).T
        cells = anchored.draw_many_at(np.full(len(east), middle), np.full(len(east), middle), shift=(east, north))
        row, column = np.divmod(cells, anchored.spec.cells_across)
        m = (np.stack([column, row], axis=-1) + 0.5) * anchored.cell_m - middle * plane.unit_mm / 1000
        of_periods = np.median(m.reshape(homes, periods, 30, 2), axis=2)
        guess = np.median(of_periods, axis=1, keepdims=True)
        for _ in range(60):
            weight = 1 / np.maximum(np.linalg.norm(of_periods - guess, axis=-1, keepdims=True), 1e-6)
            guess = (weight * of_periods).sum(1, keepdims=True) / weight.sum(1, keepdims=True)
        assert np.linalg.norm(guess[:, 0], axis=-1).mean() == pytest.approx(found_m[name], rel=0.25)


def test_everybody_says_the_same_of_a_night(anchored: Lattice) -> None:
    """A lattice's words, a plan's and the page's: one sentence, from one place."""
    words = AtRest(8.0, 60.0, 4.0).in_words()
    assert words == (
        "A night of 8 hours at one place costs at most 36 per km, however many reports are made. A recipient of all "
        "reports is about 500 m off after an hour there and 150 m after a night. After a week of nights it is 56 m, "
        "after a month 27 m. Somebody who knows where other reports of a period were made learns more."
    )
    assert lattice_in_words(anchored, 60.0)[-1] == words == Schedule(8.0, 60.0, 4.0).at_rest.in_words()
    assert "3,840 per km: without an anchor every report counts" in AtRest(8.0, 60.0).in_words()
    assert "about 440 m off after an hour" in AtRest(8.0, 60.0, 4.0).in_words(hour_m=444.0)
