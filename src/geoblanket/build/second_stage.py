"""The second stage of a zone: fine rows, refined from the mechanism of the first, and how far that is from the best.

What is best over the fine rows is searched too, without keeping the means of the first stage. So the record has a
proven bound for refined rows as for any others, and says what keeping the means costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from geoblanket.build.record import Refinement
from geoblanket.build.refinement import Refined, coarse_rows, refine
from geoblanket.build.rows import ZoneRows
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem
from geoblanket.mechanism.solver.optimiser import OptimiseResult

__all__ = ["SecondStage", "second_stage"]

_LEAST_GAIN: Final = 1e-5
"""Share of the loss; for less it does not pay that one more place of the past counts in the budget."""
_USED: Final = 1e-3
"""An output that carries more of the probability counts as used."""


@dataclass(frozen=True, eq=False)
class SecondStage:
    """What became of a zone in the second stage."""

    rows: ZoneRows
    refined: Refined
    outputs_used: int
    """How many outputs carry more than a thousandth of the probability."""
    record: Refinement

    @property
    def gap(self) -> float:
        """(loss − lower bound over the same rows) / loss."""
        return max(0.0, 1 - self.record.lower_bound / self.record.loss) if self.record.loss > 0 else 0.0


def second_stage(
    first: Mechanism,
    coarse: ZoneRows,
    fine: ZoneRows,
    problem: Problem,
    best: OptimiseResult,
    *,
    time_limit_s: float,
) -> SecondStage:
    """Refine a mechanism.

    Parameters
    ----------
    first
        The mechanism of the first stage.
    coarse, fine
        Its rows, and their parts.
    problem
        That of the fine rows.
    best
        What was found for it without the first stage.
    time_limit_s
        Seconds that the linear program may take.

    Raises
    ------
    ParameterError
        If the linear program is too large.
    """
    refined = refine(first, problem, coarse_rows(fine, coarse), time_limit_s=time_limit_s)
    return SecondStage(
        rows=fine,
        refined=refined,
        outputs_used=int((problem.prior @ refined.mechanism.probabilities > _USED).sum()),
        record=Refinement(
            used=refined.loss < (1 - _LEAST_GAIN) * refined.loss_before,
            rows=len(fine),
            loss_before=refined.loss_before,
            loss=refined.loss,
            # Either search may have stopped above the other.
            least_loss=min(best.loss, refined.loss),
            lower_bound=min(best.lower_bound, refined.loss),
            marginal_error=refined.marginal_error,
        ),
    )
