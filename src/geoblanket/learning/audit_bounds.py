"""How much an attack proves: from its errors to a lower bound on what a promise of privacy really is.

Who guesses whether a vehicle was learned from makes two errors: *false alarms*, at a rate FPR, and *misses*; the rest
of those present are found, at a rate TPR. Privacy bounds what any attack can reach:

    (ε, δ)          TPR ≤ e^ε · FPR + δ, and the same with the two hypotheses exchanged
    μ (Gaussian)    Φ⁻¹(TPR) − Φ⁻¹(FPR) ≤ μ

An attack that does better is a counterexample. Rates are counted, so they are taken at the bad end of exact confidence
intervals (Clopper and Pearson). Gaussian noise of a cost ρ, in zero-concentrated differential privacy, keeps
μ = √(2ρ), and no smaller one: so μ tells even noise apart that is only somewhat too small. ε tells less with few runs:
from n runs without a false alarm it cannot be shown to be much above log n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import betaincinv, log_ndtr, ndtr, ndtri

from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError

__all__ = ["ErrorRates", "MembershipAttack", "attack", "check_runs", "clopper_pearson", "epsilon_of_mu"]

_FEWEST_RUNS = 4
_RIDGE = 1e-6
_LINES = 401


def clopper_pearson(hits: npt.ArrayLike, trials: npt.ArrayLike, *, confidence: float) -> tuple[Floats, Floats]:
    """Return a lower and an upper bound on a probability, each of which holds with the given confidence.

    Parameters
    ----------
    hits, trials
        How often it happened, and out of how many independent trials.
    """
    hits, trials = np.asarray(hits, np.float64), np.asarray(trials, np.float64)
    error = 1.0 - confidence
    with np.errstate(invalid="ignore"):
        low = np.where(hits > 0, betaincinv(np.maximum(hits, 1e-9), trials - hits + 1, error), 0.0)
        high = np.where(hits < trials, betaincinv(hits + 1, np.maximum(trials - hits, 1e-9), 1.0 - error), 1.0)
    return low, high


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Return the ε of Gaussian differential privacy μ for a δ: the exact one (Dong, Roth and Su, 2022)."""
    if mu <= 0:
        return 0.0

    def excess(epsilon: float) -> float:
        above = math.exp(log_ndtr(mu / 2 - epsilon / mu))
        return above - math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))) - delta

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-12))


@dataclass(frozen=True)
class ErrorRates:
    """How often an attack was right, counted on runs that it had not seen.

    Arrays stand for several attacks; counts that are expected may be fractions.
    """

    found: int | Floats
    """Runs with the vehicle in which the attack said so."""
    present: int
    """Runs with the vehicle."""
    false_alarms: int | Floats
    """Runs without it in which the attack said that it was there."""
    absent: int
    """Runs without it."""

    def _bounds(self, confidence: float) -> tuple[Floats, Floats]:
        """Return the least TPR and the largest FPR; both hold with the given confidence."""
        each = 1.0 - (1.0 - confidence) / 2
        least_found, _ = clopper_pearson(self.found, self.present, confidence=each)
        _, most_alarms = clopper_pearson(self.false_alarms, self.absent, confidence=each)
        return least_found, most_alarms

    def mu(self, *, confidence: float) -> Floats:
        """Return what μ, of Gaussian differential privacy, is at least."""
        found, alarms = self._bounds(confidence)
        bound: Floats = np.maximum(ndtri(found) - ndtri(alarms), 0.0)
        return bound

    def epsilon(self, delta: float, *, confidence: float) -> Floats:
        """Return what ε is at least for a δ, whatever the noise."""
        found, alarms = self._bounds(confidence)
        with np.errstate(divide="ignore"):
            odds = np.maximum((found - delta).clip(0.0) / alarms, (1 - alarms - delta).clip(0.0) / (1 - found))
            return np.maximum(np.log(odds), 0.0)


@dataclass(frozen=True)
class MembershipAttack:
    """What an attack proves."""

    rates: ErrorRates
    """At the threshold that was best for μ."""
    mu: float
    """μ of Gaussian differential privacy is at least this."""
    epsilon: float
    """ε is at least this for the δ asked for, whatever the noise."""
    epsilon_by_mu: float
    """ε is at least this where noise is Gaussian, as μ has it."""


def check_runs(runs: int, *, confidence: float) -> None:
    """Raise ParameterError if there are fewer than four runs of each kind, or if the confidence is none."""
    if runs < _FEWEST_RUNS:
        raise ParameterError(f"An audit needs {_FEWEST_RUNS} trainings or more, with the vehicle and without it.")
    if not 0 < confidence < 1:
        raise ParameterError(f"A confidence must be more than 0 and less than 1. Got {confidence:g} instead.")


def attack(present: Floats, absent: Floats, *, delta: float, confidence: float) -> MembershipAttack:
    """Tell runs with a vehicle from runs without it, and bound what that proves.

    On the first half of the runs of each kind the attack learns what to look at (a linear discriminant) and where to
    draw the line; the second half is what it is judged by.

    Parameters
    ----------
    present, absent
        What was seen in each run with the vehicle, and in each without it, shape (runs, features).
    delta
        δ of the promise.
    confidence
        With which each of the bounds holds.

    Raises
    ------
    ParameterError
        If there are fewer than four runs of each kind, or if the confidence is not between 0 and 1.
    """
    check_runs(min(len(present), len(absent)), confidence=confidence)
    halves = len(present) // 2, len(absent) // 2
    direction = _discriminant(present[: halves[0]], absent[: halves[1]])
    with_it, without_it = present @ direction, absent @ direction

    def best(value: Callable[[ErrorRates], Floats]) -> ErrorRates:
        own, others = with_it[: halves[0]], without_it[: halves[1]]
        lines = np.linspace(min(own.min(), others.min()), max(own.max(), others.max()), _LINES)
        # What bell curves let one expect of each line, not what the best line happened to give: that would be luck.
        found, alarms = _expected(own, lines), _expected(others, lines)
        expected = value(ErrorRates(found, len(own), alarms, len(others)))
        gap = found / len(own) - alarms / len(others)
        top = np.lexsort((gap, expected))[-1]  # by the gap where no line would prove anything
        alike = np.flatnonzero((expected == expected[top]) & (gap == gap[top]))
        line = lines[alike[len(alike) // 2]]
        judged, judged_without = with_it[halves[0] :], without_it[halves[1] :]
        return ErrorRates(
            int((judged > line).sum()), len(judged), int((judged_without > line).sum()), len(judged_without)
        )

    by_mu = best(lambda rates: rates.mu(confidence=confidence))
    by_epsilon = best(lambda rates: rates.epsilon(delta, confidence=confidence))
    mu = float(by_mu.mu(confidence=confidence))
    return MembershipAttack(
        rates=by_mu,
        mu=mu,
        epsilon=float(by_epsilon.epsilon(delta, confidence=confidence)),
        epsilon_by_mu=epsilon_of_mu(mu, delta),
    )


def _expected(scores: Floats, lines: Floats) -> Floats:
    """Return how many scores are expected above each line."""
    low, middle, high = np.quantile(scores, [ndtr(-1.0), 0.5, ndtr(1.0)])
    spread = max(float(high - low) / 2, 1e-9 * float(np.ptp(lines)), 1e-30)
    count: Floats = len(scores) * ndtr((middle - lines) / spread)
    return count


def _discriminant(present: Floats, absent: Floats) -> Floats:
    """Return Fisher's linear discriminant, with a ridge for what hardly varies, shape (features,)."""
    scatter = np.zeros((present.shape[1],) * 2)
    for runs in (present, absent):
        off = runs - runs.mean(axis=0)
        scatter += off.T @ off / len(runs)
    scatter += (_RIDGE * np.trace(scatter) / len(scatter) + 1e-12) * np.eye(len(scatter))
    direction: Floats = np.linalg.solve(scatter, present.mean(axis=0) - absent.mean(axis=0))
    return direction
