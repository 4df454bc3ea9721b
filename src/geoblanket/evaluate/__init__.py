"""Mechanisms against each other: utility, leakage, attacks and what reports cost together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import on_first_use

if TYPE_CHECKING:
    from geoblanket.evaluate.attacker import Cases, Inference, attack_report, zone_distance_km
    from geoblanket.evaluate.city_data import CityFiles
    from geoblanket.evaluate.composition import Composition, compose, trajectory_bound
    from geoblanket.evaluate.epsilon_effective import WorstPair, effective_epsilon, worst_pair
    from geoblanket.evaluate.experiment import Experiment, read_experiment
    from geoblanket.evaluate.leakage import Leakage, place_channel, posterior_leakage, same_past
    from geoblanket.evaluate.methods import METHODS
    from geoblanket.evaluate.mobility_model import MobilityModel
    from geoblanket.evaluate.report import answers, write_report
    from geoblanket.evaluate.results import RESULTS_SCHEMA, read_results
    from geoblanket.evaluate.running import Evaluation, evaluate_cities
    from geoblanket.evaluate.sanity import Violation, check_results
    from geoblanket.evaluate.settings import Setting
    from geoblanket.evaluate.tracking import Attack, Tracking, track, track_over_time

__all__ = [
    "METHODS",
    "RESULTS_SCHEMA",
    "Attack",
    "Cases",
    "CityFiles",
    "Composition",
    "Evaluation",
    "Experiment",
    "Inference",
    "Leakage",
    "MobilityModel",
    "Setting",
    "Tracking",
    "Violation",
    "WorstPair",
    "answers",
    "attack_report",
    "check_results",
    "compose",
    "effective_epsilon",
    "evaluate_cities",
    "place_channel",
    "posterior_leakage",
    "read_experiment",
    "read_results",
    "same_past",
    "track",
    "track_over_time",
    "trajectory_bound",
    "worst_pair",
    "write_report",
    "zone_distance_km",
]

_HOME = {
    "METHODS": "geoblanket.evaluate.methods",
    "RESULTS_SCHEMA": "geoblanket.evaluate.results",
    "Attack": "geoblanket.evaluate.tracking",
    "Cases": "geoblanket.evaluate.attacker",
    "CityFiles": "geoblanket.evaluate.city_data",
    "Composition": "geoblanket.evaluate.composition",
    "Evaluation": "geoblanket.evaluate.running",
    "Experiment": "geoblanket.evaluate.experiment",
    "Inference": "geoblanket.evaluate.attacker",
    "Leakage": "geoblanket.evaluate.leakage",
    "MobilityModel": "geoblanket.evaluate.mobility_model",
    "Setting": "geoblanket.evaluate.settings",
    "Tracking": "geoblanket.evaluate.tracking",
    "Violation": "geoblanket.evaluate.sanity",
    "WorstPair": "geoblanket.evaluate.epsilon_effective",
    "answers": "geoblanket.evaluate.report",
    "attack_report": "geoblanket.evaluate.attacker",
    "check_results": "geoblanket.evaluate.sanity",
    "compose": "geoblanket.evaluate.composition",
    "effective_epsilon": "geoblanket.evaluate.epsilon_effective",
    "evaluate_cities": "geoblanket.evaluate.running",
    "place_channel": "geoblanket.evaluate.leakage",
    "posterior_leakage": "geoblanket.evaluate.leakage",
    "read_experiment": "geoblanket.evaluate.experiment",
    "read_results": "geoblanket.evaluate.results",
    "same_past": "geoblanket.evaluate.leakage",
    "track": "geoblanket.evaluate.tracking",
    "track_over_time": "geoblanket.evaluate.tracking",
    "trajectory_bound": "geoblanket.evaluate.composition",
    "worst_pair": "geoblanket.evaluate.epsilon_effective",
    "write_report": "geoblanket.evaluate.report",
    "zone_distance_km": "geoblanket.evaluate.attacker",
}

__getattr__, __dir__ = on_first_use(__name__, _HOME)
