from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from geoblanket.mechanism import Bundle
from geoblanket.mechanism.bundle.storage import LatticeBundle
from geoblanket.release import Budget, Device, Fleet, Ledger
from tests.release.lattices import LAT, LON, START, deviation

NAMES = [f"taxi {number}" for number in range(30)]
ALL = np.arange(30)
HOUR = 3600


@pytest.mark.usefixtures("fixed_randomness")
def test_reports_of_a_fleet_follow_the_weights(lattice_bundle: Bundle) -> None:
    assert isinstance(lattice_bundle, LatticeBundle)
    count = 12_000
    fleet = Fleet.open(lattice_bundle, vehicles=[str(number) for number in range(count)], ledger=None, replay=True)
    first = fleet.report(np.arange(count), np.full(count, LAT), np.full(count, LON), START)
    assert first.kind == "cell"
    assert abs(deviation(first.place, lattice_bundle.lattice.weights(LAT, LON) / 2**62)) < 4
    lat, lon = lattice_bundle.lattice.centers(first.place)
    assert np.abs(first.lat - lat).max() < 1e-7 > np.abs(first.lon - lon).max()


@pytest.mark.parametrize("durable", [False, True])
def test_costs_and_refusals_are_those_of_devices(lattice_bundle: Bundle, tmp_path: Path, durable: bool) -> None:
    """Vehicles that report now and then, over three hours, with budgets that end."""
    rng = np.random.default_rng(1)
    budget = Budget(24.0, 5400.0)
    ledger = tmp_path / "fleet.ledger" if durable else None
    if ledger is not None:
        Ledger.create(ledger, budget=budget)
    fleet = Fleet.open(lattice_bundle, vehicles=NAMES, ledger=ledger, budget=budget, replay=True)
    devices = [Device.open(lattice_bundle, ledger=None, budget=budget, replay=True) for _ in NAMES]
    reasons = []
    for step in range(0, 3 * HOUR, 300):
        some = np.flatnonzero(rng.random(30) < 0.8)
        reports = fleet.report(some, np.full(len(some), LAT), np.full(len(some), LON), START + step)
        for vehicle, refused in zip(some.tolist(), reports.refused.tolist(), strict=True):
            try:
                devices[vehicle].report(LAT, LON, START + step)
                reasons.append("")
            except Exception as error:
                reasons.append(str(error))
            assert refused == bool(reasons[-1])
        if step == 4200 and ledger is not None:
            fleet.close()
            fleet = Fleet.open(lattice_bundle, vehicles=NAMES, ledger=ledger, replay=True)
    shared = fleet._ledger
    assert shared is not None
    for name, device in zip(NAMES, devices, strict=True):
        mine, its = shared.account(name), device._ledger.account("")
        assert (mine.spent_micro, mine.drawn_slot_ms) == (its.spent_micro, its.drawn_slot_ms)
    assert len({reason.partition(" Enough of it")[0] for reason in reasons if reason}) == 1
    fleet.close()
    if ledger is not None:
        Ledger.open(ledger).close()
