"""Mechanisms against each other: utility, leakage, attacks and what reports cost together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import homes, on_first_use

if TYPE_CHECKING:
    from geoblanket.evaluate.city_data import CityFiles
    from geoblanket.evaluate.experiment import Experiment, read_experiment
    from geoblanket.evaluate.measures.attacker import Cases, Inference, attack_report, zone_distance_km
    from geoblanket.evaluate.measures.leakage import (
        Composition,
        Leakage,
        WorstPair,
        compose,
        effective_epsilon,
        place_channel,
        posterior_leakage,
        same_past,
        trajectory_bound,
        worst_pair,
    )
    from geoblanket.evaluate.measures.tracking import RowSight, Tracked, WalkTracker, ZoneReports, draw_reports
    from geoblanket.evaluate.methods import METHODS
    from geoblanket.evaluate.report.writing import answers, write_report
    from geoblanket.evaluate.results import RESULTS_SCHEMA, read_results
    from geoblanket.evaluate.running import Evaluation, evaluate_cities
    from geoblanket.evaluate.sanity import Violation, check_results
    from geoblanket.evaluate.settings import Setting

__all__ = [
    "METHODS",
    "RESULTS_SCHEMA",
    "Cases",
    "CityFiles",
    "Composition",
    "Evaluation",
    "Experiment",
    "Inference",
    "Leakage",
    "RowSight",
    "Setting",
    "Tracked",
    "Violation",
    "WalkTracker",
    "WorstPair",
    "ZoneReports",
    "answers",
    "attack_report",
    "check_results",
    "compose",
    "draw_reports",
    "effective_epsilon",
    "evaluate_cities",
    "place_channel",
    "posterior_leakage",
    "read_experiment",
    "read_results",
    "same_past",
    "trajectory_bound",
    "worst_pair",
    "write_report",
    "zone_distance_km",
]

_HOME = homes(__name__)
__getattr__, __dir__ = on_first_use(__name__, _HOME)
