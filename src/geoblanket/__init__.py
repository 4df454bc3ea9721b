"""geoblanket: context-aware metric differential privacy for vehicle locations.

Everything public is importable from here; submodules load on first use, so that `import geoblanket` is quick.
"""

from geoblanket._lazy import exported

__version__ = "0.3.0"

__getattr__, __dir__, __all__ = exported(__name__)
