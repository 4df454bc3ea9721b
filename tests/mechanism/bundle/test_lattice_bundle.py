"""Bundles with a lattice: what is written is read, and what was edited is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoblanket._arrayfile import read_arrays, write_arrays
from geoblanket._training import NOBODY
from geoblanket.errors import GeoblanketError, InputError, LatticeViolation, MechanismError, PolicyError
from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.header import LatticeHeader, parsed_lattice
from geoblanket.mechanism.bundle.policy import DEFAULT_POLICY, Policy
from geoblanket.mechanism.bundle.storage import MAGIC, LatticeBundle, load_for_release, save_lattice
from geoblanket.mechanism.bundle.trust import Trust
from tests.mechanism.bundles import load_lattice
from tests.mechanism.lattice.frames import small_spec

SPEC = small_spec()
HOLD_MM = 50_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_lattice(tmp_path / "city.bundle", SPEC, hold_mm=HOLD_MM, version=3, interval_s=30)
    return tmp_path / "city.bundle"


def edited(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """Change a file, and make all of its hashes right again."""
    fields, arrays = read_arrays(path, magic=MAGIC, kind="a bundle")
    copies = {name: np.array(array) for name, array in arrays.items()}
    change(fields, copies)
    write_arrays(path, magic=MAGIC, fields=fields, arrays=copies)
    return path


def test_what_is_written_is_read(path: Path) -> None:
    bundle = load_lattice(path)
    lattice = bundle.lattice
    assert lattice.hold_m == 50
    assert lattice.epsilon == 2
    assert lattice.cell_m == 100
    assert lattice.cells == 31**2
    np.testing.assert_array_equal(lattice.spec.multipliers, SPEC.multipliers)
    assert bundle.version == 3
    assert bundle.disclosed == "when a report was made, and when the vehicle rests"
    assert bundle.costs == (2_000_000, 2_000_000)
    assert bundle.needed_clock().interval_s == 30
    assert f"Every report discloses {bundle.disclosed}." in str(bundle.promise)
    assert bundle.training == NOBODY
    assert str(bundle.promise).endswith(
        "In one sentence: each report changes the odds between two locations, d km apart, by at most a factor of "
        "e^(2·d), with 14.2 m added to d for rounding; a stay costs one report; disclosed: when a report was made, and "
        "when the vehicle rests; nothing was learned from anyone."
    )
    assert path.stat().st_size < 2_000


def test_the_same_lattice_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    save_lattice(tmp_path / "again.bundle", SPEC, hold_mm=HOLD_MM, version=3, interval_s=30)
    assert (tmp_path / "again.bundle").read_bytes() == path.read_bytes()


def test_a_known_file_is_not_verified_again_and_draws_the_same(path: Path) -> None:
    known = load_for_release(path, is_known=lambda _: True)
    assert isinstance(known, LatticeBundle)
    lattice = load_lattice(path).lattice
    lat, lon = lattice.center(300)
    np.testing.assert_array_equal(known.lattice.weights(lat, lon), lattice.weights(lat, lon))


LATTICE_EDITS: dict[str, Callable[[dict[str, Any]], None]] = {
    "cell size": lambda section: section.update(cell_units=section["cell_units"] // 2),
    "unit": lambda section: section.update(unit_mm=section["unit_mm"] * 2),
    "smaller unit": lambda section: section.update(unit_mm=section["unit_mm"] // 2),
    "frame": lambda section: section.update(side=section["side"] + section["cell_units"]),
    "smaller ε": lambda section: section.update(epsilon_micro=section["epsilon_micro"] * 9 // 10),
    "rate": lambda section: section.update(rate=section["rate"] * 1001 // 1000),
    "slower rate": lambda section: section.update(rate=section["rate"] * 99 // 100),
    "floor": lambda section: section.update(floor=1),
    "shift": lambda section: section.update(shift=section["shift"] + 1),
    "window": lambda section: section.update(half_window=3),
    "beyond the pole": lambda section: section.update(south_e7=899_000_000),
    "format": lambda section: section.update(format=3),
    "unknown": lambda section: section.update(more=1),
    "a float": lambda section: section.update(rate=float(section["rate"])),
    "hold of nothing": lambda section: section.update(hold_mm=-1),
    "hold beyond the error of a report": lambda section: section.update(hold_mm=1_000_001),
    "no hold": lambda section: section.pop("hold_mm"),
}


@pytest.mark.parametrize("name", LATTICE_EDITS)
def test_an_edited_lattice_is_refused(path: Path, name: str) -> None:
    with pytest.raises((InputError, LatticeViolation, MechanismError)) as raised:
        load_bundle(edited(path, lambda fields, _: _domain_made_right(fields, LATTICE_EDITS[name])))
    assert str(path) in str(raised.value)


def _domain_made_right(fields: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> None:

    change(fields["lattice"])
    try:
        spec, hold_mm = parsed_lattice(fields["lattice"])
        fields["domain"] = LatticeHeader(version=3, interval_ms=30_000, hold_mm=hold_mm, spec=spec).domain
        fields["snapping_radius_mm"] = spec.plane.rounding_mm
    except (ValueError, ArithmeticError, GeoblanketError):
        pass  # it is refused for another reason


HEADER_EDITS: dict[str, Callable[[dict[str, Any]], None]] = {
    "domain": lambda fields: fields.update(domain="0" * 64),
    "disclosed": lambda fields: fields.update(disclosed="nothing"),
    "snapping radius": lambda fields: fields.update(snapping_radius_mm=0),
    "time zone": lambda fields: fields["clock"].update(time_zone="Europe/Lisbon"),
    "regimes": lambda fields: fields["clock"].update(regimes=[["day", list(range(24))]]),
    "no clock": lambda fields: fields.update(clock=None),
    "version": lambda fields: fields.update(version=-1),
    "zones beside it": lambda fields: fields.update(mechanisms=[{"zone": "0"}]),
    "no lattice": lambda fields: fields.update(lattice=None),
    "learned": lambda fields: fields.update(training={"source": "walks"}),
    "learned from nobody, said twice": lambda fields: fields.update(training={"source": "nobody"}),
}


@pytest.mark.parametrize("name", HEADER_EDITS)
def test_an_edited_header_is_refused(path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"city\.bundle"):
        load_bundle(edited(path, lambda fields, _: HEADER_EDITS[name](fields)))


def test_edited_multipliers_are_refused(path: Path) -> None:
    def add(_: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays["multipliers"][4] += 1

    with pytest.raises(LatticeViolation, match="sink"):
        load_bundle(edited(path, add))


@pytest.mark.parametrize("change", [
    lambda arrays: arrays.update(multipliers=arrays["multipliers"][:-1]),
    lambda arrays: arrays.update(multipliers=arrays["multipliers"].astype(np.int64)),
    lambda arrays: arrays.update(places_e7=np.zeros((1, 2), np.int32)),
    lambda arrays: arrays.pop("multipliers"),
])  # fmt: skip
def test_other_parts_are_refused(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    with pytest.raises(InputError, match=r"part|table"):
        load_bundle(edited(path, lambda _, arrays: change(arrays)))


def test_trust_and_policy_hold_for_lattices(path: Path) -> None:
    with pytest.raises(InputError, match="older"):
        load_bundle(path, trust=Trust(minimum_version=4))
    bundle = load_bundle(path)
    DEFAULT_POLICY.check(bundle)
    for policy, words in (
        (Policy(largest_epsilon=1.0), "its ε is 2 per km, more than 1"),
        (Policy(largest_cost=1.0), "costs 2 per km"),
        (Policy(smallest_extent_m=5_000), "3100 m wide"),
        (Policy(largest_rounding_m=7), r"rounds a coordinate by up to 7\.08 m, more than 7 m \(largest_rounding_m\)"),
    ):
        with pytest.raises(PolicyError, match=words):
            policy.check(bundle)


def test_a_lattice_with_an_anchor_is_refused_and_says_what_to_run(path: Path) -> None:
    def of_before(fields: dict[str, Any], _: object) -> None:
        del fields["lattice"]["hold_mm"]
        fields["lattice"].update(format=1, anchor={"epsilon_micro": 2_000_000, "period_s": 3600, "rate": 1, "floor": 1})

    with pytest.raises(InputError, match=r"of version 0\.2, whose anchors .* with `geoblanket lattice`"):
        load_bundle(edited(path, of_before))
