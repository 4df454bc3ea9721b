"""Conformance vectors: what Python makes of bundles, random words and inputs, as JSON that other runtimes reproduce.

Numbers that may exceed 2^53 are strings.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from geoblanket.errors import GeoblanketError, ParameterError, RandomnessError, RefusedError
from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.policy import ANYTHING
from geoblanket.mechanism.bundle.storage import Bundle, LatticeBundle
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.spec import Drawing
from geoblanket.mechanism.sampling import random_word
from geoblanket.release.budget import Budget
from geoblanket.release.device import Device
from geoblanket.release.fence import Fence, Fences
from geoblanket.release.inputs import checked_location_e7
from tests.predictable import predictable_words

FOLDER: Final = Path(__file__).parents[2] / "clients/javascript/conformance"
START: Final = 1_719_792_000
PLANE: Final = ("north_scale", "east_scale", "north_e7", "width_e7", "rounding_mm")

Json = dict[str, Any]


def encoded(data: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(data).decode()


def loaded(text: str) -> Bundle:
    """Return the bundle of a vector."""
    return load_bundle("conformance", content=base64.b64decode(text))


def lattice_of(bundle: Bundle) -> Lattice:
    """Return the lattice that every bundle here has."""
    assert isinstance(bundle, LatticeBundle)
    return bundle.lattice


def vector_of(name: str, data: str, *, cases: int = 60) -> Json:
    """Return what Python makes of a bundle."""
    rng = random.Random(name)  # noqa: S311
    bundle = loaded(data)
    lattice = lattice_of(bundle)
    plane = lattice.spec.plane
    cells = sorted({0, lattice.cells - 1, *(rng.randrange(lattice.cells) for _ in range(12))})
    return {
        "name": name,
        "bundle": data,
        "sha256": bundle.sha256,
        "domain": bundle.domain,
        "version": bundle.version,
        "interval_ms": bundle.needed_clock().interval_ms,
        "epsilon_micro": lattice.spec.epsilon_micro,
        "cells": lattice.cells,
        "plane": {name: str(getattr(plane, name)) for name in PLANE},
        "units": [[*point, *plane.unit_of_e7(*checked_location_e7(*point))] for point in coordinates(lattice, rng)],
        "draws": [[x, y, str(word), cell] for x, y, word, cell in draws(lattice, rng, cases)],
        "centers": [[cell, *centre_e7(lattice, cell)] for cell in cells],
        "hold_m": lattice.hold_m,
        "certain": lattice.promise.certain,
        "holds": list(holds(lattice, rng, 20)),
        "conversations": conversations(bundle, rng),
    }  # fmt: skip


def centre_e7(lattice: Lattice, cell: int) -> tuple[int, int]:
    """Return where a device says that a cell is."""
    lat, lon = lattice.center(cell)
    return round(lat * 1e7), round(lon * 1e7)


def coordinates(lattice: Lattice, rng: random.Random, count: int = 20) -> Iterator[tuple[float, float]]:
    """Yield coordinates in the frame, around it, and all over the Earth."""
    plane = lattice.spec.plane
    south, west, north, east = plane.corners
    yield from ((south, west), (north, east), (0.0, 0.0), (90.0, 180.0), (-90.0, -180.0), (south, 180.0))
    width = (east - west) % 360
    for _ in range(count):
        yield rng.uniform(south, north), (west + rng.random() * width + 180) % 360 - 180
        wide = south + (north - south) * rng.uniform(-2, 3), (west + rng.uniform(-2, 3) * width + 180) % 360 - 180
        yield max(-90.0, min(90.0, wide[0])), wide[1]
        yield rng.uniform(-90, 90), rng.uniform(-180, 180)
    # Halfway between two numbers of 1e-7 degrees, as near as a double can be.
    yield round(south * 1e7) / 1e7 + 5e-8, round(west * 1e7) / 1e7 + 5e-8


def draws(lattice: Lattice, rng: random.Random, count: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield points, words and the cells to which they lead; some words are where one cell ends and the next begins."""
    drawing = Drawing(lattice.spec, prepare=False)
    side, window = lattice.spec.plane.side, lattice.spec.window
    for index in range(count):
        x, y = rng.randrange(side), rng.randrange(side)
        if index < 4:
            x, y = ((0, 0), (side - 1, 0), (side - 1, side - 1), (side // 2, side // 2))[index]
        sums = np.cumsum(window.row_sums(*_octant(lattice, x, y)))
        inside, row = int(sums[-1]), rng.randrange(len(sums))
        last_outside = inside + window.outside * lattice.spec.floor
        words = (
            rng.getrandbits(62), 0, 2**62 - 1, int(sums[row]), int(sums[row]) - 1, inside, inside - 1, last_outside,
            last_outside - 1, min(inside + rng.randrange(max(window.outside, 1)) * lattice.spec.floor, 2**62 - 1),
        )  # fmt: skip
        for word in words if index < 12 else words[:1]:
            yield x, y, word, drawing.cell(x, y, word)


def _octant(lattice: Lattice, x: int, y: int) -> tuple[int, int]:
    n = lattice.spec.cell_units
    east, north = abs(x % n - n // 2), abs(y % n - n // 2)
    return max(east, north), min(east, north)


def holds(lattice: Lattice, rng: random.Random, count: int) -> Iterator[list[Any]]:
    """Yield points, where the last report was drawn, and whether it is held: on the edge, one unit off, and around."""
    side, units = lattice.spec.plane.side, lattice.hold_mm // lattice.spec.plane.unit_mm
    offsets = [(0, 0), (units, 0), (0, -units), (units + 1, 0), (0, -units - 1), (units * 3 // 5, units * 4 // 5)]
    offsets += [(rng.randint(-units - 1, units + 1), rng.randint(-units - 1, units + 1)) for _ in range(count)]
    for east, north in offsets:
        drawn = rng.randrange(side), rng.randrange(side)
        x, y = min(max(drawn[0] + east, 0), side - 1), min(max(drawn[1] + north, 0), side - 1)
        yield [x, y, *drawn, lattice.holds(x, y, *drawn)]
    # The frame is a torus for weights only.
    yield [0, 0, side - 1, 0, lattice.holds(0, 0, side - 1, 0)]


def words_left() -> int:
    """Use up all words, and return how many there were."""
    left = 0
    while True:
        try:
            random_word()
        except RandomnessError:
            return left
        left += 1


def conversations(bundle: Bundle, rng: random.Random) -> list[Json]:
    """Return what a device says, report by report, to the end of its budget and beyond, without fences and with."""
    lattice = lattice_of(bundle)
    interval_s = bundle.needed_clock().interval_ms / 1000
    places = list(coordinates(lattice, rng, 4))
    result = []
    for budget, count in (
        (Budget(lattice.epsilon * 6.5, 10 * interval_s), 0),
        (Budget(lattice.epsilon * 1000, 6120), 3),
    ):
        words = [rng.getrandbits(62) for _ in range(200)]
        steps = list(_steps(lattice, rng, places, interval_s))
        with predictable_words(np.array([rng.getrandbits(62) for _ in range(400)], np.int64)):
            fences = _fences(places, count)
        with predictable_words(np.array(words, np.int64)):
            device = Device.open(bundle, ledger=None, budget=budget, policy=ANYTHING, replay=True, fences=fences)
            answers = [_answer(device, step) for step in steps]
            left = words_left()
        result.append({
            "budget": {
                "epsilon": budget.epsilon, "windowS": budget.window_s,
                "micro": budget.micro, "windowMs": budget.window_ms,
            },
            "fences": fences.as_json(),
            "words": [str(word) for word in words[: len(words) - left]],
            "steps": [{**step, "answer": answer} for step, answer in zip(steps, answers, strict=True)],
        })  # fmt: skip
    return result


def _fences(places: list[tuple[float, float]], count: int) -> Fences:
    """Return fences around some of the places, each far enough from the others."""
    fences = Fences()
    for place in places:
        if len(fences) < count and abs(place[0]) <= 83:
            drawn = Fence.draw(*place, radius_km=0.1 + 0.2 * len(fences), margin_m=50, name=f"place {len(fences)}")
            with suppress(ParameterError):
                fences = fences.with_all([drawn])
    return fences


def _steps(
    lattice: Lattice, rng: random.Random, places: list[tuple[float, float]], interval_s: float
) -> Iterator[Json]:
    """Yield positions, half of them near the one before, so that reports are held."""
    unit = lattice.spec.plane.unit_mm / 1.1e8  # degrees
    lat, lon = rng.choice(places)
    time = START + rng.random() * interval_s
    for number in range(36):
        if rng.random() < 0.4:
            lat, lon = rng.choice(places)
        lat = min(max(lat + rng.uniform(-4, 4) * unit, -90.0), 90.0)
        request = rng.choice([None, None, None, f"request {number}", f"request {number // 5}", "ümläut 🚕"])
        yield {"lat": lat, "lon": lon, "time": time, "request": request}
        time += rng.choice([0.0, interval_s, interval_s, interval_s, 1.5 * interval_s, 5 * interval_s, -interval_s])
    yield {"lat": 90.5, "lon": 0.0, "time": time, "request": None}
    yield {"lat": 0.0, "lon": -180.5, "time": time, "request": None}
    yield {"lat": 0.0, "lon": 0.0, "time": time * 1000, "request": None}
    yield {"lat": 0.0, "lon": 0.0, "time": time, "request": ""}
    yield {"lat": 0.0, "lon": 0.0, "time": time, "request": "two\nlines"}
    yield {"lat": 0.0, "lon": 0.0, "time": time, "request": "x" * 201}


def _answer(device: Device, step: Json) -> Json:
    try:
        report = device.report(step["lat"], step["lon"], step["time"], request=step["request"])
    except GeoblanketError as error:
        reason = error.reason if isinstance(error, RefusedError) else None
        return {"error": type(error).__name__, "reason": reason}
    return report.as_dict()


def refusal_of(name: str, data: str) -> Json:
    """Return how Python refuses a file."""
    try:
        loaded(data)
    except GeoblanketError as error:
        return {"name": name, "bundle": data, "error": type(error).__name__}
    raise AssertionError(f"{name} is not refused")
