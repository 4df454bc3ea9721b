"""The known Markov order, seen from outside: regressions that know nothing of how the city moves."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.stats import chi2

from geoblanket.lab.city.fleet import make_schedule, walk_blocks
from geoblanket.lab.city.model import City
from geoblanket.lab.city.moves import BANDS, ORDERS
from geoblanket.lab.city.plan import DISTRICTS

SAMPLE = 2000
SAMPLES = 6


@dataclass
class Steps:
    """Windows of five ticks: X_t, X_{t-1}, ..., X_{t-4} in metres, shape (n, 5, 2)."""

    places: np.ndarray
    district: np.ndarray
    band: np.ndarray


def windows(city: City, trips: int) -> Steps:
    parts = []
    for walks in walk_blocks(city, make_schedule(trips, seed=7)):
        number = np.arange(len(walks.node)) - np.repeat(walks.offsets[:-1], walks.ticks)
        at = np.flatnonzero(number >= 4)
        places = np.stack([city.streets.points[walks.node[at - lag]] for lag in range(5)], 1)
        parts.append((places, city.district[walks.node[at - 1]], walks.band[at]))
    return Steps(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@pytest.fixture(scope="module")
def steps(medium_city: City) -> Steps:
    return windows(medium_city, 16_000)


def p_value(places: np.ndarray, lag: int, rng: np.random.Generator) -> float:
    """Test X_t independent of X_{t-lag-1} given X_{t-1}, ..., X_{t-lag}.

    Both displacements are regressed on random Fourier features of the condition; under independence the products of
    the residuals have mean zero, so n · mean' Σ⁻¹ mean is χ² with four degrees of freedom.
    """
    moved = places[:, :-1] - places[:, 1:]
    target, other = _standard(moved[:, 0]), _standard(moved[:, lag])
    position = _standard(places[:, 1])
    features = [np.ones((len(position), 1)), position, _fourier(position, 150, 0.5, rng)]
    if lag > 1:
        nearer = _standard(moved[:, 1:lag].reshape(len(moved), -1))
        both = np.concatenate([position, nearer], 1)
        features += [nearer, _fourier(nearer, 80, 1.5, rng), _fourier(both, 120, 1.5, rng)]
    design = np.concatenate(features, 1)
    hat = np.linalg.solve(design.T @ design + 0.1 * np.eye(design.shape[1]), design.T)
    shrink = np.sqrt(1.0 - (design * hat.T).sum(1))[:, None]
    left, right = ((values - design @ (hat @ values)) / shrink for values in (target, other))
    products = (left[:, :, None] * right[:, None, :]).reshape(-1, 4)
    mean = products.mean(0)
    return float(chi2.sf(len(products) * mean @ np.linalg.solve(products.T @ products / len(products), mean), 4))


def _standard(values: np.ndarray) -> np.ndarray:
    result: np.ndarray = (values - values.mean(0)) / values.std(0)
    return result


def _fourier(values: np.ndarray, count: int, length: float, rng: np.random.Generator) -> np.ndarray:
    frequency = rng.normal(size=(values.shape[1], count)) / length
    result: np.ndarray = np.cos(values @ frequency + rng.uniform(0, 2 * np.pi, count)) * np.sqrt(2 / count)
    return result


def p_values(steps: Steps, district: str, band: str, lag: int) -> np.ndarray:
    """Return p-values of disjoint samples of the steps that leave a district's nodes in a band."""
    rng = np.random.default_rng([lag, len(district), len(band)])
    inside = (steps.district == DISTRICTS.index(district)) & (steps.band == BANDS.index(band))
    chosen = rng.permutation(np.flatnonzero(inside))
    assert len(chosen) >= SAMPLE * SAMPLES, "too few trips for this test"
    samples = chosen[: SAMPLE * SAMPLES].reshape(SAMPLES, SAMPLE)
    return np.array([p_value(steps.places[sample], lag, rng) for sample in samples])


@pytest.mark.parametrize(("district", "band"), ORDERS)
def test_every_lag_below_the_order_is_seen(steps: Steps, district: str, band: str) -> None:
    for lag in range(1, ORDERS[district, band]):
        assert (p_values(steps, district, band, lag) < 1e-6).all()


@pytest.mark.parametrize(("district", "band"), ORDERS)
def test_no_lag_beyond_the_order_is_seen(steps: Steps, district: str, band: str) -> None:
    p = p_values(steps, district, band, ORDERS[district, band])
    assert (p < 0.01).sum() <= 1
    assert np.median(p) > 0.05


def test_a_wrong_order_would_be_seen(medium_city: City) -> None:
    """A city that remembers one node more than it says fails the test above."""
    moves = medium_city.moves
    liar = replace(medium_city, moves=replace(moves, order=np.where(moves.order == 2, 3, moves.order).astype(np.uint8)))
    p = p_values(windows(liar, 6_000), "downtown", "slow", 2)
    assert (p < 1e-6).all()
