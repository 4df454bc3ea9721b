from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from geoblanket.mechanism import Bundle
from geoblanket.release import Budget, Device, Fleet, Ledger
from tests.release.lattices import LAT, LON, START, deviation, mixture

NAMES = [f"taxi {number}" for number in range(30)]
ALL = np.arange(30)
HOUR = 3600


@pytest.mark.usefixtures("fixed_randomness")
def test_reports_of_a_fleet_follow_the_weights_over_all_anchors(lattice_bundle: Bundle) -> None:
    assert lattice_bundle.lattice is not None
    count = 12_000
    fleet = Fleet.open(lattice_bundle, vehicles=[str(number) for number in range(count)], ledger=None, replay=True)
    first = fleet.report(np.arange(count), np.full(count, LAT), np.full(count, LON), START)
    assert first.kind == "cell"
    assert abs(deviation(first.place, mixture(lattice_bundle.lattice, LAT, LON))) < 4
    lat, lon = lattice_bundle.lattice.centers(first.place)
    assert np.abs(first.lat - lat).max() < 1e-7 > np.abs(first.lon - lon).max()


@pytest.mark.usefixtures("fixed_randomness")
def test_each_vehicle_keeps_its_anchor_and_gets_another_in_the_next_period(lattice_bundle: Bundle) -> None:
    fleet = Fleet.open(lattice_bundle, vehicles=NAMES, ledger=None, replay=True)
    source = fleet._source
    shifts = []
    for step in range(0, 2 * HOUR, 600):
        fleet.report(ALL, np.full(30, LAT), np.full(30, LON), START + step)
        shifts.append(source._shift.copy())  # type: ignore[attr-defined]
    assert all((shift == shifts[0]).all() for shift in shifts[:6])
    assert all((shift == shifts[6]).all() for shift in shifts[6:])
    assert (shifts[0] != shifts[6]).any(axis=1).sum() > 25
    assert len(np.unique(shifts[0], axis=0)) > 25
    fleet.close()
    assert not source._shift.any()  # type: ignore[attr-defined]


@pytest.mark.parametrize("durable", [False, True])
def test_costs_and_refusals_are_those_of_devices(lattice_bundle: Bundle, tmp_path: Path, durable: bool) -> None:
    """Vehicles that report now and then, over three hours, with budgets that end."""
    rng = np.random.default_rng(1)
    budget = Budget(30.0, 5400.0, 6.0)
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
        if step == 4200 and ledger is not None:  # a restart within a period
            fleet.close()
            fleet = Fleet.open(lattice_bundle, vehicles=NAMES, ledger=ledger, replay=True)
    book = fleet._ledger
    assert book is not None
    for name, device in zip(NAMES, devices, strict=True):
        mine, its = book.account(name), device._ledger.account("")
        assert (mine.spent_micro, mine.anchor_spent_micro) == (its.spent_micro, its.anchor_spent_micro)
        assert [kept.slot_ms for kept in mine.anchors] == [kept.slot_ms for kept in its.anchors]
    assert len({reason.partition(" Enough of it")[0] for reason in reasons if "anchors" in reason}) == 1
    assert any(reason and "anchors" not in reason for reason in reasons)
    fleet.close()
    if ledger is not None:
        Ledger.open(ledger).close()


def test_anchors_stay_when_vehicles_come_later(lattice_bundle: Bundle) -> None:
    fleet = Fleet.open(lattice_bundle, vehicles=NAMES[:10], ledger=None, budget=Budget(1e6, 3600), replay=True)
    fleet.report(ALL[:10], np.full(10, LAT), np.full(10, LON), START)
    before = fleet._source._shift.copy()  # type: ignore[attr-defined]
    fleet.enrol(NAMES[10:])
    fleet.report(ALL, np.full(30, LAT), np.full(30, LON), START + 30)
    after = fleet._source._shift  # type: ignore[attr-defined]
    assert (after[:10] == before).all()
    assert (after[10:] != 0).any(axis=1).sum() > 15
