"""What several reports cost together, by composition.

Draws are independent given the trajectory, so what reports tell adds up. A report at step t compares two trajectories x
and x' by the distance of their histories, so T reports of a mechanism with history weights w tell them apart by at most

    ε · Σ_t [ d(x_t, x'_t) + Σ_τ w_τ · d(x_{t−τ}, x'_{t−τ}) ].

A place counts in its own report and, as the past, in the next Γ: ε(1 + Σ w) per kilometre in all, as `Costs.other`
has it for a bundle. These are worst cases over everything an attacker may know; `tracking` measures what one attacker,
who knows the mobility of all vehicles, gains from the same reports. As for one report, they hold for histories at most
η apart, and along chains of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket.errors import ParameterError
from geoblanket.mechanism.costs import times_counted

__all__ = ["Composition", "compose", "trajectory_bound"]


@dataclass(frozen=True)
class Composition:
    """The cost of consecutive reports, each figure per kilometre; `inf` where nothing is promised.

    Examples
    --------
    >>> from geoblanket.evaluate import compose
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
    >>> from geoblanket.evaluate import compose
    >>> compose(2.0, [1.0, 0.5], reports=10).per_location
    5.0
    """
    _check(epsilon, history_weights, reports)
    return Composition(
        reports=reports,
        per_report=epsilon,
        per_location=epsilon * times_counted(history_weights[: reports - 1]),
        per_trajectory=reports * epsilon * times_counted(history_weights),
    )


@checked
def trajectory_bound(epsilon: float, history_weights: Sequence[float], displacement_km: npt.ArrayLike) -> float:
    """Return the most by which T reports distinguish two trajectories, as the logarithm of a ratio.

    Parameters
    ----------
    epsilon
        ε of the mechanism, per kilometre.
    history_weights
        Weights of earlier places in its distances, the latest first.
    displacement_km
        Distance of the two trajectories at each report, kilometres, shape (T,). Before the first report they agree.

    Examples
    --------
    >>> from geoblanket.evaluate import trajectory_bound
    >>> trajectory_bound(2.0, [1.0], [0.1, 0.1, 0.1])
    1.0
    """
    apart = np.asarray(displacement_km, np.float64)
    if apart.ndim != 1 or not (apart >= 0).all():
        raise ParameterError("displacement_km must be distances of zero or more kilometres, one for each report.")
    _check(epsilon, history_weights, max(1, len(apart)))
    total = float(apart.sum())
    for lag, weight in enumerate(history_weights, 1):
        before = float(apart[: max(0, len(apart) - lag)].sum())
        total += weight * before if before > 0 else 0.0
    return epsilon * total


def _check(epsilon: float, history_weights: Sequence[float], reports: int) -> None:
    problems = []
    if not 0 <= epsilon < math.inf:
        problems.append(f"epsilon must be zero or more, got {epsilon}")
    if not all(weight >= 0 for weight in history_weights):
        problems.append("history_weights must be zero or more")
    if reports < 1:
        problems.append(f"there must be one report or more, got {reports}")
    if problems:
        raise ParameterError("The cost of reports cannot be told: " + "; ".join(problems) + ".")
