"""Whose data a road graph is: the line that its pictures and reports carry.

OpenStreetMap's licence asks everybody who shows its data to name its contributors. Nobody is asked where a file comes
from: what is in OpenStreetMap's formats, in OSMnx's GraphML, or in a table whose nodes are named `osmid`, is credited
to OpenStreetMap unless the user says otherwise. The synthetic city is written in the same formats, and names the
program that wrote it.
"""

from __future__ import annotations

from typing import Final

from geoblanket.errors import ParameterError

__all__ = ["OPENSTREETMAP", "SYNTHETIC", "SYNTHETIC_PROGRAM", "check_credit", "credit_of_programs", "is_credit"]

OPENSTREETMAP: Final = "© OpenStreetMap contributors"
"""The words that OpenStreetMap asks for."""

SYNTHETIC: Final = "a synthetic city"
"""Stands where a credit would: these streets are nowhere."""

SYNTHETIC_PROGRAM: Final = "geoblanket city"
"""What an OpenStreetMap file of the synthetic city names as the program that wrote it."""

_LONGEST: Final = 200
"""Characters of a credit; it must fit into a picture's corner."""


def credit_of_programs(programs: set[str]) -> str:
    """Return the credit of OpenStreetMap files by the programs that wrote them."""
    return SYNTHETIC if programs == {SYNTHETIC_PROGRAM} else OPENSTREETMAP


def is_credit(value: object) -> bool:
    """Return whether a value is one line of text that fits into a picture's corner."""
    return isinstance(value, str) and len(value) <= _LONGEST and value.isprintable()


def check_credit(value: str) -> str:
    """Return a credit that the user gave.

    Raises
    ------
    ParameterError
        If it is not one line of at most 200 characters.
    """
    if not is_credit(value):
        raise ParameterError(
            f"The credit must be one line of at most {_LONGEST} printable characters. Shorten it, or give '' for none."
        )
    return value
