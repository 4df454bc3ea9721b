"""Models that were edited by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from geoblanket._arrayfile import read_arrays, write_arrays
from geoblanket.tracking.motion_model import MAGIC

__all__ = ["edit_model"]


def edit_model(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a model says it was learned from, and make all hashes of its file right again."""
    fields, arrays = read_arrays(path, magic=MAGIC, kind="a motion model")
    change(fields["learned"])
    write_arrays(path, magic=MAGIC, fields=fields, arrays=arrays)
