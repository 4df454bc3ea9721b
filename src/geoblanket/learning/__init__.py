"""Learning that keeps a promise to those who drove: counts of whole vehicles, with noise, and a ledger of the cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import on_first_use

if TYPE_CHECKING:
    from geoblanket.learning.audit import Audit, audit_learning, write_canary
    from geoblanket.learning.noise import Budget, noisy
    from geoblanket.learning.spending import TrainingAccount, TrainingLedger

__all__ = ["Audit", "Budget", "TrainingAccount", "TrainingLedger", "audit_learning", "noisy", "write_canary"]

_HOME = {
    "Audit": "geoblanket.learning.audit",
    "Budget": "geoblanket.learning.noise",
    "TrainingAccount": "geoblanket.learning.spending",
    "TrainingLedger": "geoblanket.learning.spending",
    "audit_learning": "geoblanket.learning.audit",
    "noisy": "geoblanket.learning.noise",
    "write_canary": "geoblanket.learning.audit",
}

__getattr__, __dir__ = on_first_use(__name__, _HOME)
