"""Markov blankets: which past locations a vehicle's next one depends on."""

from geoblanket._lazy import exported

__getattr__, __dir__, __all__ = exported(__name__)
