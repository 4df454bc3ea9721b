from __future__ import annotations

import numpy as np
import pytest

from geoblanket.errors import ParameterError
from geoblanket.planning.by_distance import schedule_by_distance


def noise_km(rng: np.random.Generator, epsilon: float, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Draw planar Laplace noise."""
    radius, angle = rng.gamma(2, 1 / epsilon, count), rng.uniform(0, 2 * np.pi, count)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


@pytest.mark.parametrize("off_km", [0.25, 0.5, 4.0])
@pytest.mark.parametrize("anchored", [False, True])
def test_half_of_all_reports_are_further_off(off_km: float, anchored: bool) -> None:
    schedule = schedule_by_distance(off_km, interval_s=60, anchored=anchored)
    rng = np.random.default_rng(3)
    total = noise_km(rng, schedule.epsilon, 40_000)
    if schedule.anchor_epsilon is not None:
        total += noise_km(rng, schedule.anchor_epsilon, 40_000)
    # ε is rounded down to two digits, so reports may be further off than asked for by up to 9 %.
    assert 0.45 < np.mean(np.hypot(*total.T) < off_km) < 0.51
    assert (schedule.interval_s, schedule.anchor_epsilon) == (60, schedule.epsilon if anchored else None)


def test_what_devices_refuse_is_not_recommended() -> None:
    assert schedule_by_distance(0.085, interval_s=30, anchored=False).epsilon <= 20
    with pytest.raises(
        ParameterError, match=r"must be from 0\.01 to 20 per km\. Got 20\.9[0-9]* instead\. Devices refuse"
    ):
        schedule_by_distance(0.08, interval_s=30, anchored=False)
