"""The columns of a table, for the message that one is missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from geoblanket.errors import InputError

__all__ = ["missing_column"]

_MOST_LISTED: Final = 20
_NAME: Final = re.compile(r"[^\W\d][\w .:/-]{0,39}")
_DATUM: Final = re.compile(r"\d\.\d|\d{5}")
"""What names have not: fractions and long numbers."""


def missing_column(
    name: str, columns: Sequence[str], *, path: str | Path, row: int | None = None, hint: str
) -> InputError:
    """Return the error for a table that has no column of a name; it lists those that there are.

    In a file without a header, the first row is one of data. So they are listed only if all of them look like names.
    """
    if columns and all(_NAME.fullmatch(column) and not _DATUM.search(column) for column in columns):
        more = f" and {len(columns) - _MOST_LISTED:,} more" if len(columns) > _MOST_LISTED else ""
        hint = f"The file has: {', '.join(columns[:_MOST_LISTED])}{more}. {hint}"
    return InputError(f"column {name} is missing", path=path, row=row, hint=hint)
