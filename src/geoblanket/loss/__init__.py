"""Losses: what a reported place costs the service where the vehicle is in truth at another, as a table over places."""

from geoblanket._lazy import exported

__getattr__, __dir__, __all__ = exported(__name__)
