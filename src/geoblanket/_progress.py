"""Progress of long work: the library reports it, the command line draws it."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Progress", "silent"]


class Progress(Protocol):
    """Called with a phase's name and how much of it is done; `total` is None where unknown."""

    def __call__(self, phase: str, done: float, total: float | None) -> None: ...


def silent(phase: str, done: float, total: float | None) -> None:
    """Show nothing: the default of every function that reports progress."""
