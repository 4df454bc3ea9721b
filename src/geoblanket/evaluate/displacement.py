"""How far reports are from where the vehicle was, on held-out walks."""

from __future__ import annotations

from dataclasses import replace

from geoblanket.build.held_out import VehicleLosses, vehicle_losses
from geoblanket.build.rows import ZoneRows
from geoblanket.loss.straight_line import StraightLine
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mobility.histories import Steps
from geoblanket.roads.places import Places

__all__ = ["vehicle_displacements"]


def vehicle_displacements(mechanism: Mechanism, rows: ZoneRows, steps: Steps, places: Places) -> VehicleLosses:
    """Return the expected distances, in kilometres, of reports from the present places of steps.

    Nothing is drawn: each step counts with its expectation. `build.held_out.measure` makes a mean with its confidence
    interval over vehicles of it. The parameters are those of `build.held_out.vehicle_losses`.
    """
    at_once = replace(steps, next_place=steps.histories[:, 0])
    return vehicle_losses(mechanism, rows, at_once, StraightLine(places))
