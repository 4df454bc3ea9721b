"""From roads and walks to problems, and from problems to a verified bundle."""

from geoblanket._lazy import exported

__getattr__, __dir__, __all__ = exported(__name__)
