"""What must hold in every comparison that is not broken; whatever does not is told, never hidden."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

__all__ = ["Violation", "check_results"]


@dataclass(frozen=True)
class Violation:
    """Something that must hold and does not."""

    check: str
    where: str
    detail: str

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def check_results(results: pl.DataFrame) -> tuple[Violation, ...]:
    """Return all that is wrong with results."""
    return ()
