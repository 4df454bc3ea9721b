"""Comparison of mechanisms: utility, leakage, attacks, and the cost of many reports together."""

from geoblanket._lazy import exported

__getattr__, __dir__, __all__ = exported(__name__)
