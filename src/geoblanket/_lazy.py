"""Modules that load on first use, so that importing stays quick, and the extra that brings a missing package."""

from __future__ import annotations

import dis
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from geoblanket.errors import MissingExtraError

__all__ = ["EXTRA_OF_MODULE", "MODULES_OF_EXTRA", "companion", "explain_missing", "homes", "on_first_use"]

MODULES_OF_EXTRA: Final = {
    "city": (
        *("highspy", "joblib", "matplotlib", "osmium", "PIL", "polars", "pydantic", "scipy", "sklearn"),
        "threadpoolctl",
    ),
    "service": ("fastapi", "h11", "maplibre", "prometheus_client", "starlette", "uvicorn"),
    "gateway": ("paho",),
    "private": ("opendp",),
    "cluster": ("distributed",),
    "signing": ("cryptography",),
    "networkx": ("networkx", "shapely"),
}
"""The modules that each extra brings, of those that are imported by name."""
EXTRA_OF_MODULE: Final = {module: extra for extra, modules in MODULES_OF_EXTRA.items() for module in modules}
"""The extra to install for each module that a device does without."""


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


def homes(package: str) -> dict[str, str]:
    """Return the module that defines each name that a package imports for type checkers.

    Imports below `if TYPE_CHECKING` never run, but the package's compiled code has them. So names that load on first
    use are listed once, for type checkers. This needs no source files.

    Parameters
    ----------
    package
        Its `__name__`; to be called from its `__init__`, after all imports.
    """
    module = sys.modules[package]
    found, home = {}, ""
    for step in dis.get_instructions(module.__loader__.get_code(package)):  # type: ignore[union-attr]
        if step.opname == "IMPORT_NAME":
            home = step.argval
        elif step.opname == "IMPORT_FROM" and step.argval not in vars(module):
            found[step.argval] = home
    return found


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


def explain_missing(error: ModuleNotFoundError, feature: str, extra: str | None = None) -> None:
    """Say which extra a feature needs; return if the missing module belongs to none, which is a bug.

    Parameters
    ----------
    error
        What importing a module gave.
    feature
        What was asked for.
    extra
        The extra that brings everything for it; None: the one of the module that is missing.

    Raises
    ------
    MissingExtraError
        If the missing module belongs to an extra.
    """
    missing = EXTRA_OF_MODULE.get((error.name or "").partition(".")[0])
    if missing is not None:
        raise MissingExtraError(feature, extra or missing) from error
