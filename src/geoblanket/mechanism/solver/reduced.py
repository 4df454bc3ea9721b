"""Mechanisms that vary smoothly between centres: fewer unknowns, the same constraints.

Columns are q_k = E·z_k, where E carries values at some centres to all rows and its rows sum to 1. All pairs of the rows
themselves are enforced, so that every iterate is a private mechanism, as good as smooth ones can be. The bound of this
smaller problem is none for the problem itself.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from geoblanket import _lapack
from geoblanket._arrays import Floats
from geoblanket.mechanism.solver.blocks import Block
from geoblanket.mechanism.solver.cone import Cone
from geoblanket.mechanism.solver.interior_point import Search, power_of_two
from geoblanket.mechanism.solver.newton import Pool

__all__ = ["ReducedSearch"]


class _ReducedBlock(Block):
    """One output whose column is E·z."""

    def __init__(self, cone: Cone, cost: Floats, coefficients: Floats, basis: csr_array) -> None:
        self.basis, self.coefficients = basis, coefficients
        self.transposed = basis.T.tocsr()
        super().__init__(cone, cost, self._carried(coefficients))
        self.coefficient_step = np.zeros_like(coefficients)

    @property
    def unknowns(self) -> Floats:
        return self.coefficients

    def dual_slack(self) -> Floats:
        return self._gathered(super().dual_slack())

    def factorise(self, *, with_inverse: bool = True) -> Floats:
        mixed, diagonal = self._newton_weights()
        rows = np.arange(self.rows)
        hessian = csr_array(
            (
                np.concatenate([-mixed, -mixed, diagonal]),
                (np.concatenate([self.low, self.high, rows]), np.concatenate([self.high, self.low, rows])),
            ),
            shape=(self.rows, self.rows),
        )
        matrix = np.ascontiguousarray((self.transposed @ (hessian @ self.basis)).toarray())
        self._factor(matrix, matrix.diagonal().copy())
        self.factors = matrix[None]
        if not with_inverse:
            return np.zeros(0)
        inverse = np.triu(matrix)
        _lapack.inverse(inverse)
        return inverse

    def solve(self, duals: Floats, targets: Floats | None) -> Floats:
        right = -self.cost
        if targets is not None:
            right = right + self._transposed(targets / self.slack)
        self.coefficient_step = np.zeros_like(self.coefficients)
        return self._move(duals + self._gathered(right))

    def respond(self, dual_step: Floats) -> Floats:
        return self._move(dual_step[None].copy())

    def advance(self, primal: float, dual: float, barrier: float) -> None:
        self.coefficients = self.coefficients + primal * self.coefficient_step
        super().advance(primal, dual, barrier)

    def saved(self) -> tuple[Floats, ...]:
        return self.step, self.dual_change, self.coefficient_step

    def restore(self, saved: tuple[Floats, ...]) -> None:
        self.step, self.dual_change, self.coefficient_step = saved

    def _move(self, right: Floats) -> Floats:
        self._solve_in_place(right)
        self.coefficient_step = self.coefficient_step + right
        self.step = self._carried(self.coefficient_step)
        step: Floats = self.coefficient_step[0]
        return step

    def _carried(self, values: Floats) -> Floats:
        carried: Floats = np.ascontiguousarray((self.basis @ values.T).T)
        return carried

    def _gathered(self, values: Floats) -> Floats:
        gathered: Floats = np.ascontiguousarray((self.transposed @ values.T).T)
        return gathered


class ReducedSearch(Search):
    """Minimises Σ w·q over smooth mechanisms.

    Parameters
    ----------
    cone, cost, threads
        As for `Search`.
    coefficients
        Values at the centres, shape (outputs, centres), which sum to 1 at each; carried to the rows, they lie strictly
        inside the cone.
    basis
        E, shape (rows, centres).
    """

    def __init__(self, cone: Cone, cost: Floats, coefficients: Floats, basis: csr_array, *, threads: Pool) -> None:
        self.scale = power_of_two(cost)
        blocks: list[Block] = [
            _ReducedBlock(cone, of_output[None] * self.scale, start[None].copy(), basis)
            for of_output, start in zip(cost, coefficients, strict=True)
        ]
        self._begin(blocks, threads, 0.1)
