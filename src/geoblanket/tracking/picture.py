"""Pictures of a motion model, and of a tracker's belief about one vehicle."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse

from geoblanket._arrays import Singles
from geoblanket._geodesy import EARTH_RADIUS_M
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.picture import draw_heat, plot_map
from geoblanket.tracking.estimate import Estimates
from geoblanket.tracking.motion_model import MotionModel

_LEAST: Final = 1e-3
"""Places with less than this share of the largest probability are not drawn."""
_INK: Final = "#1b3a6b"


def plot_motion(model: MotionModel, *, ax: Axes | None, roads: RoadGraph | None) -> Axes:
    """Draw how often vehicles are at each place for `MotionModel.plot`."""
    axes = plot_map(ax, model.lat, model.lon, roads=roads)
    _draw_shares(axes, model, np.asarray(model.to_places @ model.usual), label="share of the time at the place")
    axes.set_title(f"{model.place_count:,} places, steps of {model.interval_s:g} s", loc="left", fontsize=9)
    return axes


def plot_belief(
    model: MotionModel, belief: Singles, estimates: Estimates, *, ax: Axes | None, roads: RoadGraph | None
) -> Axes:
    """Draw a vehicle's belief for `Tracker.plot`: a dot for each place, and the circle of 90 %."""
    axes = plot_map(ax, model.lat, model.lon, roads=roads)
    _draw_shares(axes, model, belief, label="probability of the place")
    lat, lon, radius_m = (float(values[0]) for values in (estimates.lat, estimates.lon, estimates.radius_m))
    north = np.degrees(radius_m / EARTH_RADIUS_M)
    east = north / np.cos(np.radians(lat))
    axes.add_patch(Ellipse((lon, lat), 2 * east, 2 * north, fill=False, color=_INK, linewidth=1.2, zorder=4))
    axes.scatter([lon], [lat], s=40, marker="+", color=_INK, zorder=4)
    axes.set_title(f"+ the estimate; 90 % within {radius_m:,.0f} m of it", loc="left", fontsize=9)
    return axes


def _draw_shares(axes: Axes, model: MotionModel, share: Singles, *, label: str) -> None:
    largest = float(share.max())
    order = np.argsort(share, kind="stable")
    shown = order[share[order] >= _LEAST * largest]
    limits = (_LEAST * largest, largest)
    draw_heat(axes, model.lat[shown], model.lon[shown], share[shown].astype(np.float64), label=label, limits=limits)
