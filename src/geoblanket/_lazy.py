"""Modules that load on first use: public names of a package, and pictures, so that importing stays quick."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from geoblanket._extras import explain_missing

__all__ = ["companion", "on_first_use"]


def companion(module: str, feature: str) -> Any:
    """Return a module that draws or describes what the caller defines, and so imports the caller.

    Parameters
    ----------
    module
        Its name; of the caller's folder.
    feature
        What needs it, for the error.

    Raises
    ------
    MissingExtraError
        If a package that it needs is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        explain_missing(error, feature)
        raise


def on_first_use(package: str, home: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package.

    Parameters
    ----------
    package
        Its `__name__`.
    home
        For each public name, the module that defines it. Neither a module of the package nor a name in its `__init__`
        may be called the same, or importing that module would hide the name.
    """

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(importlib.import_module(home[name]), name)
        except ModuleNotFoundError as error:
            explain_missing(error, f"{package}.{name}")
            raise
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return get, names
