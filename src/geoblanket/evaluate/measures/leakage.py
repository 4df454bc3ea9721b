"""Posterior leakage: how much a report changes the odds between two secrets, for each kilometre between them.

For two secrets i, j (places, or histories that share a row) and a report y the paper defines

    PL(i, j; y) = | ln( (Pr[i | y] / Pr[j | y]) / (Pr[i] / Pr[j]) ) | = | ln( q(y | i) / q(y | j) ) |

by Bayes' rule: the prior cancels. Its tables compare this with ε itself, so they are per kilometre, and so are these:

    maximum  = max over neighbouring pairs and possible y of  PL(i, j; y) / d(i, j),
    expected = mean of PL(i, j; y) / d(i, j), where y is drawn from q(· | i) and i, j independently from the prior,
               given that they are neighbours.

Neighbours are 0 < d(i, j) ≤ η apart. The paper does not say over what it takes the mean; this is the mean for a vehicle
at i, whom the attacker holds against an alternative as probable as it is. Over rows and row distances the maximum is at
most ε, for every verified mechanism. Over *present places* of a mechanism that looks at the past it need not be: the
past, which the report also depends on, differs from place to place, and its distance is not counted then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats
from geoblanket._display import counted, short_repr
from geoblanket.errors import ParameterError

__all__ = ["Leakage", "place_channel", "posterior_leakage", "same_past"]


@dataclass(frozen=True)
class Leakage:
    """Posterior leakage, per kilometre; `inf` where only one of two neighbours can give a report.

    Examples
    --------
    >>> import numpy as np
    >>> from geoblanket.evaluate import posterior_leakage
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

    >>> from geoblanket.evaluate import posterior_leakage
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
    >>> from geoblanket.evaluate import place_channel
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
    >>> from geoblanket.evaluate import same_past
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
