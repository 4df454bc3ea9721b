"""Losses: what a reported place costs the service where the vehicle is in truth at another, as a table over places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import homes, on_first_use

if TYPE_CHECKING:
    from geoblanket.loss.place_loss import FunctionLoss, LossTable, PlaceLoss, TableLoss
    from geoblanket.loss.standard import NearestVehicle, StraightLine, TravelCost
    from geoblanket.loss.tasks import Effort, TaskPrior

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

_HOME = homes(__name__)
__getattr__, __dir__ = on_first_use(__name__, _HOME)
