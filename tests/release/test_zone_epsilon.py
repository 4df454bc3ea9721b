"""Zones with an ε of their own: verified at it, charged for it, and no more told than the zone."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from geoblanket._arrayfile import read_arrays, write_arrays
from geoblanket.errors import GuaranteeViolation, RefusedError
from geoblanket.mechanism import ZoneBundle, load_bundle, save_bundle
from geoblanket.mechanism.bundle.policy import ANYTHING
from geoblanket.mechanism.bundle.storage import MAGIC
from geoblanket.release import Budget, Device, Fleet
from tests.mechanism.bundles import load_zones
from tests.release.worlds import CLOCK, PLACES, certain

EPSILON = {"east": 1.0, "west": 4.0}
WEST, EAST, NOWHERE = 0, 3, 5
"""Places; the last is in no zone, and counts as one of the east."""
START = 1_719_792_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zones") / "a.bundle"
    parts = [certain(regime, zone, epsilon=EPSILON[zone]) for regime in ("start", "day", "night") for zone in EPSILON]
    save_bundle(path, parts, version=1, places_e7=PLACES.coordinates_e7, clock=CLOCK)
    return path


@pytest.fixture(scope="module")
def bundle(path: Path) -> ZoneBundle:
    return load_zones(path)


def zone_of(place: int) -> str:
    return "west" if place % 6 < 3 else "east"


def charged(bundle: ZoneBundle, way: list[int]) -> list[float]:
    """What a device charges for each place of a way, per km."""
    budget = Budget(1000, 3600.0)
    with Device.open(bundle, ledger=None, budget=budget, replay=True, policy=ANYTHING) as device:
        left = [1000.0]
        for step, place in enumerate(way):
            report = device.report(float(PLACES.lat[place]), float(PLACES.lon[place]), START + 30 * step)
            left.append(report.left)
    return (-np.diff(left)).tolist()


def test_a_report_costs_the_epsilon_of_its_zone_and_the_past_the_largest(bundle: ZoneBundle) -> None:
    way = [WEST, EAST, EAST, NOWHERE, WEST, WEST]
    assert charged(bundle, way) == pytest.approx([8, 5, 5, 5, 8, 8])
    assert charged(bundle, [EAST]) == pytest.approx([5])


@pytest.mark.parametrize("seed", range(5))
def test_every_place_is_charged_at_least_what_its_reports_cost_added_up(bundle: ZoneBundle, seed: int) -> None:
    way = np.random.default_rng(seed).choice([WEST, EAST, NOWHERE], 12).tolist()
    # Its own report, and as the place before in the next one (w = 1); the first has no history.
    cost = [EPSILON[zone_of(now)] + EPSILON[zone_of(then)] for now, then in pairwise(way)]
    assert all(paid >= spent for paid, spent in zip(charged(bundle, way), cost, strict=False))


def test_a_fleet_charges_the_same(bundle: ZoneBundle) -> None:
    way = [WEST, EAST, NOWHERE, WEST]
    budget = Budget(1000, 3600.0)
    with Fleet.open(bundle, vehicles=["a"], ledger=None, budget=budget, replay=True, policy=ANYTHING) as fleet:
        for step, place in enumerate(way):
            fleet.report([0], [float(PLACES.lat[place])], [float(PLACES.lon[place])], START + 30 * step)
        assert fleet._ledger is not None
        costs = [answer.cost_micro / 1e6 for answer in fleet._ledger.account("a").answers]
    assert costs == pytest.approx(charged(bundle, way))


@pytest.mark.parametrize("last", [WEST, EAST, NOWHERE])
def test_a_refusal_does_not_tell_the_zone(bundle: ZoneBundle, last: int) -> None:
    """7 are left: enough for the east, too little for the west; so for neither."""
    budget = Budget(15, 3600.0)
    with Device.open(bundle, ledger=None, budget=budget, replay=True, policy=ANYTHING) as device:
        assert device.report(float(PLACES.lat[WEST]), float(PLACES.lon[WEST]), START).left == pytest.approx(7)
        with pytest.raises(RefusedError, match="budget"):
            device.report(float(PLACES.lat[last]), float(PLACES.lon[last]), START + 30)


def test_the_promise_states_the_largest_and_the_range(bundle: ZoneBundle) -> None:
    promise = bundle.promise
    assert (promise.smallest_epsilon, promise.epsilon) == (1.0, 4.0)
    assert promise.epsilon_in_words == "ε = 1 to 4 per km"
    assert "ε = 1 per km for any d; ε = 4 per km for any d. ε is that of the zone." in promise.terms[0]
    assert (promise.as_json()["smallest_epsilon_per_km"], promise.as_json()["epsilon_per_km"]) == (1.0, 4.0)
    assert bundle.costs == (8_000_000, 8_000_000)


@pytest.mark.parametrize(("zone", "promised"), [("east", 999_999), ("west", 3_999_999)])
def test_each_zone_is_verified_at_its_own_epsilon(path: Path, tmp_path: Path, zone: str, promised: int) -> None:
    fields, arrays = read_arrays(path, magic=MAGIC, kind="a bundle", hint="", largest_bytes=1 << 30)
    for mechanism in fields["mechanisms"]:
        if mechanism["zone"] == zone:
            mechanism["epsilon_micro"] = promised
    write_arrays(tmp_path / "a.bundle", magic=MAGIC, fields=fields, arrays=arrays)
    with pytest.raises(GuaranteeViolation, match=f"zone '{zone}'"):
        load_bundle(tmp_path / "a.bundle")
