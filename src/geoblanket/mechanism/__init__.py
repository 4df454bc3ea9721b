"""Mechanisms: problem, optimiser, exact repair and verification, exact sampling and bundles; arrays only."""

from geoblanket._lazy import exported

__getattr__, __dir__, __all__ = exported(__name__)
