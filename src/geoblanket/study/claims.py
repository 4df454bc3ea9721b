"""A claim of the paper beside what was measured about it, in both studies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from geoblanket._page import Page

__all__ = ["CLAIMS_HEADING", "CLAIM_COLUMNS", "Claim", "Verdict", "add_claims"]

CLAIMS_HEADING = "What the paper says, what we measured"


class Verdict(StrEnum):
    """How what was measured compares with what the paper says."""

    AGREES = "agrees"
    DIFFERS = "differs"
    MIXED = "depends on |B|"
    UNDECIDED = "cannot be decided"
    NONE = ""
    """Where a verdict would mean nothing."""


@dataclass(frozen=True)
class Claim:
    """A claim, and what was measured about it."""

    topic: str
    paper: str
    """What the paper says."""
    measured: str
    verdict: str
    """One of `Verdict`, or several, each with where it holds."""
    why: str
    """Why the two differ, or what to keep in mind if they do not."""
    where: str = ""
    """In the paper."""
    city: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """What a table shows of it, under `CLAIM_COLUMNS`."""
        return (self.topic, self.paper, self.measured, self.verdict, self.why, self.where)


CLAIM_COLUMNS = ("about", "the paper says", "we measured", "verdict", "why they may differ", "where in the paper")


def add_claims(page: Page, claims: Iterable[Claim]) -> None:
    """Add a table of claims to a page; where they stand in the paper only if that is known."""
    rows = [claim.cells for claim in claims]
    columns = len(CLAIM_COLUMNS) if any(row[-1] for row in rows) else len(CLAIM_COLUMNS) - 1
    page.table(CLAIM_COLUMNS[:columns], [row[:columns] for row in rows], words=range(columns))
