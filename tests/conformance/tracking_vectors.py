"""Vectors of the tracker: a motion model, reports, and where they lead."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any, Final

import numpy as np

from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.tracker import Tracker
from tests.conformance.vectors import Json, encoded, lattice_of, loaded

ACROSS: Final = 5
SPREAD_M: Final = 60.0
FIRST_SLOT: Final = 57_326_400
GAPS: Final = (1, 1, 1, 2, 1, 3, 0, 1, -1, 1, 1, 60, 1, 1, 118, 1, 300, 1, 1, 1)
"""Slots from one report to the next: in a row, with gaps, in the same slot, late, and after more than two hours."""

REPEATED: Final = (3, 4, 6, 7, 12, 13, 15, 16, 17, 18)
"""Numbers of reports that repeat the last one: in a row, after gaps, in the same slot, after more than two hours."""

CASES: Final = {
    "no hold": "at the equator",
    "hold": "odd frame, even cells",
    "a map": "at the equator",
    "a map, order 1": "odd frame, even cells",
}
"""Which bundle. A map belongs to a road graph, so the tracker also believes in cells around it."""


def grid_model(bundle: Bundle, rng: random.Random, *, order: int = 2, roads: str = "") -> MotionModel:
    """Return a model over a grid of places in the middle of a frame, with random moves."""
    south, west, north, east = lattice_of(bundle).spec.plane.corners
    steps = [(0.5 + number) / ACROSS * 0.6 + 0.2 for number in range(ACROSS)]
    places = [
        (round((south + (north - south) * up) * 1e7), round((west + (east - west) * right) * 1e7))
        for up in steps
        for right in steps
    ]
    near = [
        [
            row * ACROSS + column
            for row in range(max(place // ACROSS - 1, 0), min(place // ACROSS + 2, ACROSS))
            for column in range(max(place % ACROSS - 1, 0), min(place % ACROSS + 2, ACROSS))
        ]
        for place in range(ACROSS**2)
    ]
    states = list(dict.fromkeys((now, before)[:order] for before in range(ACROSS**2) for now in near[before]))
    number = {state: index for index, state in enumerate(states)}
    offsets, targets, chances = [0], [], []
    for now, *_ in states:
        targets += [number[(after, now)[:order]] for after in near[now]]
        chances += _shares([rng.random() for _ in near[now]])
        offsets.append(len(targets))
    return MotionModel(
        places_e7=np.array(places, np.int32),
        places_identity=roads,
        interval_s=bundle.needed_clock().interval_s / 2,
        states=np.array(states, np.int32),
        start=np.array(_shares([rng.random() for _ in states]), np.float32),
        offsets=np.array(offsets, np.int64),
        targets=np.array(targets, np.int32),
        chances=np.array(chances, np.float32),
        spread_m=SPREAD_M,
        learned={"from": "distance"},
    )


def _shares(values: list[float]) -> list[float]:
    return [value / sum(values) for value in values]


def tracking_vector(name: str, bundle: str, model: str, folder: Path) -> Json:
    """Return where reports lead."""
    rng = random.Random(name)  # noqa: S311
    path = folder / "city.model"
    path.write_bytes(base64.b64decode(model))
    city = loaded(bundle)
    tracker = Tracker(city, MotionModel.load(path))
    reports: list[dict[str, Any]] = []
    slot = FIRST_SLOT
    for number, gap in enumerate((0, *GAPS)):
        slot += gap
        cell = 0 if number == 5 else rng.randrange(tracker.outputs)
        if number in REPEATED:
            cell = reports[-1]["cell"]
        tracked = tracker.see("car", slot, cell)
        later = tracker.estimate("car", ahead=3)
        reports.append({
            "slot": slot,
            "cell": cell,
            "outcome": tracked.outcome,
            "estimate": [tracked.lat, tracked.lon, tracked.radius_m],
            "ahead": [float(later.lat[0]), float(later.lon[0]), float(later.radius_m[0])],
        })  # fmt: skip
    return {"name": name, "bundle": bundle, "model": model, "reports": reports}


def made_model(name: str, bundle: str, path: Path) -> str:
    """Return the file of a model for a case and its bundle."""
    rng = random.Random(3)  # noqa: S311
    model = grid_model(loaded(bundle), rng, order=1 if "order 1" in name else 2, roads="some" if "map" in name else "")
    model.save(path)
    return encoded(path.read_bytes())
