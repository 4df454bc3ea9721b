"""What one report tells somebody who knows where the city ends."""

from __future__ import annotations

import numpy as np
import pytest

from geoblanket.service.explore_lattice import WholeCity

KM = 1 / 111.195
"""A kilometre in degrees, at the equator."""


def square(side_km: float) -> WholeCity:
    return WholeCity(-side_km / 2 * KM, 0.0, side_km / 2 * KM, side_km * KM)


def test_without_a_report_the_middle_is_the_best_guess() -> None:
    city = square(10)
    assert city.size_km == pytest.approx((10, 10), rel=1e-3)
    assert city.unreported_km() == pytest.approx(3.826, rel=0.005)  # the mean distance from the middle of a square


def test_a_report_is_never_worse_than_none() -> None:
    city = square(10)
    errors = [city.reported_km(epsilon) for epsilon in (0.05, 0.5, 1, 2)]
    assert errors == sorted(errors, reverse=True)
    # Noise of 40 km tells next to nothing in a city of 10: the report itself would be a guess of 40 km.
    assert 0.97 * city.unreported_km() < errors[0] < 1.03 * city.unreported_km()
    assert errors[-1] < 2 / 2  # the mean error of a report; near an edge one knows more


def test_how_much_of_the_noise_falls_into_the_city() -> None:
    city = square(10)
    for lat, lon, share in ((0.0, 5 * KM, 1.0), (0.0, 0.0, 0.5), (-5 * KM, 10 * KM, 0.25), (0.0, -4 * KM, 0.0)):
        found = city.mean_per_km2(2.0, lat, lon) * city.area_km2
        assert found == pytest.approx(share, abs=0.03)
    assert np.isfinite(city.mean_per_km2(2.0, 60.0, 170.0))
