"""Learning with differential privacy for the drivers: noisy counts of whole vehicles, and a ledger of the cost."""

from geoblanket._lazy import exported

__getattr__, __dir__, __all__ = exported(__name__)
