"""The hypotheses of Markov order: "given the last m locations, the present one does not depend on an older one".

They are stated in displacements. Given X_{t-1}, the location X_t and the displacement X_t - X_{t-1} say the same, and
so on down the past: the hypothesis is the same, but columns that were nearly equal (positions a few seconds apart)
become columns that are nearly uncorrelated.
"""

from __future__ import annotations

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError

__all__ = ["lagged"]


@checked
def lagged(window: Floats, m: int, *, block: bool = False) -> tuple[Floats, Floats, Floats]:
    """Return x, y and z of the hypothesis X_t ⟂ X_{t-m-1} | X_{t-1}, …, X_{t-m}.

    Parameters
    ----------
    window
        Positions in metres, east and north, shape (n, T, 2): X_t, X_{t-1}, …, X_{t-T+1} of each sample.
    m
        How many past locations are given, from 1 to T - 2.
    block
        Take for y not X_{t-m-1} alone but all older locations X_{t-m-1}, …, X_{t-T+1}. A dependence that skips a lag
        is seen by this hypothesis alone.

    Returns
    -------
    x, y, z
        x is the displacement X_t - X_{t-1}, shape (n, 2). y is X_{t-m} - X_{t-m-1}, shape (n, 2), or with `block` that
        and each older displacement, shape (n, 2 (T - 1 - m)). z is the position X_{t-1} and then the displacements
        X_{t-1} - X_{t-2}, …, X_{t-m+1} - X_{t-m}, shape (n, 2 m). All in metres.
    """
    window = np.asarray(window, np.float64)
    if window.ndim != 3 or window.shape[2] != 2:
        raise ParameterError(f"The window must have the shape (n, T, 2). Got {window.shape} instead.")
    samples, length, _ = window.shape
    if not 1 <= m <= length - 2:
        raise ParameterError(
            f"m must be from 1 to {length - 2}: the window has {length} locations, and the hypothesis needs m + 2. "
            f"Got {m} instead."
        )
    steps = window[:, :-1] - window[:, 1:]
    last = length - 1 if block else m + 1
    x = steps[:, 0]
    y = steps[:, m:last].reshape(samples, -1)
    z = np.concatenate([window[:, 1], steps[:, 1:m].reshape(samples, -1)], axis=1)
    return x, y, z
