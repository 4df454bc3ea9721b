"""Mechanisms against each other: utility, leakage, attacks and what reports cost together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import on_first_use

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

_HOME = {
    "METHODS": "geoblanket.evaluate.methods",
    "RESULTS_SCHEMA": "geoblanket.evaluate.results",
    "Cases": "geoblanket.evaluate.measures.attacker",
    "CityFiles": "geoblanket.evaluate.city_data",
    "Composition": "geoblanket.evaluate.measures.leakage",
    "Evaluation": "geoblanket.evaluate.running",
    "Experiment": "geoblanket.evaluate.experiment",
    "Inference": "geoblanket.evaluate.measures.attacker",
    "Leakage": "geoblanket.evaluate.measures.leakage",
    "RowSight": "geoblanket.evaluate.measures.tracking",
    "Setting": "geoblanket.evaluate.settings",
    "Tracked": "geoblanket.evaluate.measures.tracking",
    "Violation": "geoblanket.evaluate.sanity",
    "WalkTracker": "geoblanket.evaluate.measures.tracking",
    "WorstPair": "geoblanket.evaluate.measures.leakage",
    "ZoneReports": "geoblanket.evaluate.measures.tracking",
    "answers": "geoblanket.evaluate.report.writing",
    "attack_report": "geoblanket.evaluate.measures.attacker",
    "check_results": "geoblanket.evaluate.sanity",
    "compose": "geoblanket.evaluate.measures.leakage",
    "draw_reports": "geoblanket.evaluate.measures.tracking",
    "effective_epsilon": "geoblanket.evaluate.measures.leakage",
    "evaluate_cities": "geoblanket.evaluate.running",
    "place_channel": "geoblanket.evaluate.measures.leakage",
    "posterior_leakage": "geoblanket.evaluate.measures.leakage",
    "read_experiment": "geoblanket.evaluate.experiment",
    "read_results": "geoblanket.evaluate.results",
    "same_past": "geoblanket.evaluate.measures.leakage",
    "trajectory_bound": "geoblanket.evaluate.measures.leakage",
    "worst_pair": "geoblanket.evaluate.measures.leakage",
    "write_report": "geoblanket.evaluate.report.writing",
    "zone_distance_km": "geoblanket.evaluate.measures.attacker",
}

__getattr__, __dir__ = on_first_use(__name__, _HOME)
