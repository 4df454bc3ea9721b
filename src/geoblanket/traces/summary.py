"""Counts of an import: what it read, kept, changed and dropped, by rule."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from geoblanket._arrays import Ints

FIRST_ROWS = 5
"""The number of rows that a summary names for each rule."""

DROPS = {
    "malformed": "rows that cannot be read",
    "missing_data": "trips marked as incomplete",
    "impossible": "impossible coordinates",
    "out_of_order": "points out of order",
    "duplicate": "duplicate points",
    "same_time": "same time, other place",
    "jump": "points that jump away",
    "too_short": "trips that are too short",
}
"""The rules that drop points, in the order in which they apply."""

CHANGES = {
    "sorted": "points out of order, sorted",
    "cut_at_jump": "trips cut at a jump",
    "cut_at_gap": "trips cut at a gap",
    "cut_by_occupancy": "trips cut where a passenger got in or out",
}
"""The rules that change points and drop none."""

_FILE_SHIFT = 40


def file_row(file: int, row: int) -> int:
    """Return one number for a row of a file, which sorts by file first."""
    return (file << _FILE_SHIFT) + row


@dataclass
class RuleCount:
    """What one rule dropped or changed.

    Attributes
    ----------
    rows, points
        Numbers of rows and of points. They differ for Porto, where a row is a whole trip.
    first
        The first of these rows, as `file_row` numbers.
    """

    rows: int = 0
    points: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, other: RuleCount) -> None:
        """Add another count of the same rule."""
        self.rows += other.rows
        self.points += other.points
        self.first = sorted({*self.first, *other.first})[:FIRST_ROWS]


class Tally(dict[str, RuleCount]):
    """What each rule dropped or changed."""

    def count(self, rule: str, rows: Ints, *, points: int | None = None) -> None:
        """Count the points of a rule by their rows (`file_row`); a repeated row counts once."""
        if rows.size:
            distinct = np.unique(rows)
            count = RuleCount(distinct.size, rows.size if points is None else points, distinct[:FIRST_ROWS].tolist())
            self.setdefault(rule, RuleCount()).add(count)

    def merge(self, other: Tally) -> None:
        """Add another tally to this one."""
        for rule, count in other.items():
            self.setdefault(rule, RuleCount()).add(count)


@dataclass
class ImportSummary:
    """What an import read, kept, changed and dropped.

    Attributes
    ----------
    files
        The files given, then those found inside folders and archives, in the order in which they were read.
    rows_read
        Rows of the files, without headers and empty lines.
    points_read
        Points in the rows that could be read.
    vehicles, trips, points
        Contents of the table. `points_read` is `points` plus the points that all rules dropped.
    rules
        What each rule dropped or changed; the keys are those of `DROPS` and `CHANGES`.
    malformed
        The number of rows that could not be read, by reason.
    """

    files: list[Path]
    rows_read: int = 0
    points_read: int = 0
    vehicles: int = 0
    trips: int = 0
    points: int = 0
    rules: Tally = field(default_factory=Tally)
    malformed: Counter[str] = field(default_factory=Counter)

    def first_rows(self, rule: str) -> list[tuple[Path, int]]:
        """Return the file and number of a rule's first rows; the first row of a file, or its header, is 1."""
        first = self.rules[rule].first if rule in self.rules else []
        return [(self.files[number >> _FILE_SHIFT], number & ((1 << _FILE_SHIFT) - 1)) for number in first]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON values; `dropped` and `changed` count rows of the files."""

        def rows(rules: dict[str, str]) -> dict[str, int]:
            return {rule: self.rules[rule].rows if rule in self.rules else 0 for rule in rules}

        return {
            "rows_read": self.rows_read,
            "points_read": self.points_read,
            "trips": self.trips,
            "points": self.points,
            "vehicles": self.vehicles,
            "dropped": rows(DROPS),
            "changed": rows(CHANGES),
            "dropped_points": {rule: self.rules[rule].points if rule in self.rules else 0 for rule in DROPS},
            "malformed": dict(sorted(self.malformed.items())),
            "first_rows": {
                rule: [{"file": str(path), "row": row} for path, row in self.first_rows(rule)]
                for rule in (*DROPS, *CHANGES)
                if rule in self.rules
            },
        }
