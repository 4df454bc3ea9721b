"""How long work tells how far it is: the library calls, the command line draws."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Progress", "silent"]


class Progress(Protocol):
    """Called with the phase's name and how much of it is done; `total` is None where it is not known."""

    def __call__(self, phase: str, done: float, total: float | None) -> None: ...


def silent(phase: str, done: float, total: float | None) -> None:
    """Show nothing: the default of every function that reports progress."""
