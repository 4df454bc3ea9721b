"""Which extra brings a package that is not installed."""

from __future__ import annotations

from typing import Final

from geoblanket.errors import MissingExtraError

__all__ = ["EXTRA_OF_MODULE", "MODULES_OF_EXTRA", "explain_missing"]

MODULES_OF_EXTRA: Final = {
    "city": ("highspy", "joblib", "matplotlib", "osmium", "polars", "pydantic", "scipy", "sklearn", "threadpoolctl"),
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
