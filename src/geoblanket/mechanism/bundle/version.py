"""The version of a bundle: the publisher's number, which only grows, so that devices refuse to go back."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from geoblanket.errors import InputError, ParameterError
from geoblanket.mechanism.bundle.file import BundleFile

__all__ = ["next_version"]

_FIRST: Final = 1


def next_version(path: str | Path, asked: int | None = None) -> int:
    """Return the version of a bundle that is to be written at `path`.

    Parameters
    ----------
    asked
        The version that was asked for; None: 1, or one more than that of the bundle that is replaced. A file that is no
        readable bundle has no version to go beyond.

    Raises
    ------
    ParameterError
        If the version that was asked for is not greater than that of the bundle that is replaced.
    """
    try:
        replaced = BundleFile.read(path).header.version
    except InputError:
        return _FIRST if asked is None else asked
    if asked is not None and asked <= replaced:
        raise ParameterError(
            f"The version of the bundle must be greater than {replaced}, that of the bundle it replaces ({path}): "
            f"devices refuse to go back. Got {asked} instead; leave it out for {replaced + 1}."
        )
    return replaced + 1 if asked is None else asked
