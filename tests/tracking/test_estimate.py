from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize

from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m
from geoblanket.loss import StraightLine
from geoblanket.tracking.estimate import Estimator, geometric_median
from geoblanket.tracking.motion_model import MotionModel
from tests.release.worlds import PLACES

MODEL = MotionModel.by_distance(PLACES.coordinates_e7, interval_s=30.0)
BELIEFS = np.random.default_rng(7).dirichlet(np.full(len(PLACES), 0.4), size=12).T.astype(np.float32)


def expected_m(belief: np.ndarray, point: np.ndarray) -> float:
    return float(belief @ np.hypot(*(MODEL.xy_m - point).T))


def test_the_estimate_is_the_point_of_least_expected_distance() -> None:
    """Against a general minimiser, started at the best place: two percent is what six iterations leave."""
    found = Estimator(MODEL).estimates(BELIEFS)
    points = MODEL.to_plane(found.lat, found.lon)
    for belief, point in zip(BELIEFS.T.astype(float), points, strict=True):
        starts = (point, MODEL.xy_m[belief.argmax()])
        best = min(minimize(partial(expected_m, belief), start, method="Nelder-Mead").fun for start in starts)
        assert expected_m(belief, point) <= 1.02 * best


def test_the_geometric_median_has_the_least_sum_of_distances() -> None:
    points = np.random.default_rng(2).normal(size=(3, 9, 2))
    median = geometric_median(points, nearest=1e-3)

    def distances(to: Floats) -> Floats:
        total: Floats = np.linalg.norm(points - to[:, None], axis=-1).sum(axis=1)
        return total

    for step in ((0.05, 0), (-0.05, 0), (0, 0.05), (0, -0.05)):
        assert (distances(median) < distances(median + step)).all()


def test_a_loss_of_ones_own_chooses_a_place() -> None:
    found = Estimator(MODEL, StraightLine(PLACES)).estimates(BELIEFS)
    distance = haversine_m(PLACES.lat[:, None], PLACES.lon[:, None], PLACES.lat, PLACES.lon)
    best = (distance.T @ BELIEFS).argmin(axis=0)
    np.testing.assert_allclose(found.lat, PLACES.lat[best], atol=1e-6)
    np.testing.assert_allclose(found.lon, PLACES.lon[best], atol=1e-6)


def test_the_radius_holds_nine_tenths() -> None:
    estimator = Estimator(MODEL)
    found = estimator.estimates(BELIEFS)
    held = [
        estimator.within(BELIEFS[:, [column]], found.lat[column], found.lon[column], float(found.radius_m[column]))[0]
        for column in range(BELIEFS.shape[1])
    ]
    less = [
        estimator.within(BELIEFS[:, [column]], found.lat[column], found.lon[column], found.radius_m[column] - 11.0)[0]
        for column in range(BELIEFS.shape[1])
    ]
    assert min(held) >= 0.9 > max(less)


def test_the_likeliest_places_come_first() -> None:
    places, chances = Estimator(MODEL).likeliest(BELIEFS, 3)
    assert places.shape == (3, 12)
    np.testing.assert_array_equal(places[0], BELIEFS.argmax(axis=0))
    assert (np.diff(chances, axis=0) <= 0).all()
    assert chances[0].tolist() == pytest.approx(BELIEFS.max(axis=0).tolist(), rel=1e-5)
