"""The exponential mechanism: an output is the less probable, exponentially, the further it lies from the row.

q[s, y] = e^(−t·D[s, y]) / Z_s with D the distance from row to output (McSherry and Talwar, FOCS 2007; for metrics,
Chatzikokolakis, Andrés, Bordenabe, Palamidessi, PETS 2013). If |D[s, y] − D[s', y]| ≤ d(s, s'), then t = ε/2 keeps the
promise, one half for the exponentials and one for Z: the published form. Z seldom uses its half, so a larger t often
does too: the calibrated form takes the largest.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from geoblanket._arrays import Floats
from geoblanket.mechanism.baselines._finish import from_probabilities, output_distances
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem

__all__ = ["exponential", "exponential_probabilities"]

_LARGEST_FACTOR = 2**20
_HALVINGS = 40


def exponential(problem: Problem, output_distance_km: npt.ArrayLike, *, calibrated: bool = False) -> Mechanism:
    """Return the exponential mechanism.

    Parameters
    ----------
    problem
        Its loss and prior are not used.
    output_distance_km
        How far each output lies from each row, kilometres, shape (S, K). Where rows share a class (0 mm apart) the
        mean over the class is used.
    calibrated
        False: the published form, t = ε/2 (less where the distances do not obey the triangle inequality, so that it
        would break the promise). True: the largest t that keeps the promise, found by doubling and bisection.
    """
    return from_probabilities(exponential_probabilities(problem, output_distance_km, calibrated=calibrated), problem)


def exponential_probabilities(problem: Problem, output_distance_km: npt.ArrayLike, *, calibrated: bool) -> Floats:
    """Return the probabilities of the exponential mechanism for the rows of `problem.merged()`."""
    scale = _Scale(output_distances(problem, output_distance_km), problem.merged().log_bound)
    half = problem.epsilon / 2
    t = scale.largest(problem.epsilon) if calibrated or not scale.keeps_promise(half) else half
    return np.exp(scale.log_probabilities(t))


class _Scale:
    """Which scales t keep the promise.

    ln(q[s, y] / q[s', y]) = t·(D[s', y] − D[s, y]) + ln Z_s' − ln Z_s, so the worst output of a pair does not depend
    on t: one pass over the outputs, then each t costs a look at the pairs.
    """

    def __init__(self, distance_km: Floats, log_bound: Floats) -> None:
        self.distance_km = distance_km
        self.log_bound = log_bound
        self.worst = np.stack([(distance_km - row).max(axis=1) for row in distance_km])

    def log_probabilities(self, t: float) -> Floats:
        exponents = -t * self.distance_km
        result: Floats = exponents - logsumexp(exponents, axis=1, keepdims=True)
        return result

    def keeps_promise(self, t: float) -> bool:
        log_z = logsumexp(-t * self.distance_km, axis=1)
        return bool((t * self.worst + log_z - log_z[:, None] <= self.log_bound).all())

    def largest(self, epsilon: float) -> float:
        """Return a t that keeps the promise such that a little more does not; 2^20·ε where any t does."""
        low, high = 0.0, epsilon / 2
        while self.keeps_promise(high):
            low, high = high, 2 * high
            if high > _LARGEST_FACTOR * epsilon:
                return low
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.keeps_promise(middle) else (low, middle)
        return low
