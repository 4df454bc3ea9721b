"""How sure can anyone be: how often the best guess between two alternatives is right, given all reports.

Somebody knows that a vehicle was at one of two places, or on one of two ways, d apart, with even odds. They see n
reports that were drawn independently, know all about the mechanism, and compute without limit. Their best guess is
right with the probability (1 + TV)/2; TV is the total variation of the reports' two distributions. `certainty`
returns it, tight and never below the truth.

Why it is never below the truth
-------------------------------
*One report.* H(α) = sup Σ_y max(0, P(y) − α·Q(y)), over all pairs (P, Q) of distributions that a report may have
under the two alternatives, is convex, and H(α) = 1 − α + α·H(1/α), as pairs can be exchanged. `LossCurve` holds upper
bounds of H at losses ln α on a grid, and D with H(e^D) = 0. The largest convex function that is not above these values
is at least H. It is itself the curve of a pair (P*, Q*) whose losses ln P*/Q* lie on the grid: P* has α times the
change of slope there.

*n reports.* A pair whose curve lies above H dominates: (P*, Q*) can be turned into any of these pairs by adding noise
(Blackwell). So can n independent draws of it into the n reports, whatever pair each of them has. The loss of n draws
is a sum of n independent losses: their distribution is convolved n times, by FFT.

*Floats.* A transform of length N = 2^t is off by less than f = 16·t·2^-53 of its length in the Euclidean norm (Higham,
Accuracy and Stability of Numerical Algorithms, theorem 24.2, has less than half of it). No value is above 1, so its
n-th power is off by n times as much, its transform back by f more, and a sum of N terms by √N times their norm:
√N·f·(n·|P*| + n + 1) is added to every δ, and `_FLOATS` for what the masses of each P* lost. ∎
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Protocol

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError
from geoblanket.mechanism.mechanism import Mechanism

LARGEST_LOSS: Final = 40.0
"""Beyond it the guess is taken to be always right."""
_SMALLEST_LOSS: Final = 1e-4
_LONGEST: Final = 2**22
"""Losses that are told apart after all reports, at most. Of more reports, each has fewer."""
_MOST_REPORTS: Final = 2**20
_MOST_PAIRS: Final = 20_000
"""Pairs of rows that are compared one by one: half a second."""
LOSSES: Final = 31
"""Points of a curve: with twice as many, certainty would be .002 points lower."""
_FLOATS: Final = 1e-12
"""More than floating point loses of a loss, or of a sum over outputs."""


def loss_grid(largest: float, count: int) -> Floats:
    """Return (i + ½)·step for i below a count, where the next one is the largest loss; none for a count below 1."""
    losses: Floats = (np.arange(count, dtype=np.float64) + 0.5) * (largest / (count + 0.5))
    return losses


@dataclass(frozen=True, eq=False)
class LossCurve:
    """An upper bound of how well one report tells two alternatives apart: H at α = e^loss."""

    largest: float
    """D: no loss is larger. With none but this one, the curve is that of randomised response."""
    deltas: Floats
    """H at the losses of `loss_grid`, smallest first."""

    @property
    def points(self) -> tuple[Floats, Floats]:
        """All losses with their H, the largest included."""
        return np.append(loss_grid(self.largest, len(self.deltas)), self.largest), np.append(self.deltas, 0.0)

    def pair(self) -> tuple[float, Floats]:
        """Return the step of the grid, and P* at its losses (i + ½)·step for i = −K to K − 1."""
        losses, values = self.points
        above_1 = np.expm1(losses)  # α − 1: differences of α lose fewer digits

        def slope(i: int, j: int) -> float:
            return float((values[j] - values[i]) / (above_1[j] - above_1[i]))

        def middle(i: int) -> float:
            # From H(1/α) = 1 − 1/α + H(α)/α to H(α).
            return float((values[i] - 1) / (above_1[i] + 2))

        kept: list[int] = []
        for i in range(len(losses)):
            while len(kept) > 1 and slope(kept[-2], kept[-1]) >= slope(kept[-1], i):
                kept.pop()
            kept.append(i)
        while len(kept) > 1 and middle(kept[0]) >= slope(kept[0], kept[1]):
            kept.pop(0)
        slopes = [middle(kept[0]), *(slope(i, j) for i, j in pairwise(kept)), 0.0]
        lower = np.zeros(len(losses))
        lower[kept] = np.diff(slopes)
        return self.largest / (len(losses) - 0.5), np.concatenate((lower[::-1], lower * np.exp(losses)))


def excess(p: Floats, losses: Floats, bounds: Floats) -> Floats:
    """Return Σ max(0, p − e^bound·q) for each bound, where q = p·e^(−loss).

    Parameters
    ----------
    p, losses
        Probabilities of the outputs under the first alternative, and their losses.
    bounds
        Evenly spaced, increasing.
    """
    counts = losses > bounds[0]
    p, losses = p[counts], losses[counts]
    step = bounds[-1] - bounds[0] if len(bounds) > 1 else 1.0
    bins = np.minimum((losses - bounds[0]) * ((len(bounds) - 1) / step), len(bounds) - 1).astype(np.intp)
    # Of p and of q, what has a loss above each bound.
    p_above, q_above = (np.bincount(bins, each, len(bounds))[::-1].cumsum()[::-1] for each in (p, p * np.exp(-losses)))
    found: Floats = p_above - np.exp(bounds) * q_above
    return found


def rows_curve(parts: Sequence[tuple[Mechanism, int]]) -> LossCurve:
    """Return the curve of all pairs of rows of some mechanisms that are at most a distance apart, millimetres.

    It is computed from the weights. For more than `_MOST_PAIRS` it follows from ε alone.
    """
    near = [np.argwhere(mechanism.distance_mm <= reach_mm) for mechanism, reach_mm in parts]
    if sum(map(len, near)) > _MOST_PAIRS:
        # The largest loss of pairs within η; of others nothing is known.
        pure = [m.epsilon * reach / 10**6 if reach <= m.eta_mm else math.inf for m, reach in parts]
        return LossCurve(max(pure), np.empty(0))
    pairs = []
    for (mechanism, _), found in zip(parts, near, strict=True):
        p = mechanism.probabilities
        with np.errstate(divide="ignore"):
            logs = np.log(p)
        for i, j in found[found[:, 0] != found[:, 1]]:
            used = p[i] > 0
            pairs.append((p[i][used], logs[i][used] - logs[j][used]))
    largest = max((float(losses.max()) for _, losses in pairs), default=0.0) + _FLOATS
    if not _SMALLEST_LOSS < largest < LARGEST_LOSS:
        return LossCurve(largest, np.empty(0))
    bounds = loss_grid(largest, LOSSES)
    deltas = np.zeros(LOSSES)
    for p, losses in pairs:
        np.maximum(deltas, excess(p, losses, bounds - _FLOATS), out=deltas)
    return LossCurve(largest, deltas * (1 + _FLOATS))


class ReportSource(Protocol):
    """What reports are drawn from."""

    @property
    def mean_error_km(self) -> float | None:
        """How far reports lie from the truth on average, kilometres; None where that depends on a prior."""

    def loss_curve(self, apart_m: float) -> LossCurve:
        """Return how well one report tells two alternatives apart that differ by at most so many metres."""


@dataclass(frozen=True, eq=False)
class Certainty:
    """How sure anyone can be which of two alternatives is true, given some reports. Made by `certainty`.

    Examples
    --------
    With the `hour` in the example of `certainty`:

    >>> 0.65 < hour.right < 0.66, hour.epsilon(1e-6) < 3.6  # ε of the sum would be 6
    (True, True)
    >>> hour.missed(0.05) > 0.8  # a test with 5 % false alarms misses more than 80 %
    True
    """

    apart_m: float
    """How far apart the alternatives are at each report, metres, at most."""
    reports: int
    """How many reports were drawn; a report that is held counts once."""
    losses: Floats = field(repr=False)
    """The losses that a pair of distributions has that is at least as easy to tell apart, increasing."""
    probabilities: Floats = field(repr=False)
    """How probable they are under the first of the pair."""
    error: float
    """What floating point may have lost, at most; it is added to each `delta`."""

    @property
    def right(self) -> float:
        """How often the best guess between both is right, with even odds: .5 is chance. Never below the truth."""
        return (1 + self.delta(0.0)) / 2

    def delta(self, epsilon: float) -> float:
        """Return the δ of (ε, δ)-indistinguishability of the two alternatives."""
        above = self.losses > epsilon
        found = float(self.probabilities[above] @ -np.expm1(epsilon - self.losses[above]))
        return min(found + self.error, 1.0)

    def epsilon(self, delta: float) -> float:
        """Return the ε of (ε, δ)-indistinguishability for a δ above 0, such as 1e-6; infinity if δ is below `error`."""
        if not 0 < delta < 1:
            raise ParameterError(f"δ must be between 0 and 1. Got {delta:g} instead.")
        low, high = 0.0, float(self.losses[-1])
        if self.delta(high) > delta:
            return math.inf
        while high - low > 1e-9 * max(high, 1.0):
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high

    def missed(self, false_alarms: float) -> float:
        """Return how often a test misses one alternative, at least, that raises false alarms so often under the other.

        This is the trade-off curve: type II errors by type I errors.
        """
        p = self.probabilities[::-1]
        # The tests that are best say "the first" for losses above some bound.
        alarms = np.append(0.0, np.cumsum(p * np.exp(-np.maximum(self.losses[::-1], -700.0))))
        return max(float(np.interp(false_alarms, alarms, 1 - np.append(0.0, np.cumsum(p)))) - self.error, 0.0)

    def in_words(self) -> str:
        """Return it in a few words, rounded up."""
        return f"{self.apart_m:,g} m apart: right {times_in_100(self.right)} times in 100 (50 would be chance)"


def times_in_100(right: float) -> int:
    """Return how many of 100 guesses are right, rounded up."""
    return math.ceil(100 * right - 1e-6)


@checked
def certainty(source: ReportSource, *, apart_m: float = 100.0, reports: int = 1) -> Certainty:
    """Return how sure anyone can be between two alternatives: tight, and never below the truth.

    Parameters
    ----------
    source
        A bundle, from `load_bundle` or `make_lattice`.
    apart_m
        How far apart the alternatives are whenever a report is drawn, metres, at most; with zones, both lie in one
        zone.
    reports
        How many reports are drawn while they differ. A stay that is held is one.

    Examples
    --------
    >>> from geoblanket import certainty, make_lattice
    >>> bundle = make_lattice((45.0, -30.0, 3), "lattice.bundle", epsilon=2, interval_s=120)
    >>> hour = certainty(bundle, apart_m=100, reports=30)
    >>> print(hour.in_words())
    100 m apart: right 66 times in 100 (50 would be chance)
    """
    if not hasattr(source, "loss_curve"):
        raise ParameterError(f"A bundle is needed. Got {type(source).__name__} instead. Load one with load_bundle.")
    if not 0 < apart_m <= 1e6:
        raise ParameterError(f"Alternatives must be above 0 and at most 1,000 km apart. Got {apart_m:g} m instead.")
    if not 1 <= reports <= _MOST_REPORTS:
        raise ParameterError(f"The number of reports must be from 1 to {_MOST_REPORTS:,}. Got {reports:,} instead.")
    return compose(source.loss_curve(apart_m), apart_m=apart_m, reports=reports)


def compose(curve: LossCurve, *, apart_m: float, reports: int) -> Certainty:
    """Return how sure anyone can be after a number of reports, each with the same curve."""
    if curve.largest > LARGEST_LOSS:
        return Certainty(apart_m, reports, np.array([math.inf]), np.ones(1), 0.0)
    step, masses = _coarser(curve, _LONGEST // reports).pair()
    bits = (reports * (len(masses) - 1)).bit_length()
    spectrum = np.fft.rfft(masses, 1 << bits)
    power = np.ones_like(spectrum)
    for digit in f"{reports:b}":
        power *= power
        if digit == "1":
            power *= spectrum
    count = reports * (len(masses) - 1) + 1
    summed = np.maximum(np.fft.irfft(power, 1 << bits)[:count], 0.0)
    losses: Floats = (np.arange(count, dtype=np.float64) - reports * (len(masses) - 1) / 2) * step
    off = math.sqrt(1 << bits) * 16 * bits * 2.0**-53 * (reports * (float(np.linalg.norm(masses)) + 1) + 1)
    return Certainty(apart_m, reports, losses, summed, off + reports * _FLOATS)


def _coarser(curve: LossCurve, most: int) -> LossCurve:
    """Return the curve at fewer losses, where chords between the known ones bound it."""
    fewer = loss_grid(curve.largest, most // 2 - 1)
    if len(fewer) >= len(curve.deltas):
        return curve
    losses, values = curve.points
    return LossCurve(curve.largest, np.interp(np.exp(fewer), np.exp(losses), values))
