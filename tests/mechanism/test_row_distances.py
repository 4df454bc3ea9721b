from __future__ import annotations

import numpy as np
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket.mechanism import row_distances
from geoblanket.mechanism.problem import NEVER_MM
from geoblanket.mechanism.row_distances import row_distance_mm

RNG = np.random.default_rng(5)
PLACES = np.column_stack([411_500_000 + RNG.integers(0, 99_999, 12), -86_200_000 + RNG.integers(0, 99_999, 12)])
PLACES_E7 = PLACES.astype(np.int32)


@pytest.mark.parametrize("weights", [(), (1_000_000,), (500_000, 0), (NEVER_MM, 1_000_000)])
@pytest.mark.parametrize("cells", [1, 100, 1 << 22])
def test_the_smallest_between_histories(weights: tuple[int, ...], cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_distances, "_BLOCK_CELLS", cells)
    histories = RNG.integers(-1, 12, (60, 1 + len(weights))).astype(np.int32)
    histories[:, 0] = np.maximum(histories[:, 0], 0)
    rows = np.append(np.arange(9), RNG.integers(0, 9, 51)).astype(np.int32)
    expected = np.full((9, 9), np.inf)
    lat, lon = PLACES_E7.T * 1e-7
    for one, row in zip(histories, rows, strict=True):
        for other, other_row in zip(histories, rows, strict=True):
            total = 0.0
            for now, then, weight in zip(one, other, (10**6, *weights), strict=True):
                apart = float(haversine_m(lat[now], lon[now], lat[then], lon[then])) * 1000
                if min(now, then) >= 0 and apart:
                    total += np.inf if weight == NEVER_MM else apart * (weight / 1e6)
            expected[row, other_row] = min(expected[row, other_row], total)
    np.testing.assert_allclose(row_distance_mm(PLACES_E7, histories, rows, weights), expected, rtol=1e-14)
