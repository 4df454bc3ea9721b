"""The columns of a table, for the message that one is missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from geoblanket.errors import InputError

__all__ = ["listed_columns", "missing_column"]

_MOST_LISTED: Final = 20
_NAME: Final = re.compile(r"[^\W\d][\w .:/-]{0,39}")
_DATUM: Final = re.compile(r"\d\.\d|\d{5}")
"""What names have not: fractions and long numbers."""


def listed_columns(columns: Sequence[str]) -> str | None:
    """Return the columns as a list in words; None unless all of them look like names.

    In a file without a header, the first row is one of data, and must not be shown.
    """
    if not columns or not all(_NAME.fullmatch(column) and not _DATUM.search(column) for column in columns):
        return None
    more = f" and {len(columns) - _MOST_LISTED:,} more" if len(columns) > _MOST_LISTED else ""
    return f"{', '.join(columns[:_MOST_LISTED])}{more}"


def missing_column(
    name: str, columns: Sequence[str], *, path: str | Path, row: int | None = None, hint: str
) -> InputError:
    """Return the error for a table that has no column of a name; it lists those that there are."""
    listed = listed_columns(columns)
    if listed is not None:
        hint = f"The file has: {listed}. {hint}"
    return InputError(f"column {name} is missing", path=path, row=row, hint=hint)
