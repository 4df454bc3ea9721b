"""Learning that keeps a promise to those who drove: counts of whole vehicles, with noise, and a ledger of the cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import on_first_use

if TYPE_CHECKING:
    from geoblanket.learning.noise import Budget, noisy

__all__ = ["Budget", "noisy"]

_HOME = {
    "Budget": "geoblanket.learning.noise",
    "noisy": "geoblanket.learning.noise",
}

__getattr__, __dir__ = on_first_use(__name__, _HOME)
