"""Modules that load on first use, so that importing stays quick, and the extra that brings a missing package."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from geoblanket.errors import MissingExtraError

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
"""The modules that each extra brings, as far as geoblanket imports them."""
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
    """Return the module that defines each name that a package exports; nothing if it has no stub file."""
    stub = Path(str(sys.modules[package].__file__)).with_suffix(".pyi")
    steps = ast.parse(stub.read_text(encoding="utf-8")).body if stub.exists() else []
    imports = [step for step in steps if isinstance(step, ast.ImportFrom)]
    return {alias.name: str(step.module) for step in imports for alias in step.names}


def exported(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose names load on first use.

    Its stub file, `__init__.pyi`, is the one list of these names: type checkers read it, and so does this function, as
    Scientific Python recommends (SPEC 1).

    Parameters
    ----------
    package
        Its `__name__`. No module of it may be called as a name, or importing that module would hide the name.
    """
    home = homes(package)

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

    return get, lambda: sorted({*vars(sys.modules[package]), *home}), sorted(home)


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
