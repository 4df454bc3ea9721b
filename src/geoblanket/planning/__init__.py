"""From what an hour, a report and a home may tell to an ε, an interval and a fence."""

from geoblanket._lazy import exported

__getattr__, __dir__, __all__ = exported(__name__)
