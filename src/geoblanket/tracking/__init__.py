"""Tracking by released reports: a motion model, and a tracker that follows many vehicles."""

from geoblanket._lazy import exported

__getattr__, __dir__, __all__ = exported(__name__)
