"""Losses: what a reported place costs the service where the vehicle is in truth at another, as a table over places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import on_first_use

if TYPE_CHECKING:
    from geoblanket.loss.custom import FunctionLoss, TableLoss
    from geoblanket.loss.nearest_vehicle import NearestVehicle
    from geoblanket.loss.over_tasks import Effort
    from geoblanket.loss.place_loss import LossTable, PlaceLoss
    from geoblanket.loss.straight_line import StraightLine
    from geoblanket.loss.tasks import TaskPrior
    from geoblanket.loss.travel_cost import TravelCost

__all__ = [
    "Effort",
    "FunctionLoss",
    "LossTable",
    "NearestVehicle",
    "PlaceLoss",
    "StraightLine",
    "TableLoss",
    "TaskPrior",
    "TravelCost",
]

_HOME = {
    "Effort": "geoblanket.loss.over_tasks",
    "FunctionLoss": "geoblanket.loss.custom",
    "LossTable": "geoblanket.loss.place_loss",
    "NearestVehicle": "geoblanket.loss.nearest_vehicle",
    "PlaceLoss": "geoblanket.loss.place_loss",
    "StraightLine": "geoblanket.loss.straight_line",
    "TableLoss": "geoblanket.loss.custom",
    "TaskPrior": "geoblanket.loss.tasks",
    "TravelCost": "geoblanket.loss.travel_cost",
}

__getattr__, __dir__ = on_first_use(__name__, _HOME)
