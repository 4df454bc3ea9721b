"""Bundles for conformance vectors: frames all over the Earth, and files that must be refused."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from geoblanket._arrayfile import read_arrays, write_arrays
from geoblanket.errors import GeoblanketError
from geoblanket.mechanism.bundle.header import LatticeHeader, parsed_lattice
from geoblanket.mechanism.bundle.storage import MAGIC, save_lattice
from geoblanket.mechanism.lattice.making import Area, make_spec, spec_over
from geoblanket.mechanism.lattice.plane import Plane
from geoblanket.mechanism.lattice.spec import LatticeSpec, octant_count
from geoblanket.mechanism.promise import DISCLOSED_BY_LATTICE

TextEdit = Callable[[str], str]
Edit = Callable[[dict[str, Any], dict[str, Any]], None]


def frame(
    cells: int, *, cell_units: int, unit_mm: int, epsilon: float, south: float = 41.1, west: float = -8.6
) -> LatticeSpec:
    """Return a lattice on a frame, degrees."""
    plane = Plane(round(south * 1e7), round(west * 1e7), unit_mm, cells * cell_units)
    plane.check()
    return make_spec(plane, epsilon_micro=round(epsilon * 1e6), cell_units=cell_units)


SPECS: dict[str, Callable[[], LatticeSpec]] = {
    "odd frame, even cells": lambda: frame(31, cell_units=10, unit_mm=10_000, epsilon=2.0),
    "even frame, odd cells": lambda: frame(12, cell_units=7, unit_mm=5_000, epsilon=4.0),
    "window within the frame": lambda: frame(300, cell_units=2, unit_mm=10_000, epsilon=9.0),
    "across 180 degrees": lambda: frame(40, cell_units=5, unit_mm=20_000, epsilon=3.0, south=-17.9, west=179.99),
    "near the pole": lambda: frame(25, cell_units=4, unit_mm=30_000, epsilon=2.5, south=84.7, west=-179.9999999),
    "at the equator": lambda: frame(64, cell_units=8, unit_mm=10_000, epsilon=1.0, south=-0.05, west=32.5),
    "one unit a cell": lambda: frame(50, cell_units=1, unit_mm=20_000, epsilon=8.0, south=-33.9, west=151.2),
    "millimetres": lambda: frame(20, cell_units=6, unit_mm=700, epsilon=50.0, south=52.5, west=13.4),
    "kilometres": lambda: frame(20, cell_units=1, unit_mm=10**6, epsilon=0.4, south=-1.4, west=36.7),
    "a city": lambda: spec_over(Area(48.80, 2.25, 48.91, 2.42), epsilon=4.0, cell_m=60.0),
}
"""Frames of odd and even numbers of cells and units, in all quarters of the Earth."""
HOLDS_MM = {
    "odd frame, even cells": 50_000,
    "even frame, odd cells": 49_999,  # just below 10 units
    "across 180 degrees": 50_000,
    "near the pole": 29_999,  # less than a unit: disclosed, and never held
    "one unit a cell": 250_000,  # the most that this ε allows
    "a city": 50_000,
}
"""Within what distance reports are held, millimetres, in the frames that do so."""
INTERVALS_S = {"one unit a cell": 0.25, "across 180 degrees": 60.0}


def save(name: str, path: Path) -> None:
    """Write one of the bundles."""
    hold_mm, interval_s = HOLDS_MM.get(name, 0), INTERVALS_S.get(name, 30.0)
    save_lattice(path, SPECS[name](), hold_mm=hold_mm, version=7, interval_s=interval_s)


def _small(path: Path) -> Path:
    spec = frame(15, cell_units=4, unit_mm=25_000, epsilon=2.0)
    save_lattice(path, spec, hold_mm=50_000, version=3, interval_s=30.0)
    return path


def edited(path: Path, change: Edit) -> bytes:
    """Return a bundle with changed contents, all hashes and what follows from the lattice made right again."""
    fields, arrays = read_arrays(path, magic=MAGIC, kind="a bundle")
    copies = {name: np.array(array) for name, array in arrays.items()}
    change(fields, copies)
    write_arrays(path, magic=MAGIC, fields=fields, arrays=copies)
    return path.read_bytes()


def with_text(data: bytes, change: TextEdit) -> bytes:
    """Return a bundle with another text of its header, and the right hash of it."""
    end = 48 + int.from_bytes(data[8:16], "little")
    header = change(data[48:end].decode()).encode()
    padding = bytes(-(48 + len(header)) % 64)
    rest = data[end + -end % 64 :]
    return MAGIC + len(header).to_bytes(8, "little") + hashlib.sha256(header).digest() + header + padding + rest


def _section(change: Callable[[dict[str, Any]], None]) -> Edit:
    """Change the lattice, and make right what follows from it."""

    def apply(fields: dict[str, Any], _: dict[str, Any]) -> None:
        change(fields["lattice"])
        try:
            spec, hold_mm = parsed_lattice(fields["lattice"])
            fields.update(_following(spec, hold_mm))
        except (ValueError, ArithmeticError, GeoblanketError):
            pass  # it is refused for another reason

    return apply


def _following(spec: LatticeSpec, hold_mm: int) -> dict[str, Any]:
    """Return what the fields beside a lattice must say."""
    fields = LatticeHeader(version=3, interval_ms=30_000, hold_mm=hold_mm, spec=spec).as_fields()
    return {name: fields[name] for name in ("domain", "snapping_radius_mm", "disclosed")}


TEXTS: dict[str, TextEdit] = {
    "duplicate key": lambda text: text.replace('"version": 3', '"version": 3, "version": 3'),
    "unknown key": lambda text: text.replace('"version": 3', '"version": 3, "zz": 1'),
    "missing key": lambda text: text.replace(', "version": 3', ""),
    "keys out of order": lambda text: text.replace('"arrays"', '"zrrays"'),
    "unknown key of a part": lambda text: text.replace('"shape": [6]', '"shape": [6], "zz": 1'),
    "unknown key outside": lambda text: text[:-1] + ', "zz": 1}',
    "NaN": lambda text: text.replace('"version": 3', '"version": NaN'),
    "infinity": lambda text: text.replace('"version": 3', '"version": Infinity'),
    "1e400": lambda text: text.replace('"version": 3', '"version": 1e400'),
    "a float": lambda text: text.replace('"version": 3', '"version": 3.0'),
    "a float of the rounding": lambda text: text.replace('_mm": 17686', '_mm": 17686.0'),
    "a float in short": lambda text: text.replace('"version": 3', '"version": 3e0'),
    "a string": lambda text: text.replace('"version": 3', '"version": "3"'),
    "true": lambda text: text.replace('"version": 3', '"version": true'),
    "null": lambda text: text.replace('"version": 3', '"version": null'),
    "minus nothing": lambda text: text.replace('"version": 3', '"version": -0'),
    "leading zero": lambda text: text.replace('"version": 3', '"version": 03'),
    "plus sign": lambda text: text.replace('"version": 3', '"version": +3'),
    "negative version": lambda text: text.replace('"version": 3', '"version": -3'),
    "huge version": lambda text: text.replace('"version": 3', f'"version": {2**53 + 1}'),
    "many digits": lambda text: text.replace('"version": 3', '"version": ' + "9" * 5000),
    "spaces": lambda text: text.replace('"version": 3', '"version":  3'),
    "a new line": lambda text: text + "\n",
    "deep": lambda text: text.replace('"version": 3', '"version": ' + "[" * 20_000),
    "not JSON": lambda text: text[:-1],
    "a list": lambda text: f"[{text}]",
    "not ASCII": lambda text: text.replace("all day", "all däy"),
    "escaped without need": lambda text: text.replace("all day", "all \\u0064ay"),
    "escaped slash": lambda text: text.replace("all day", "all\\/day"),
    "escaped in capitals": lambda text: text.replace("all day", "all \\u00E4day"),
    "lone surrogate": lambda text: text.replace("all day", "\\ud800"),
    "control characters": lambda text: text.replace("all day", "\\u001b[2J"),
    "raw control characters": lambda text: text.replace("all day", "\x1b[2J"),
    "other part": lambda text: text.replace('"multipliers"', '"multiplierz"'),
    "other type": lambda text: text.replace("<i4", "<f4"),
    "unsigned": lambda text: text.replace("<i4", "<u4"),
    "forbidden type": lambda text: text.replace("<i4", "|O4"),
    "type as a number": lambda text: text.replace('"<i4"', "4"),
    "shape of two": lambda text: text.replace('"shape": [6]', '"shape": [6, 1]'),
    "shape too large": lambda text: text.replace('"shape": [6]', '"shape": [1099511627775, 1099511627775]'),
    "shape beyond 64 bits": lambda text: text.replace('"shape": [6]', '"shape": [18446744073709551616]'),
    "shape of nothing": lambda text: text.replace('"shape": [6]', '"shape": [0, 1099511627775, 1099511627775]'),
    "negative shape": lambda text: text.replace('"shape": [6]', '"shape": [-6]'),
    "longer shape": lambda text: text.replace('"shape": [6]', '"shape": [7]'),
    "five dimensions": lambda text: text.replace('"shape": [6]', '"shape": [6, 1, 1, 1, 1]'),
    "shape as a number": lambda text: text.replace('"shape": [6]', '"shape": 6'),
    "shape of a float": lambda text: text.replace('"shape": [6]', '"shape": [6.0]'),
    "other hash of a part": lambda text: text.replace('"sha256": "', '"sha256": "0')[:-1] + "}",
    "hash as a number": lambda text: text[: text.index('"sha256": ')] + '"sha256": 6' + text[text.index(', "shape"') :],
    "hours twice": lambda text: text.replace("22, 23]", "22, 22]"),
    "an hour as a float": lambda text: text.replace("22, 23]", "22, 23.0]"),
    "an hour too many": lambda text: text.replace("22, 23]", "22, 23, 24]"),
    "no interval": lambda text: text.replace('"interval_ms": 30000', '"interval_ms": 0'),
    "endless interval": lambda text: text.replace('"interval_ms": 30000', '"interval_ms": 86400001'),
    "other start": lambda text: text.replace('"start": "start"', '"start": "begin"'),
    "lattice as a list": lambda text: text.replace('"lattice": {', '"lattice": [{').replace('}, "mech', '}], "mech'),
    "no lattice": lambda text: text[: text.index('"lattice": ')] + text[text.index('"mechanisms": ') :],
    "mechanisms as an object": lambda text: text.replace('"mechanisms": []', '"mechanisms": {}'),
    "a million units in a cell": lambda text: text.replace('"cell_units": 4', '"cell_units": 1000000'),
}  # fmt: skip
"""Other texts of the header of `_small`, with right hashes."""


def _numbers(name: str, value: int) -> Callable[[dict[str, Any]], None]:
    return lambda section: section.update({name: value})


SECTIONS: dict[str, Callable[[dict[str, Any]], None]] = {
    "cells of half the size": lambda section: section.update(cell_units=section["cell_units"] // 2),
    "units of twice the size": lambda section: section.update(unit_mm=section["unit_mm"] * 2),
    "units of half the size": lambda section: section.update(unit_mm=section["unit_mm"] // 2),
    "one more row of cells": lambda section: section.update(side=section["side"] + section["cell_units"]),
    "a smaller ε": lambda section: section.update(epsilon_micro=section["epsilon_micro"] * 9 // 10),
    "a faster rate": lambda section: section.update(rate=section["rate"] * 1001 // 1000),
    "a slower rate": lambda section: section.update(rate=section["rate"] * 99 // 100),
    "another shift": lambda section: section.update(shift=section["shift"] + 1),
    "an unknown key": lambda section: section.update(more=1),
    "a float": lambda section: section.update(rate=float(section["rate"])),
    **{
        f"{name} = {value}": _numbers(name, value)
        for name, values in {
            "rate": (0, -1, 2**50, 2**62), "shift": (-1, 62, 63, 2**62), "floor": (0, -1, 2**54, 2**60, 2**62),
            "half_window": (0, -1, 1, 2, 6, 7, 1023, 1024, 2**62), "cell_units": (0, -1, 1, 2, 5, 1024),
            "epsilon_micro": (0, -1, 1_900_000, 2_200_000, 10**9 + 1), "unit_mm": (0, -5, 10**6 + 1),
            "side": (0, -60, 61, 2**31, 2**31 + 4), "south_e7": (849_999_000, -900_000_000, 2**62),
            "west_e7": (1_800_000_000, -1_800_000_001), "format": (0, 1, 3),
            "hold_mm": (-1, -(2**62), 1_000_001, 2**62),
        }.items()
        for value in values
        if (name, value) not in {("half_window", 7), ("half_window", 1023)}  # the frame is its own window
    },
    "no format": lambda section: section.pop("format"),
    "no hold": lambda section: section.pop("hold_mm"),
    "hold as a string": lambda section: section.update(hold_mm="50000"),
    "hold as a float": lambda section: section.update(hold_mm=50_000.0),
    "format 1 without an anchor": lambda section: _format_1(section, None),
    "format 1 with an anchor": lambda section: _format_1(
        section, {"epsilon_micro": 2_000_000, "floor": 2**21, "period_s": 3600, "rate": 590}
    ),
    "format 2 with an anchor": lambda section: section.update(anchor=None),
}  # fmt: skip


def _format_1(section: dict[str, Any], anchor: dict[str, int] | None) -> None:
    del section["hold_mm"]
    section.update(format=1, anchor=anchor)


HEADERS: dict[str, Callable[[dict[str, Any]], None]] = {
    "domain": lambda fields: fields.update(domain="0" * 64),
    "disclosed": lambda fields: fields.update(disclosed="nothing"),
    "rest not disclosed": lambda fields: fields.update(disclosed=DISCLOSED_BY_LATTICE),
    "snapping radius": lambda fields: fields.update(snapping_radius_mm=0),
    "time zone": lambda fields: fields["clock"].update(time_zone="Europe/Lisbon"),
    "regimes": lambda fields: fields["clock"].update(regimes=[["day", list(range(24))]]),
    "no clock": lambda fields: fields.update(clock=None),
    "zones beside it": lambda fields: fields.update(mechanisms=[{"zone": "0"}]),
    "no lattice": lambda fields: fields.update(lattice=None),
    "learned": lambda fields: fields.update(training={"source": "walks"}),
    "learned from nobody, said twice": lambda fields: fields.update(training={"source": "nobody"}),
}


def refused(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield files that must be refused, with what is wrong with them."""
    path = folder / "small.bundle"
    whole = _small(path).read_bytes()
    yield from {
        "nothing": b"",
        "too short": whole[:47],
        "half of the header": whole[:200],
        "one byte less": whole[:-1],
        "one byte more": whole + b"\0",
        "another magic": b"GBBUNDL1" + whole[8:],
        "a motion model": b"GBMOTION" + whole[8:],
        "padding": _padded(whole),
        "a changed multiplier": whole[:-1] + bytes([whole[-1] ^ 1]),
        "a pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00" * 9,
        "a zip file": b"PK\x03\x04" * 30,
    }.items()
    for size in (2**63, 2**64 - 1, 2**30, 10**4, 0):
        yield f"a header of {size} bytes", whole[:8] + size.to_bytes(8, "little") + whole[16:]
    for name, rewrite in TEXTS.items():
        data = with_text(whole, rewrite)
        assert data != whole, name
        yield f"header: {name}", data
    for name, change in SECTIONS.items():
        yield f"lattice: {name}", edited(_small(path), _section(change))
    for name, change in HEADERS.items():
        yield f"fields: {name}", edited(_small(path), lambda fields, _, change=change: change(fields))  # type: ignore[misc]
    for name, table in _tables().items():
        yield f"multipliers: {name}", edited(_small(path), table)
    yield from _large(folder / "large.bundle")


def _padded(whole: bytes) -> bytes:
    end = 48 + int.from_bytes(whole[8:16], "little")
    assert end % 64
    return whole[:end] + b"\1" + whole[end + 1 :]


def _tables() -> dict[str, Edit]:
    def put(index: int, change: int) -> Edit:
        return lambda _, arrays: arrays["multipliers"].put(index, arrays["multipliers"][index] + change)

    return {
        **{f"one more at {index}": put(index, 1) for index in range(6)},
        "much more at 2": put(2, 40_000_000),
        "less at 3": put(3, -40_000_000),
        "a little less at 5": put(5, -300_000),
        "none": lambda _, arrays: arrays["multipliers"].put(1, 0),
        "negative": lambda _, arrays: arrays["multipliers"].put(1, -5),
        "all halved": lambda _, arrays: arrays.update(multipliers=arrays["multipliers"] // 2),
        "all largest": lambda _, arrays: arrays.update(multipliers=np.full(6, 2**31 - 1, np.int32)),
        "another array": lambda _, arrays: arrays.update(places_e7=np.zeros((1, 2), np.int32)),
        "one less": lambda _, arrays: arrays.update(multipliers=arrays["multipliers"][:-1]),
        "of 64 bits": lambda _, arrays: arrays.update(multipliers=arrays["multipliers"].astype(np.int64)),
        "no table": lambda _, arrays: arrays.pop("multipliers"),
    }


def _large(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield files that would take long to verify, or whose sums are beyond 64 bits."""

    def save_edited(spec: LatticeSpec, **changes: Any) -> bytes:
        save_lattice(path, spec, version=1, interval_s=30.0)
        return edited(path, lambda fields, arrays: _replaced(fields, arrays, spec, changes))

    narrow = frame(40, cell_units=4, unit_mm=25_000, epsilon=6.0)
    more = (narrow.multipliers.astype(np.int64) * 15 // 10).astype(np.int32)
    yield (
        "a floor and weights beyond 64 bits",
        save_edited(narrow, floor=2**62 // 1601, half_window=4, multipliers=more),
    )
    yield "a floor that is nearly all", save_edited(narrow, floor=2**62 // 1601)
    units = 304
    yield (
        "more pairs of multipliers than are compared",
        save_edited(
            narrow,
            cell_units=units,
            half_window=1,
            plane=replace(narrow.plane, side=3 * units, unit_mm=100),
            multipliers=np.full(octant_count(units), 2**30, np.int32),
        ),
    )


def _replaced(fields: dict[str, Any], arrays: dict[str, Any], spec: LatticeSpec, changes: dict[str, Any]) -> None:
    other = replace(spec, **changes)
    section = LatticeHeader(version=3, interval_ms=30_000, hold_mm=0, spec=other).as_fields()["lattice"]
    fields.update(_following(other, 0), lattice=section)
    arrays["multipliers"] = other.multipliers


def changed_numbers(rng: random.Random, fields: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Change a number of a lattice, little or much, and make right what follows from it."""
    section, table = fields["lattice"], arrays["multipliers"]
    chosen = rng.choice([*section, *["multipliers"] * 4, *["rate", "floor", "epsilon_micro"] * 2])
    if chosen == "multipliers":
        index = rng.randrange(len(table))
        table[index] = min(max(_nudged(rng, int(table[index])), -(2**31)), 2**31 - 1)
    elif chosen != "format":
        section[chosen] = min(max(_nudged(rng, section[chosen]), -(2**62)), 2**62)
    _section(lambda _: None)(fields, arrays)


def _nudged(rng: random.Random, number: int) -> int:
    return rng.choice([
        number + rng.choice([-1, 1]),
        number + rng.randint(-100, 100),
        round(number * rng.uniform(0.999, 1.001)),
        round(number * rng.uniform(0.9, 1.1)),
        number * 2,
        -number,
        rng.choice([0, 1, 2**31, 2**53, 2**62]),
    ])  # fmt: skip
