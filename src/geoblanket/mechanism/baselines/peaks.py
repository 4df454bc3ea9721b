"""Peaks: the tight-constraints mechanism over all places of a city, wherever it exists.

It is `tight` with outputs at the places themselves: q[s, j] = μ_j·e^(−ε·d(s, j)). Where places are too near together
for ε (nearer than about 0.5/ε km), μ has negative entries and there is no such mechanism. Then places are left out,
the most negative first, until there is one; a place that was left out uses the row of its nearest kept place. Of one
report nothing that is known between places of a whole city is better, except the linear program, which takes minutes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geoblanket._arrays import Ints
from geoblanket.errors import MechanismError, ParameterError
from geoblanket.mechanism.baselines._finish import from_probabilities
from geoblanket.mechanism.baselines.tight import ROUNDING, falls_and_masses, masses
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem

__all__ = ["MOST_PLACES", "Peaks", "peaks"]

MOST_PLACES = 2000
"""The exact verification looks at every pair of places for every output: minutes for more."""
_SHARE_LEFT_OUT = 3


@dataclass(frozen=True, eq=False)
class Peaks:
    """The peaks of a city, verified."""

    mechanism: Mechanism
    """A row for each place, and an output for each. Its distances are those of the kept places that rows stand for."""
    kept: Ints
    """The places that have peaks, ascending."""
    nearest: Ints
    """The kept place whose row each place uses, shape (S,)."""
    snapped_mm: int
    """How far a place lies from the one whose row it uses, at most, millimetres; 0 where all places are kept."""

    @property
    def promise(self) -> str:
        """What is promised, in words."""
        between = "places"
        if self.snapped_mm:
            between = f"kept places ({len(self.kept):,} of {len(self.nearest):,})"
            between += f"; for other places add up to {2 * self.snapped_mm / 1000:.0f} m to the distance"
        return (
            f"At most e^(ε·d) times as probable from one place as from another, ε = {self.mechanism.epsilon:g} per km, "
            f"verified exactly, between {between}. Coordinates are snapped to places before, which is not covered. "
            "Repeated reports add up."
        )


def peaks(problem: Problem) -> Peaks:
    """Return the peaks of a city.

    Parameters
    ----------
    problem
        Its rows are the places; loss and prior are not used, and as many outputs are made as there are rows.

    Raises
    ------
    ParameterError
        There are more than 2,000 places.
    MechanismError
        No places can be kept.
    """
    count = problem.row_count
    if count > MOST_PLACES:
        raise ParameterError(f"Peaks are verified for at most {MOST_PLACES:,} places. Got {count:,} instead.")
    fall, mu = falls_and_masses(problem.log_bound)
    kept: Ints = np.arange(count)
    while not (mu >= -ROUNDING).all():
        if len(kept) == 1 or np.isnan(mu).any():
            raise MechanismError("There are no peaks for this problem: no places can be kept.")
        negative = np.flatnonzero(mu < -ROUNDING)
        worst = negative[np.argsort(mu[negative])[: max(1, len(negative) // _SHARE_LEFT_OUT)]]
        kept = np.delete(kept, worst)
        mu = masses(fall[np.ix_(kept, kept)])
    nearest = kept[np.argmin(problem.distance_mm[:, kept], axis=1)]
    table = np.zeros((len(kept), count))
    table[:, kept] = fall[np.ix_(kept, kept)] * np.maximum(mu, 0.0)
    of_kept = from_probabilities(table, _between(problem, kept, count))
    weights = of_kept.weights[np.searchsorted(kept, nearest)]
    return Peaks(
        mechanism=Mechanism.from_weights(weights, _between(problem, nearest, count)),
        kept=kept,
        nearest=nearest,
        snapped_mm=int(problem.distance_mm[np.arange(count), nearest].max()),
    )


def _between(problem: Problem, places: Ints, outputs: int) -> Problem:
    """Return a problem whose rows stand for some places, which may be the same."""
    return Problem.in_millimetres(
        loss=np.zeros((len(places), outputs)),
        prior=np.full(len(places), 1 / len(places)),
        distance_mm=problem.distance_mm[np.ix_(places, places)],
        epsilon=problem.epsilon,
        eta_km=problem.eta_km,
    )
