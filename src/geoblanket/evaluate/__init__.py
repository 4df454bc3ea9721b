"""Mechanisms against each other: utility, leakage, attacks and what reports cost together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import on_first_use

if TYPE_CHECKING:
    from geoblanket.evaluate.attacker import Cases, Inference, attack_report, zone_distance_km
    from geoblanket.evaluate.composition import Composition, compose, trajectory_bound
    from geoblanket.evaluate.epsilon_effective import WorstPair, effective_epsilon, worst_pair
    from geoblanket.evaluate.leakage import Leakage, place_channel, posterior_leakage, same_past
    from geoblanket.evaluate.mobility_model import MobilityModel
    from geoblanket.evaluate.tracking import Attack, Tracking, track, track_over_time

__all__ = [
    "Attack",
    "Cases",
    "Composition",
    "Inference",
    "Leakage",
    "MobilityModel",
    "Tracking",
    "WorstPair",
    "attack_report",
    "compose",
    "effective_epsilon",
    "place_channel",
    "posterior_leakage",
    "same_past",
    "track",
    "track_over_time",
    "trajectory_bound",
    "worst_pair",
    "zone_distance_km",
]

_HOME = {
    "Attack": "geoblanket.evaluate.tracking",
    "Cases": "geoblanket.evaluate.attacker",
    "Composition": "geoblanket.evaluate.composition",
    "Inference": "geoblanket.evaluate.attacker",
    "Leakage": "geoblanket.evaluate.leakage",
    "MobilityModel": "geoblanket.evaluate.mobility_model",
    "Tracking": "geoblanket.evaluate.tracking",
    "WorstPair": "geoblanket.evaluate.epsilon_effective",
    "attack_report": "geoblanket.evaluate.attacker",
    "compose": "geoblanket.evaluate.composition",
    "effective_epsilon": "geoblanket.evaluate.epsilon_effective",
    "place_channel": "geoblanket.evaluate.leakage",
    "posterior_leakage": "geoblanket.evaluate.leakage",
    "same_past": "geoblanket.evaluate.leakage",
    "track": "geoblanket.evaluate.tracking",
    "track_over_time": "geoblanket.evaluate.tracking",
    "trajectory_bound": "geoblanket.evaluate.composition",
    "worst_pair": "geoblanket.evaluate.epsilon_effective",
    "zone_distance_km": "geoblanket.evaluate.attacker",
}

__getattr__, __dir__ = on_first_use(__name__, _HOME)
