from __future__ import annotations

import numpy as np
import pytest

from geoblanket.blanket.independence import lagged
from geoblanket.errors import ParameterError

WINDOW = np.random.default_rng(1).normal(size=(7, 6, 2))


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_the_locations_can_be_had_back_from_the_displacements(m: int, block: bool) -> None:
    x, y, z = lagged(WINDOW, m, block=block)
    given = [z[:, :2]]
    for step in range(1, m):
        given.append(given[-1] - z[:, 2 * step : 2 * step + 2])
    older = [given[-1]]
    for step in range(y.shape[1] // 2):
        older.append(older[-1] - y[:, 2 * step : 2 * step + 2])
    assert np.allclose(given[0] + x, WINDOW[:, 0])
    assert np.allclose(np.stack(given, axis=1), WINDOW[:, 1 : m + 1])
    last = 6 if block else m + 2
    assert np.allclose(np.stack(older[1:], axis=1), WINDOW[:, m + 1 : last])


@pytest.mark.parametrize("m", [0, 5])
def test_m_must_fit_the_window(m: int) -> None:
    with pytest.raises(ParameterError, match="m must be from 1 to 4"):
        lagged(WINDOW, m)


def test_a_window_has_three_dimensions() -> None:
    with pytest.raises(ParameterError, match=r"\(7, 6\)"):
        lagged(WINDOW[:, :, 0], 1)
