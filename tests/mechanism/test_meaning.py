"""What ε means, against closed forms and draws."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from geoblanket.errors import ParameterError
from geoblanket.mechanism.meaning import DISTANCES_KM, laplace_errors, odds, odds_in_words


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
