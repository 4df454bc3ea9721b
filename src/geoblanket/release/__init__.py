"""Releasing locations with a bundle: a device with a durable budget, fleets, and traces in bulk."""

from geoblanket._lazy import exported

__getattr__, __dir__, __all__ = exported(__name__)
