"""geoblanket: context-aware metric differential privacy for vehicle locations.

Everything public is importable from here; submodules load on first use, so that `import geoblanket` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from geoblanket.errors import (
    GeoblanketError,
    InputError,
    MismatchError,
    MissingExtraError,
    OutputError,
    ParameterError,
)

if TYPE_CHECKING:
    from geoblanket.roads.graph import RoadGraph

__all__ = [
    "GeoblanketError",
    "InputError",
    "MismatchError",
    "MissingExtraError",
    "OutputError",
    "ParameterError",
    "RoadGraph",
    "__version__",
]

__version__ = "0.1.0"

_HOME = {
    "RoadGraph": "geoblanket.roads.graph",
}
"""The module that defines each public name that is loaded on first use."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'geoblanket' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
