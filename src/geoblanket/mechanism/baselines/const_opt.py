"""ConstOPT: a linear program over near outputs, the exponential mechanism for far ones.

After Imola, Kasiviswanathan, White, Aggarwal, Tastuggine, "Balancing utility and scalability in metric differential
privacy", UAI 2022, as its abstract describes it: the linear program is made smaller by constraining certain pairs of
input and output to probabilities derived from the exponential mechanism. Which pairs and how derived is our reading:
a pair is near if the output lies within a radius of the row, and q[s, y] is then a variable; of a far pair it is
c_y·E[s, y], with E the published exponential mechanism and one variable c_y for each output. So constraints between two
far entries of a column hold by themselves and are left out, and the exponential mechanism (all c_y = 1) is always
among the candidates.
"""

from __future__ import annotations

import highspy
import numpy as np
import numpy.typing as npt
from scipy import sparse

from geoblanket._arrays import Bools, Floats, Ints
from geoblanket.errors import MechanismError, ParameterError
from geoblanket.mechanism.baselines.closed_form import exponential_probabilities, from_probabilities, output_distances
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem
from geoblanket.mechanism.solver.highs import LARGEST_RATIO, MOST_CONSTRAINTS, run_highs

__all__ = ["const_opt"]


def const_opt(problem: Problem, output_distance_km: npt.ArrayLike, *, near_km: float) -> Mechanism:
    """Return the ConstOPT mechanism, by HiGHS; for small problems.

    Parameters
    ----------
    output_distance_km
        How far each output lies from each row, kilometres, shape (S, K).
    near_km
        Outputs within this distance of a row are optimised, kilometres. With `inf` it is the whole linear program.

    Raises
    ------
    MechanismError
        HiGHS gave no answer.
    ParameterError
        Among others: there are more than 20 million pairs of rows times outputs.
    """
    if not near_km >= 0:
        raise ParameterError(f"near_km must be 0 or more. Got {near_km} instead.")
    merged = problem.merged()
    size = int(np.count_nonzero(merged.constrained)) * problem.output_count
    if size > MOST_CONSTRAINTS:
        raise ParameterError(
            f"ConstOPT is for at most {MOST_CONSTRAINTS:,} pairs of rows times outputs, small problems. Got {size:,}."
        )
    far = exponential_probabilities(problem, output_distance_km, calibrated=False)
    program = _Program(merged, far, output_distances(problem, output_distance_km) <= near_km)
    return from_probabilities(program.solve(), problem)


class _Program:
    """The linear program: entries q[s, y] = factor[s, y] · x[variable[s, y]], x ≥ 0."""

    def __init__(self, problem: Problem, far: Floats, near: Bools) -> None:
        self.problem = problem
        self.near = near
        rows, outputs = near.shape
        self.variable: Ints = np.tile(np.arange(outputs), (rows, 1))
        self.variable[near] = outputs + np.arange(np.count_nonzero(near))
        self.factor = np.where(near, 1.0, far)
        self.size = outputs + int(np.count_nonzero(near))

    def solve(self) -> Floats:
        """Return the best probabilities."""
        cost = np.zeros(self.size)
        np.add.at(cost, self.variable, self.problem.prior[:, None] * self.problem.loss * self.factor)
        sums, privacy = self._sums(), self._privacy()
        matrix = sparse.vstack([sums, privacy], format="csr")
        lower = np.concatenate([np.ones(sums.shape[0]), np.full(privacy.shape[0], -np.inf)])
        upper = np.concatenate([np.ones(sums.shape[0]), np.zeros(privacy.shape[0])])
        solver = run_highs(cost, (matrix.indptr, matrix.indices, matrix.data), lower, upper)
        status = solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise MechanismError(
                f"HiGHS did not solve the linear program of ConstOPT: {solver.modelStatusToString(status)}."
            )
        result: Floats = np.array(solver.getSolution().col_value)[self.variable] * self.factor
        return result

    def _sums(self) -> sparse.csr_array:
        """Return the rows of Σ_y q[s, y] = 1."""
        rows, outputs = self.near.shape
        row = np.repeat(np.arange(rows), outputs)
        return sparse.csr_array((self.factor.ravel(), (row, self.variable.ravel())), shape=(rows, self.size))

    def _privacy(self) -> sparse.csr_array:
        """Return the rows of q[s, y] − a·q[s', y] ≤ 0, where one of the two is near."""
        row, other = np.nonzero(self.problem.constrained)
        ratio = np.minimum(np.exp(np.minimum(self.problem.log_bound[row, other], 700.0)), LARGEST_RATIO)
        pair, output = np.nonzero(self.near[row] | self.near[other])
        row, other, ratio = row[pair], other[pair], ratio[pair]
        index = np.arange(len(pair))
        values = np.concatenate([self.factor[row, output], -ratio * self.factor[other, output]])
        variables = np.concatenate([self.variable[row, output], self.variable[other, output]])
        return sparse.csr_array((values, (np.tile(index, 2), variables)), shape=(len(pair), self.size))
