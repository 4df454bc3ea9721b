"""What ε means, against closed forms and draws."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace

import numpy as np
import pytest

from geoblanket.errors import ParameterError
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.mechanism.promise import (
    DISTANCES_KM,
    AtRest,
    fenced_in_words,
    fenced_m,
    laplace_errors,
    odds,
    odds_in_words,
)
from geoblanket.release.fence import point_in_disc
from tests import predictable


def test_odds_at_distances() -> None:
    assert odds(2, 0.5) == pytest.approx(math.e)
    assert odds_in_words(2) == (
        "One report changes the odds between two locations by at most a factor of 1.3 at 100 m, 2.8 at 500 m and "
        "7.4 at 1 km."
    )
    assert "a million or more at 1 km" in odds_in_words(50)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.1, 0.3, 1.0, 2.0, 4.0, 7.3])
def test_factors_are_rounded_up(epsilon: float) -> None:
    """Rounded down, or to 1, the sentence would promise more than is true."""
    told = [float(times.replace(",", "")) for times in re.findall(r"([\d.,]+) at [\d.]+ k?m", odds_in_words(epsilon))]
    assert len(set(told)) == 3
    for value, km in zip(told, DISTANCES_KM, strict=True):
        assert 1 < odds(epsilon, km) <= value == pytest.approx(odds(epsilon, km), rel=0.1)


@pytest.mark.parametrize("epsilon", [0.1, 2.0, 30.0])
def test_errors_of_planar_laplace(epsilon: float) -> None:
    errors = laplace_errors(epsilon)
    assert errors.mean_km == pytest.approx(2 / epsilon, rel=1e-6)
    # (1 + r)·e^(−r) = 1/2 and 1/20.
    assert errors.median_km == pytest.approx(1.67835 / epsilon, rel=1e-5)
    assert errors.most_km == pytest.approx(4.74386 / epsilon, rel=1e-5)


def test_an_epsilon_of_nothing_is_refused() -> None:
    with pytest.raises(ParameterError):
        laplace_errors(0)


def test_a_stay_costs_one_report_if_it_is_held() -> None:
    assert AtRest(4.0, 30.0, 50.0).night_cost == 4
    assert AtRest(0.7, 30.0, 50.0).night_cost == 0.7
    assert AtRest(4.0, 30.0).night_cost == 3840
    assert AtRest(0.7, 4800.0).night_cost == 4.2  # in whole millionths, as ledgers count


def test_returns_add_up() -> None:
    # One draw is 2/ε off, n of them √(π/n)/ε: with hold one for each night, without it all of its reports.
    assert [*AtRest(4.0, 30.0, 50.0).found_m.values()] == pytest.approx([500, 500, 167, 81], rel=0.01)
    assert [*AtRest(4.0, 30.0).found_m.values()] == pytest.approx([40, 14, 5.4, 2.6], rel=0.03)


@pytest.fixture(scope="module")
def held() -> Lattice:
    """A small frame with ε = 8 per km."""
    return Lattice.verified(spec_over(Area.around(45.0, 7.0, 3.0), epsilon=8.0), 50_000)


def test_homes_are_found_as_near_as_the_formula_says(held: Lattice, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the most probable centre of a week's and of a month's draws, as the product itself draws them."""
    monkeypatch.setenv(predictable.MARKER, predictable.MARKER_VALUE)
    plane, rng = held.spec.plane, np.random.default_rng(5)
    middle, found_m = plane.side // 2, AtRest(held.epsilon, 120.0, held.hold_m).found_m
    for name, nights, homes in (("night", 1, 400), ("week", 7, 150), ("month", 30, 100)):
        here = np.full(homes * nights, middle)
        with predictable.predictable_words(rng.integers(0, 2**62, homes * nights)):
            cells = held.draw_many_at(here, here)
        row, column = np.divmod(cells, held.spec.cells_across)
        m = (np.stack([column, row], axis=-1) + 0.5) * held.cell_m - middle * plane.unit_mm / 1000
        draws = m.reshape(homes, nights, 2)
        guess = np.median(draws, axis=1, keepdims=True)
        for _ in range(60):
            weight = 1 / np.maximum(np.linalg.norm(draws - guess, axis=-1, keepdims=True), 1e-6)
            guess = (weight * draws).sum(1, keepdims=True) / weight.sum(1, keepdims=True)
        assert np.linalg.norm(guess[:, 0], axis=-1).mean() == pytest.approx(found_m[name], rel=0.2)


def test_a_fence_keeps_less_than_the_distance_to_its_centre() -> None:
    """Two thirds of the radius, if nothing is known about homes; a prior over homes helps."""
    drawn = random.Random(6)  # noqa: S311
    away = np.mean([math.hypot(*point_in_disc(500, drawn.randrange)) for _ in range(4000)])
    assert away == pytest.approx(1000 / 3, rel=0.02)
    assert 0.8 * away < fenced_m(0.5) < away
    words = fenced_in_words(1, 0.066)
    assert "about 570 m off, after any number of nights. Two places 100 m apart: right 54 times in 100, once" in words
    assert "(50 would be chance; δ = 6.6 %)" in words


def test_everybody_says_the_same_of_a_stay(held: Lattice) -> None:
    """A lattice's words, a plan's and the page's: one sentence, from one place."""
    words = AtRest(8.0, 60.0, 50.0).in_words()
    assert words == (
        "A stay costs one report, however long: a recipient of all reports is about 250 m off (8 per km). Each return "
        "is a new draw. After a week of nights the recipient is 84 m off (56 per km), after a month 40 m (240 per km). "
        "A fence of 1 km keeps a home about 570 m off, however many nights are seen. Knowledge of streets and habits "
        "brings a guess nearer."
    )
    assert replace(held.promise, interval_s=60.0).meaning[-1] == words
    assert AtRest(8.0, 60.0).in_words().startswith("Every report at rest is a new draw: ")
    assert (
        "about 29 m off after an hour at one place and 10 m after a night (3,840 per km)." in AtRest(8.0, 60).in_words()
    )
