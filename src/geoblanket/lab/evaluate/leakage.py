"""Leakage of reports, from their probabilities: posterior leakage, the ε really spent, and the cost of many reports.

Posterior leakage: how much a report changes the odds between two secrets, for each kilometre between them.

For two secrets i, j (places, or histories that share a row) and a report y the paper defines

    PL(i, j; y) = | ln( (Pr[i | y] / Pr[j | y]) / (Pr[i] / Pr[j]) ) | = | ln( q(y | i) / q(y | j) ) |

by Bayes' rule: the prior cancels. Its tables compare this with ε itself, so they are per kilometre, and so are these:

    maximum  = max over neighbouring pairs and possible y of  PL(i, j; y) / d(i, j),
    expected = mean of PL(i, j; y) / d(i, j), where y is drawn from q(· | i) and i, j independently from the prior,
               given that they are neighbours.

Neighbours are 0 < d(i, j) ≤ η apart. The paper does not say over what it takes the mean; this is the mean for a vehicle
at i and an alternative j that is drawn like it. Over rows and row distances the maximum is at
most ε, for every verified mechanism. Over *present places* of a mechanism that looks at the past it need not be: the
past, which the report also depends on, differs from place to place, and its distance is not counted then.

The ε that a mechanism really spends: the worst ln(ratio) / distance over pairs of rows, from the exact weights.

For rows s and s' at distance d and an output y, ln(W[s, y] / W[s', y]) = ln(1 + (W[s, y] − W[s', y]) / W[s', y]). The
difference is exact, in integers; turning it into a float, the reciprocal, the product and the logarithm each add a
relative error of a few 2^-53, and `log1p` passes relative errors on without making them larger. So the result is right
to 2^-48 of itself, however near two rows are, and is given as a lower and an upper bound.

The cost of several reports together, by composition.

Draws are independent given the trajectory, so costs of reports add up. A report at step t compares two trajectories x
and x' by the distance of their histories, so T reports of a mechanism with history weights w tell them apart by at most

    ε · Σ_t [ d(x_t, x'_t) + Σ_τ w_τ · d(x_{t−τ}, x'_{t−τ}) ].

A place counts in its own report and, as the past, in the next Γ: ε(1 + Σ w) per kilometre in all, as `Costs.other`
has it for a bundle. These are worst cases over everything an attacker may know; `tracking` measures what one attacker
who knows how vehicles move gains from the same reports. As for one report, they hold for histories at most
η apart, and along chains of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats, Ints, Positions
from geoblanket._display import counted, short_repr
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism.costs import times_counted
from geoblanket.mechanism.mechanism import Mechanism


@dataclass(frozen=True)
class Leakage:
    """Posterior leakage, per kilometre; `inf` where only one of two neighbours can give a report.

    Examples
    --------
    >>> import numpy as np
    >>> from geoblanket.lab.evaluate import posterior_leakage
    >>> truth = posterior_leakage(np.eye(2), [0.5, 0.5], [[0, 1], [1, 0]])  # a vehicle that reports where it is
    >>> truth.maximum
    inf
    """

    maximum: float
    expected: float
    pairs: int
    """Pairs of neighbours, each counted once; with none of them, both figures are 0."""

    def __repr__(self) -> str:
        found = f"at most {self.maximum:.4g} per km", f"{self.expected:.4g} expected"
        return short_repr(self, *found, counted(self.pairs, "pair"))


@checked
def posterior_leakage(
    probabilities: npt.ArrayLike,
    prior: npt.ArrayLike,
    distance_km: npt.ArrayLike,
    *,
    eta_km: float = math.inf,
    pairs: Bools | None = None,
) -> Leakage:
    """Return the posterior leakage of a mechanism.

    Parameters
    ----------
    probabilities
        Probability of each report from each secret, shape (S, K).
    prior
        Probability of each secret, shape (S,).
    distance_km
        Distances of secrets in kilometres, symmetric, `inf` for those that are never compared, shape (S, S).
    eta_km
        The largest distance of neighbours, kilometres.
    pairs
        Which neighbours count, symmetric, shape (S, S); by default all. See `same_past`.

    Examples
    --------
    With the `problem` and the `result` in the examples of `Problem` and `optimise`:

    >>> from geoblanket.lab.evaluate import posterior_leakage
    >>> leakage = posterior_leakage(result.mechanism.probabilities, problem.prior, problem.distance_km)
    >>> leakage.expected <= leakage.maximum <= 1.0 + 1e-9
    True
    """
    q, weight, distance = (np.asarray(values, np.float64) for values in (probabilities, prior, distance_km))
    if q.ndim != 2 or weight.shape != q.shape[:1] or distance.shape != (len(q), len(q)):
        raise ParameterError(
            "Leakage needs probabilities (S, K), a prior (S,) and distances (S, S). "
            f"Got the shapes {q.shape}, {weight.shape} and {distance.shape} instead."
        )
    neighbours = (distance > 0) & (distance <= eta_km) & np.isfinite(distance)
    if pairs is not None:
        neighbours &= pairs
    with np.errstate(divide="ignore"):
        logarithms = np.log(q)
    maximum, total, mass = 0.0, 0.0, 0.0
    for secret in np.flatnonzero(neighbours.any(axis=1)):
        others = np.flatnonzero(neighbours[secret])
        possible = q[secret] > 0
        odds = np.abs(logarithms[secret, possible] - logarithms[np.ix_(others, possible)])
        apart = distance[secret, others]
        maximum = max(maximum, float((odds.max(axis=1) / apart).max()))
        likely = weight[others] > 0
        total += float(weight[secret]) * float(weight[others][likely] @ ((odds @ q[secret, possible]) / apart)[likely])
        mass += float(weight[secret] * weight[others].sum())
    return Leakage(maximum, total / mass if mass > 0 else 0.0, int(np.count_nonzero(neighbours)) // 2)


@checked
def place_channel(
    probabilities: npt.ArrayLike, prior: npt.ArrayLike, place: npt.ArrayLike, place_count: int
) -> tuple[Floats, Floats]:
    """Return the probability of each report from each present place, averaged over the past, and that of the place.

    Parameters
    ----------
    probabilities
        Of each report from each row, shape (S, K).
    prior
        Of the rows, shape (S,).
    place
        The position in the zone of each row's present place, shape (S,).
    place_count
        P, the number of places in the zone.

    Returns
    -------
    channel, place_prior
        Shapes (P, K) and (P,). A place of probability 0 gets the mean over all places.

    Examples
    --------
    >>> from geoblanket.lab.evaluate import place_channel
    >>> channel, prior = place_channel([[1, 0], [0, 1], [0, 1]], [0.25, 0.25, 0.5], [0, 0, 1], 2)
    >>> channel
    array([[0.5, 0.5],
           [0. , 1. ]])
    """
    q, weight = np.asarray(probabilities, np.float64), np.asarray(prior, np.float64)
    together = csr_array((weight, (np.asarray(place), np.arange(len(q)))), shape=(place_count, len(q)))
    joint = np.asarray(together @ q)
    mass = np.bincount(np.asarray(place), weight, place_count)
    known = mass > 0
    channel = np.tile(weight @ q / weight.sum(), (place_count, 1))
    channel[known] = joint[known] / mass[known, None]
    return channel, mass.astype(np.float64)


@checked
def same_past(histories: npt.ArrayLike) -> Bools:
    """Return which pairs of rows have the same past, shape (S, S), for the paper's leakage with a known past.

    Parameters
    ----------
    histories
        The history of each row: places at t, t − 1, ..., shape (S, 1 + Γ); see `ZoneRows.histories`.

    Examples
    --------
    >>> from geoblanket.lab.evaluate import same_past
    >>> same_past([[0, 5], [1, 5], [1, 6]])
    array([[ True,  True, False],
           [ True,  True, False],
           [False, False,  True]])
    """
    histories = np.asarray(histories)
    if histories.ndim != 2:
        raise ParameterError(f"Histories must have the shape (S, 1 + Γ). Got {histories.shape} instead.")
    past = histories[:, 1:]
    _, label = np.unique(past, axis=0, return_inverse=True)
    same: Bools = label.ravel()[:, None] == label.ravel()
    return same


_RELATIVE_ERROR: Final = 2.0**-48
_ZERO: Final = 2.0**-600
"""Replaces a weight of 0 in a denominator: the ratio then exceeds every ratio of weights."""
_LARGEST_RATIO: Final = 2.0**63
_BLOCK: Final = 1 << 17
"""Ratios at a time: a megabyte, which stays in the processor's cache."""


@dataclass(frozen=True)
class WorstPair:
    """The pair of rows and the output that are easiest to tell apart for their distance.

    Examples
    --------
    With the `result` in the example of `optimise`:

    >>> from geoblanket.lab.evaluate import effective_epsilon
    >>> worst = effective_epsilon(result.mechanism)
    >>> worst.row != worst.other_row, 0.99 < worst.epsilon <= 1.0
    (True, True)
    """

    epsilon: float
    """ln(ratio) / distance, per kilometre, rounded up; `inf` where an output is possible from one row only, or rows at
    distance 0 differ; 0 where no output tells any pair apart."""
    low: float
    """The same, rounded down."""
    row: int
    other_row: int
    """`output` is more probable from `row` than from this one."""
    output: int
    distance_km: float

    def __repr__(self) -> str:
        rows = f"rows {self.row:,} and {self.other_row:,}"
        return short_repr(
            self, f"ε = {self.epsilon:.6g} per km", rows, f"output {self.output:,}", f"{self.distance_km:.4g} km apart"
        )


@checked
def effective_epsilon(mechanism: Mechanism) -> WorstPair:
    """Return the worst pair of a verified mechanism. Its ε is never above the promised one.

    Examples
    --------
    With the `result` in the example of `optimise`:

    >>> from geoblanket.lab.evaluate import effective_epsilon
    >>> effective_epsilon(result.mechanism).epsilon <= 1.0
    True
    """
    worst = worst_pair(mechanism.weights, distance_mm=mechanism.distance_mm, eta_mm=mechanism.eta_mm)
    return replace(worst, epsilon=min(worst.epsilon, mechanism.epsilon), low=min(worst.low, mechanism.epsilon))


@checked
def worst_pair(weights: Ints, *, distance_mm: Ints, eta_mm: int) -> WorstPair:
    """Return the worst pair of any integer weights, verified or not.

    Parameters
    ----------
    weights
        int64, shape (S, K), from 0 to 2^62.
    distance_mm
        Row distances in millimetres, int64, shape (S, S).
    eta_mm
        Rows further apart than this, in millimetres, are not compared.

    Examples
    --------
    With the `result` in the example of `optimise`:

    >>> from geoblanket.lab.evaluate import worst_pair
    >>> mechanism = result.mechanism
    >>> worst = worst_pair(mechanism.weights, distance_mm=mechanism.distance_mm, eta_mm=mechanism.eta_mm)
    >>> 0.99 < worst.epsilon <= 1.0
    True
    """
    if distance_mm.shape != (len(weights), len(weights)):
        raise MismatchError(f"{len(weights)} rows do not belong to distances of the shape {distance_mm.shape}.")
    reciprocal = 1.0 / np.where(weights == 0, _ZERO, weights.astype(np.float64))
    worst, pair = -1.0, (0, 0)
    for row in range(len(weights)):
        others = np.flatnonzero(distance_mm[row] <= eta_mm)
        others = others[others != row]
        if not len(others):
            continue
        leak = _per_km(_largest_excess(weights, reciprocal, row, others), distance_mm[row, others])
        here = int(leak.argmax())
        if leak[here] > worst:
            worst, pair = float(leak[here]), (row, int(others[here]))
    row, other = pair
    worst = max(worst, 0.0)
    margin = 0.0 if math.isinf(worst) else worst * _RELATIVE_ERROR
    return WorstPair(
        epsilon=worst + margin,
        low=worst - margin,
        row=row,
        other_row=other,
        output=int(((weights[row] - weights[other]) * reciprocal[other]).argmax()),
        distance_km=float(distance_mm[row, other]) / 1e6,
    )


def _largest_excess(weights: Ints, reciprocal: Floats, row: int, others: Positions) -> Floats:
    """Return, for each other row, the largest ratio over outputs minus 1."""
    step = max(1, _BLOCK // weights.shape[1])
    result = np.empty(len(others))
    for start in range(0, len(others), step):
        some = others[start : start + step]
        excess = (weights[row] - weights[some]).astype(np.float64)
        excess *= reciprocal[some]
        excess.max(axis=1, out=result[start : start + step])
    return result


def _per_km(excess: Floats, distance_mm: Ints) -> Floats:
    """Return ln(1 + excess) / distance per kilometre: 0 for equal rows, however near."""
    log_ratio = np.log1p(np.maximum(excess, 0.0))
    log_ratio[excess > _LARGEST_RATIO] = np.inf
    kilometres = distance_mm / 1e6
    # Rows at distance 0 must be equal: any difference is an infinite leak.
    result: Floats = np.where(log_ratio > 0, np.inf, 0.0)
    np.divide(log_ratio, kilometres, out=result, where=kilometres > 0)
    return result


@dataclass(frozen=True)
class Composition:
    """Cost of consecutive reports, each figure per kilometre; `inf` where nothing is promised.

    Examples
    --------
    >>> from geoblanket.lab.evaluate import compose
    >>> compose(2.0, [1.0, 0.5], reports=10)
    Composition(reports=10, per_report=2.0, per_location=5.0, per_trajectory=50.0)
    """

    reports: int
    per_report: float
    """ε: one report, about its present place where the past is the same."""
    per_location: float
    """ε(1 + Σ w), with as many w as there are later reports: all reports together, about one place of the trajectory.
    With a past that is taken as known (w = ∞) and more than one report it is infinite: a place is not protected as the
    past of the next report."""
    per_trajectory: float
    """T·ε(1 + Σ w): all reports together, about a trajectory all of which is moved by as much, the past before the
    first report too. A vehicle that stands still is the plainest case."""


@checked
def compose(epsilon: float, history_weights: Sequence[float], *, reports: int) -> Composition:
    """Return the cost of a number of consecutive reports.

    Parameters
    ----------
    epsilon
        ε of the mechanism, per kilometre.
    history_weights
        Weights of earlier places in its distances, the latest first; empty for a mechanism without context.
    reports
        T, the number of reports.

    Examples
    --------
    >>> from geoblanket.lab.evaluate import compose
    >>> compose(2.0, [1.0, 0.5], reports=10).per_location
    5.0
    """
    if not 0 <= epsilon < math.inf or not all(weight >= 0 for weight in history_weights) or reports < 1:
        raise ParameterError(
            f"ε and history weights must be zero or more, and reports one or more. Got {epsilon}, {history_weights} "
            f"and {reports}."
        )
    return Composition(
        reports=reports,
        per_report=epsilon,
        per_location=epsilon * times_counted(history_weights[: reports - 1]),
        per_trajectory=reports * epsilon * times_counted(history_weights),
    )
