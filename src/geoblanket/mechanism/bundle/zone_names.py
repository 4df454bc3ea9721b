"""What a zone is called: the same everywhere, in files, tables, messages and pages.

Zones are numbered from 0, as in the file of zones (`geoblanket roads zones --out`). A build names them so in the
bundle, and whatever reads the bundle tells that name. Who makes bundles otherwise may name zones at will.
"""

from __future__ import annotations

__all__ = ["zone_in_words", "zone_name", "zone_order"]


def zone_name(number: int) -> str:
    """Return the name in a bundle of the zone with a number."""
    return f"{number}"


def zone_in_words(name: str | int) -> str:
    """Return what a message calls a zone: `zone 3`, or `zone 'centre'` where somebody chose a name."""
    text = f"{name}"
    return f"zone {text}" if text.isdecimal() else f"zone '{text}'"


def zone_order(name: str) -> tuple[int, str]:
    """Return a key that sorts zones by their numbers, and those with other names behind them."""
    return (len(name) if name.isdecimal() else 1_000, name)
