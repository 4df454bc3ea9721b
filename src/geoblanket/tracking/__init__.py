"""What a recipient makes of released reports: a motion model, and a tracker that follows many vehicles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import homes, on_first_use

if TYPE_CHECKING:
    from geoblanket.tracking.learning import BlanketOrders, learn_motion, read_orders
    from geoblanket.tracking.motion_model import MotionModel
    from geoblanket.tracking.synthetic_walks import DrawnWalks, draw_walks, places_of_model
    from geoblanket.tracking.table import TrackSummary, track_table
    from geoblanket.tracking.tracker import Tracked, Tracker

__all__ = [
    "BlanketOrders",
    "DrawnWalks",
    "MotionModel",
    "TrackSummary",
    "Tracked",
    "Tracker",
    "draw_walks",
    "learn_motion",
    "places_of_model",
    "read_orders",
    "track_table",
]

_HOME = homes(__name__)
__getattr__, __dir__ = on_first_use(__name__, _HOME)
