"""Learning that keeps a promise to those who drove: counts of whole vehicles, with noise, and a ledger of the cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import on_first_use

if TYPE_CHECKING:
    from geoblanket.learning.noise import Budget, noisy
    from geoblanket.learning.spending import TrainingAccount, TrainingLedger

__all__ = ["Budget", "TrainingAccount", "TrainingLedger", "noisy"]

_HOME = {
    "Budget": "geoblanket.learning.noise",
    "TrainingAccount": "geoblanket.learning.spending",
    "TrainingLedger": "geoblanket.learning.spending",
    "noisy": "geoblanket.learning.noise",
}

__getattr__, __dir__ = on_first_use(__name__, _HOME)
