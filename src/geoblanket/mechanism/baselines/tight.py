"""The tight-constraints mechanism: every constraint that can bind, binds.

With M[s, j] = e^(−ε·d(s, j)) and μ = M⁻¹·1, the table q[s, j] = M[s, j]·μ_j has rows that sum to 1 and columns that
keep the promise, wherever μ ≥ 0 (Chatzikokolakis, Elsalamouny, Palamidessi, PoPETs 2017, and before them Ghosh,
Roughgarden, Sundararajan, STOC 2009, where on a line it is the truncated geometric mechanism). The columns are peaks,
one for each row; each is then given to the output that suits it best, which is exact as it adds columns.

d here is the length of the shortest chain of constrained pairs: a peak must not fall faster than along any chain. It is
the row distance itself if that obeys the triangle inequality and η = ∞; without a chain the peak is 0.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, solve
from scipy.sparse.csgraph import shortest_path

from geoblanket._arrays import Floats
from geoblanket.errors import MechanismError, ParameterError
from geoblanket.mechanism.baselines._finish import from_probabilities
from geoblanket.mechanism.baselines.remap import add_columns, best_replacements
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem

__all__ = ["ROUNDING", "falls_and_masses", "masses", "tight_constraints"]

ROUNDING = 1e-9
"""Masses that are no more negative than this are 0."""


def tight_constraints(problem: Problem, *, remapped: bool = True) -> Mechanism:
    """Return the tight-constraints mechanism.

    Parameters
    ----------
    remapped
        True: the peak of each row goes to the output of least expected loss. False: the peak of row j goes to output
        j, as published; the problem must then have as many outputs as rows.

    Raises
    ------
    MechanismError
        The mechanism does not exist: μ has negative entries. It exists if ε times the distances is large enough.
    """
    merged = problem.merged()
    peaks = _peaks(merged.log_bound)
    if remapped:
        table = add_columns(peaks, best_replacements(peaks, merged), problem.output_count)
    elif problem.output_count != problem.row_count:
        raise ParameterError(
            f"Without remapping, outputs must be the rows. Got {problem.output_count} outputs for "
            f"{problem.row_count} rows; remap, or give the loss of each row as an output."
        )
    else:
        _, first = np.unique(problem.row_class, return_index=True)
        table = add_columns(peaks, first, problem.output_count)
    return from_probabilities(table, problem)


def falls_and_masses(log_bound: Floats) -> tuple[Floats, Floats]:
    """Return e^(−ε·d) along the shortest chains, shape (S, S), and μ, shape (S,); NaN where there is none."""
    chain: Floats = shortest_path(np.where(np.isfinite(log_bound), log_bound, 0.0), directed=False)
    fall: Floats = np.exp(-chain)
    return fall, masses(fall)


def masses(fall: Floats) -> Floats:
    """Return μ = M⁻¹·1 for a table M; NaN where it cannot be solved."""
    try:
        mu: Floats = solve(fall, np.ones(len(fall)), assume_a="sym")
    except LinAlgError:
        return np.full(len(fall), np.nan)
    return mu


def _peaks(log_bound: Floats) -> Floats:
    fall, mu = falls_and_masses(log_bound)
    negative = int(np.count_nonzero(~(mu >= -ROUNDING)))
    if negative:
        raise MechanismError(
            f"The tight-constraints mechanism does not exist for this problem: {negative} of {len(mu)} rows would get "
            "a negative probability. It needs a larger ε or rows further apart; use the exponential mechanism instead."
        )
    peaks: Floats = fall * np.maximum(mu, 0.0)
    return peaks
