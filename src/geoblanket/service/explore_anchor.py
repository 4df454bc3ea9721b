"""Replays by a lattice: a trip or a parked car, with the anchor and without, and where the tracker takes it to be.

Reports and anchors are drawn for the page.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from geoblanket._arrays import Ints
from geoblanket._geodesy import haversine_m
from geoblanket.service.explore_lattice import ExploredLattice
from geoblanket.service.explore_tracking import (
    lattice_filter,
    model_around,
    model_facts,
    points,
    track,
    tracked_json,
    typical_error_m,
    unreported,
)
from geoblanket.service.explore_ways import Way
from geoblanket.tracking.motion_model import MotionModel

__all__ = ["replay_way"]


def replay_way(explored: ExploredLattice, way: Way, model: MotionModel | None) -> dict[str, Any]:
    """Report a way once with the anchor, if the bundle has one, and once without; return both as JSON values.

    Parameters
    ----------
    model
        How vehicles move in this city; None: the tracker knows no roads.
    """
    anchor, slots = explored.lattice.anchor, way.slots(explored.interval_s)
    period: Ints = np.zeros_like(slots)
    if anchor is not None:
        period = (slots * round(explored.interval_s * 1000)) // (anchor.period_s * 1000)
    true = points(way.lat, way.lon)
    return {
        "times": [datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds") for time in way.time_s.tolist()],
        "moves": way.moves,
        "true": true,
        "lines": way.lines if way.lines is not None else [true[max(at - 1, 0) : at + 1] for at in range(len(true))],
        "periods": (np.cumsum(np.diff(period, prepend=period[0]) > 0) + 1).tolist(),
        "without": _without(explored, way, model),
        "anchored": None if anchor is None else _reported(explored, way, model, period, anchored=True),
        "independent": _reported(explored, way, model, period, anchored=False),
    }


def _reported(
    explored: ExploredLattice, way: Way, model: MotionModel | None, period: Ints, *, anchored: bool
) -> dict[str, Any]:
    """Draw reports and track them."""
    lattice, plane = explored.lattice, explored.lattice.spec.plane
    shifts = {number: explored.new_shift() if anchored else (0, 0) for number in np.unique(period).tolist()}
    east, north = np.array([shifts[number] for number in period.tolist()]).T
    cells = lattice.draw_many(way.lat, way.lon, shift=(east, north))
    interval_s = explored.interval_s
    if model is None or not way.moves:
        model = model_around(lattice, cells, interval_s=interval_s, anchored=anchored, moves=way.moves, city=model)
    beliefs = lattice_filter(lattice, model, interval_s=interval_s, anchored=anchored)
    lat, lon = lattice.centers(cells)
    x, y = plane.units(way.lat, way.lon)
    return {
        "model": model_facts(beliefs.model),
        "reports": points(lat, lon),
        "shifted": points(*plane.degrees((x + east) % plane.side, (y + north) % plane.side)),
        "error_m": np.round(haversine_m(way.lat, way.lon, lat, lon), 1).tolist(),
        "tracked": tracked_json(track(beliefs, way.slots(interval_s), cells), way.lat, way.lon),
    }


def _without(explored: ExploredLattice, way: Way, model: MotionModel | None) -> dict[str, Any]:
    """Return how far off one is without any report.

    For a walk by its own truth. A made-up way begins wherever somebody clicked, perhaps at the best guess itself: for
    it, on average over the city.
    """
    if model is None:
        return {"error_m": [explored.unreported_error_m] * len(way.lat), "typical": True}
    if way.nodes is None:
        return {"error_m": [typical_error_m(model)] * len(way.lat), "typical": True}
    beliefs = lattice_filter(explored.lattice, model, interval_s=explored.interval_s, anchored=False)
    estimates = unreported(beliefs, way.slots(explored.interval_s))
    return {"error_m": tracked_json(estimates, way.lat, way.lon)["error_m"], "typical": False}
