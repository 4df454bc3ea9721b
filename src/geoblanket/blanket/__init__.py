"""Markov blankets: which past locations a vehicle's next one depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import homes, on_first_use

if TYPE_CHECKING:
    from geoblanket.blanket.discovery import Discovery, DiscoveryOptions, discover
    from geoblanket.blanket.findings import FINDINGS_SCHEMA, scan_findings
    from geoblanket.blanket.independence import CIResult, IndependenceTest, find_test, lagged
    from geoblanket.blanket.predictor import Predictor
    from geoblanket.blanket.predictor_file import load_predictor, save_predictor
    from geoblanket.blanket.processes import simulate_windows
    from geoblanket.blanket.scetbon import scetbon_statistic
    from geoblanket.blanket.training import TrainResult, train

__all__ = [
    "FINDINGS_SCHEMA",
    "CIResult",
    "Discovery",
    "DiscoveryOptions",
    "IndependenceTest",
    "Predictor",
    "TrainResult",
    "discover",
    "find_test",
    "lagged",
    "load_predictor",
    "save_predictor",
    "scan_findings",
    "scetbon_statistic",
    "simulate_windows",
    "train",
]

_HOME = homes(__name__)
__getattr__, __dir__ = on_first_use(__name__, _HOME)
