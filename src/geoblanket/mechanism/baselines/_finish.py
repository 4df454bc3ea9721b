"""From probabilities of any quality to a verified mechanism."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem
from geoblanket.mechanism.repairer import repair

__all__ = ["check_table", "from_probabilities", "output_distances"]


def from_probabilities(probabilities: Floats, problem: Problem) -> Mechanism:
    """Return the mechanism of a problem with these probabilities, repaired to integers and verified.

    Parameters
    ----------
    probabilities
        Of the rows of `problem.merged()`, shape (classes, K).
    """
    # A repair may prefer the constant mechanism where that costs less. Here the mechanism is given, whatever it costs:
    # without a loss nothing is cheaper, and what rounding leaves goes to the first output. That should be one which is
    # probable everywhere, as it changes least there.
    without_loss = Problem.in_millimetres(
        loss=np.zeros_like(problem.loss),
        prior=problem.prior,
        distance_mm=problem.distance_mm,
        epsilon=problem.epsilon,
        eta_km=problem.eta_km,
    )
    order = np.argsort(-probabilities.min(axis=0), kind="stable")
    weights = np.empty(problem.loss.shape, np.int64)
    weights[:, order] = repair(probabilities[:, order][problem.row_class], without_loss).weights
    return Mechanism.from_weights(weights, problem)


def output_distances(problem: Problem, output_distance_km: npt.ArrayLike) -> Floats:
    """Return how far each output lies from each row of `problem.merged()`, kilometres: means over classes of rows."""
    shape = (problem.row_count, problem.output_count)
    return problem.class_means(check_table(output_distance_km, "output_distance_km", shape))


def check_table(values: npt.ArrayLike, name: str, shape: tuple[int, int], *, signed: bool = False) -> Floats:
    """Return `values` as floats; raise unless they have this shape, are finite and (if not `signed`) not negative."""
    table = np.asarray(values, np.float64)
    if table.shape != shape:
        raise ParameterError(f"{name} must have the shape {shape}. Got {table.shape} instead.")
    if not np.isfinite(table).all() or not (signed or (table >= 0).all()):
        raise ParameterError(f"{name} must be finite{'' if signed else ' and not negative'}.")
    return table
