"""What an interrupted run left behind: whose it is, and whether to go on with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from geoblanket._files import atomic_output, private_folder
from geoblanket.errors import MismatchError, OutputError

__all__ = ["check_same", "open_folder"]

_ABOUT: Final = "about.json"


def open_folder(path: Path, about: Mapping[str, Any], *, parts: str, resume: bool) -> None:
    """Make the folder of what a run has finished, or go on with it; nobody but the user may enter it.

    Parameters
    ----------
    path
        The folder; it may be absent.
    about
        What makes the run what it is: parameters, inputs and versions, as JSON values.
    parts
        A pattern for the files of what is finished. Without any, the run begins anew.
    resume
        Go on with what the folder holds. Otherwise it must not hold any parts.

    Raises
    ------
    MismatchError
        If the parts belong to a run with other parameters or inputs.
    OutputError
        If there are parts and `resume` is false, or the folder cannot be used.
    """
    about = json.loads(json.dumps(about))
    if next(path.glob(parts), None) is not None:
        if not resume:
            raise OutputError(
                f"{path}: an interrupted run left what it had finished. Resume it (--resume), or remove the folder "
                "first."
            )
        check_same(_read_about(path), about, path)
        return
    try:
        private_folder(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be made ({error.strerror or error}).") from error
    with atomic_output(path / _ABOUT, private=True) as temporary:
        temporary.write_text(json.dumps(about), encoding="utf-8")


def check_same(found: Mapping[str, Any], wanted: Mapping[str, Any], path: Path) -> None:
    """Raise MismatchError, with the names of what differs, if an interrupted run is not the one that is wanted."""
    different = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
    if different:
        raise MismatchError(
            f"{path}: the interrupted run had another {', another '.join(different)}. Resume with what it was started "
            "with, or remove it to begin anew."
        )


def _read_about(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unknown(folder) from error
    if not isinstance(found, dict):
        raise _unknown(folder)
    return found


def _unknown(folder: Path) -> OutputError:
    return OutputError(f"{folder}: does not say which run it belongs to. Remove the folder to begin anew.")
