"""Learning that keeps a promise to those who drove: counts of whole vehicles, with noise, and a ledger of the cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import homes, on_first_use

if TYPE_CHECKING:
    from geoblanket.learning.audit import Audit, audit_learning, write_canary
    from geoblanket.learning.from_released import learn_from_released
    from geoblanket.learning.noise import TrainingBudget, noisy
    from geoblanket.learning.private import learn_privately
    from geoblanket.learning.spending import TrainingAccount, TrainingLedger

__all__ = [
    "Audit",
    "TrainingAccount",
    "TrainingBudget",
    "TrainingLedger",
    "audit_learning",
    "learn_from_released",
    "learn_privately",
    "noisy",
    "write_canary",
]

_HOME = homes(__name__)
__getattr__, __dir__ = on_first_use(__name__, _HOME)
