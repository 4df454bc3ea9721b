from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoblanket.errors import LedgerError, ParameterError
from geoblanket.mechanism import Bundle
from geoblanket.release import Budget, Device, Fleet, Ledger
from tests.release.worlds import PLACES, certain, report

NINE = datetime(2024, 7, 1, 0, tzinfo=UTC).timestamp()
NAMES = [f"taxi {number}" for number in range(50)]
ALL = np.arange(50)


def at(places: Any) -> tuple[Any, Any]:
    return PLACES.lat[places] + 1e-4, PLACES.lon[places] - 1e-4


def test_each_vehicle_is_reported_as_by_a_device_of_its_own(town: Bundle) -> None:
    """Walks with gaps, over the change from day to night, against devices."""
    rng = np.random.default_rng(0)
    fleet = Fleet.open(town, vehicles=NAMES, ledger=None, replay=True)
    devices = [Device.open(town, ledger=None, budget=Budget(1e8, 3600.0), replay=True) for _ in NAMES]
    start = NINE + 9 * 3600 - 300
    for step in range(20):
        some = rng.permutation(50)[: rng.integers(0, 51)] if step % 3 else ALL
        places = rng.integers(0, 24, len(some))
        times = start + 30 * step + rng.uniform(0, 29.9, len(some))
        reports = fleet.report(some, *at(places), times)
        expected = [
            devices[vehicle].report(*at(place), time)
            for vehicle, place, time in zip(some.tolist(), places.tolist(), times.tolist(), strict=True)
        ]
        assert reports.place.tolist() == [report.place for report in expected]
        assert reports.lat.tolist() == [report.lat for report in expected]
        assert reports.lon.tolist() == [report.lon for report in expected]
        assert reports.slot.tolist() == [report.slot for report in expected]
        assert not reports.stored.any()
        assert not reports.refused.any()


def test_the_same_slot_has_the_same_answer_and_an_older_one_none(spread: Bundle) -> None:
    fleet = Fleet.open(spread, vehicles=NAMES, ledger=None, replay=True)
    first = fleet.report(ALL, *at(np.full(50, 9)), NINE)
    again = fleet.report(ALL[::-1], *at(np.full(50, 3)), NINE + 20)
    assert again.stored.all()
    assert again.place.tolist() == first.place[::-1].tolist()
    older = fleet.report(ALL[:2], *at(np.full(2, 3)), NINE - 30)
    assert older.refused.all()
    assert older.place.tolist() == [-1, -1]
    assert np.isnan(older.lat).all()
    assert fleet.report(ALL, *at(np.full(50, 9)), NINE + 30).place.tolist() != first.place.tolist()


@pytest.mark.parametrize("durable", [False, True])
def test_each_vehicle_has_a_budget_of_its_own(spread: Bundle, tmp_path: Path, durable: bool) -> None:
    budget = Budget(12.0, 600.0)
    ledger = tmp_path / "a.ledger" if durable else None
    if ledger is not None:
        Ledger.create(ledger, budget=budget)
    fleet = Fleet.open(spread, vehicles=NAMES, ledger=ledger, budget=budget, replay=True)
    fleet.report(ALL[:10], *at(np.full(10, 9)), NINE)
    refused = [fleet.report(ALL, *at(np.full(50, 9)), NINE + 30 * step).refused for step in range(1, 5)]
    assert [int(some.sum()) for some in refused] == [0, 0, 10, 50]
    assert refused[2][:10].all()
    # The first report leaves the window; what was refused is no history, so that this is a start.
    later = fleet.report(ALL, *at(np.full(50, 9)), NINE + 600)
    assert later.refused.tolist() == [False] * 10 + [True] * 40
    fleet.close()
    if ledger is not None:
        opened = Ledger.open(ledger)
        assert opened.spent_micro == 4_000_000 * (10 * 4 + 40 * 3)
        assert opened.commits == 1 + 5  # the calls in which something was released, and the making
        opened.close()


def test_answers_and_budgets_outlive_the_process(spread: Bundle, tmp_path: Path) -> None:
    Ledger.create(tmp_path / "a.ledger", budget=Budget(8.0, 600.0))
    with Fleet.open(spread, vehicles=NAMES, ledger=tmp_path / "a.ledger", replay=True) as fleet:
        first = fleet.report(ALL, *at(np.full(50, 9)), NINE)
    with Fleet.open(spread, vehicles=[*NAMES[25:], "new"], ledger=tmp_path / "a.ledger", replay=True) as fleet:
        again = fleet.report(np.arange(26), *at(np.full(26, 2)), NINE)
        assert again.place[:25].tolist() == first.place[25:].tolist()
        assert again.stored.tolist() == [True] * 25 + [False]
        assert not fleet.report(np.arange(26), *at(np.full(26, 2)), NINE + 30).refused.any()
        assert fleet.report(np.arange(26), *at(np.full(26, 2)), NINE + 60).refused.all()
        with pytest.raises(LedgerError, match="in use"):
            Ledger.open(tmp_path / "a.ledger")


def test_after_a_restart_there_is_no_history(town: Bundle, tmp_path: Path) -> None:
    Ledger.create(tmp_path / "a.ledger", budget=Budget(1e6, 600.0))
    walk = [0, 1, 2]
    reported = []
    for step, place in enumerate(walk):
        with Fleet.open(town, vehicles=["a"], ledger=tmp_path / "a.ledger", replay=True) as fleet:
            reported.append(int(fleet.report([0], *at([place]), NINE + 30 * step).place[0]))
    assert reported == [report("start", place, 0) for place in walk]
    assert reported != [report("start", 0, 0), *(report("day", now, before) for before, now in pairwise(walk))]


def test_what_cannot_be_reported_is_refused_as_a_whole(spread: Bundle) -> None:
    with pytest.raises(ParameterError, match="must differ"):
        Fleet.open(spread, vehicles=["a", "a"], ledger=None, replay=True)
    fleet = Fleet.open(spread, vehicles=NAMES, ledger=None, replay=True)
    lat, lon = at(np.array([1, 2]))
    for vehicles, arguments, problem in (
        ([0, 50], (lat, lon, NINE), "50 vehicles"),
        ([0, -1], (lat, lon, NINE), "50 vehicles"),
        ([3, 3], (lat, lon, NINE), "once in a call"),
        ([0.0, 1.0], (lat, lon, NINE), "whole numbers"),
        ([0, 1], ([91.0, 1.0], lon, NINE), "latitudes"),
        ([0, 1], (lat, lon, NINE * 1000), "not milliseconds"),
    ):
        with pytest.raises(ParameterError, match=problem):
            fleet.report(vehicles, *arguments)
    assert fleet.report([], [], [], NINE).place.tolist() == []
    assert not fleet.report([0, 1], lat, lon, NINE).stored.any()


def test_no_location_is_refused(spread: Bundle) -> None:
    """That of no fix and exchanged coordinates are locations as any others."""
    fleet = Fleet.open(spread, vehicles=NAMES, ledger=None, budget=Budget(8.0, 600.0), replay=True)
    lat, lon = at(np.array([0]))
    for step, refused in enumerate((False, False, True)):
        reports = fleet.report([0, 1, 2], [0.0, float(lon[0]), 41.0], [0.0, float(lat[0]), -8.6], NINE + 30 * step)
        assert reports.refused.tolist() == [refused] * 3
    assert "without a fix" in str(fleet.warning_for(0.0, 0.0))
    assert "exchanged" in str(fleet.warning_for(float(lon[0]), float(lat[0])))
    assert fleet.warning_for(float(lat[0]), float(lon[0])) is None


def test_times_far_from_the_systems_clock_are_refused_and_lock_no_vehicle_out(spread: Bundle) -> None:
    now = time.time()
    for budget in (None, Budget(1e6, 600.0)):
        fleet = Fleet.open(spread, vehicles=NAMES, ledger=None, budget=budget)
        lat, lon = at(np.array([1, 2]))
        for wrong, problem in ((4_070_908_800.0, "future"), (now + 2 * 86_400, "future"), (now - 2 * 86_400, "past")):
            with pytest.raises(ParameterError, match=problem):
                fleet.report([0, 1], lat, lon, [now, wrong])
        assert not fleet.report([0, 1], lat, lon, now).refused.any()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("counted", [True, False])
def test_a_forked_process_is_refused(spread: Bundle, counted: bool) -> None:
    """Else parent and child would each spend the whole budget that they have in memory."""
    fleet = Fleet.open(spread, vehicles=NAMES, ledger=None, budget=Budget(8.0, 600.0) if counted else None, replay=True)
    lat, lon = at(np.array([9]))
    child = os.fork()
    if child == 0:
        try:
            fleet.report([0], lat, lon, NINE)
        except LedgerError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert not fleet.report([0], lat, lon, NINE).refused.any()


def test_draws_of_a_fleet_follow_the_weights(spread: Bundle) -> None:
    """A χ² test at one in a million."""
    bundled = certain("start", "east", epsilon=2.0)
    row = int(np.flatnonzero(bundled.histories[:, 0] == 9)[0])
    fleet = Fleet.open(spread, vehicles=[str(number) for number in range(20_000)], ledger=None, replay=True)
    drawn = fleet.report(np.arange(20_000), *at(np.full(20_000, 9)), NINE).place
    expected = bundled.mechanism.probabilities[row] * 20_000
    counts = np.bincount(np.searchsorted(bundled.output_places, drawn), minlength=len(expected))
    assert ((counts - expected) ** 2 / expected).sum() < 40.5


def test_vehicles_that_come_later_are_reported_as_those_before(town: Bundle) -> None:
    """The history of those before goes on; the new ones begin without any."""
    whole = Fleet.open(town, vehicles=NAMES, ledger=None, replay=True)
    grown = Fleet.open(town, vehicles=NAMES[:20], ledger=None, replay=True)
    rng = np.random.default_rng(1)
    for step in range(6):
        if step == 3:
            grown.enrol(NAMES[20:])
        some = ALL if step >= 3 else ALL[:20]
        places = rng.integers(0, 24, len(some))
        expected, got = (fleet.report(some, *at(places), NINE + 30 * step) for fleet in (whole, grown))
        assert got.place.tolist() == expected.place.tolist()
    with pytest.raises(ParameterError, match="must differ"):
        grown.enrol([NAMES[0]])
    with pytest.raises(ParameterError, match="must differ"):
        grown.enrol(["new", "new"])


def test_what_the_ledger_knows_of_a_vehicle_that_comes_later_counts(spread: Bundle, tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    Ledger.create(path, budget=Budget(100, 3600))
    with Fleet.open(spread, vehicles=NAMES[:2], ledger=path, replay=True) as fleet:
        first = fleet.report([0, 1], *at(np.full(2, 9)), NINE)
    with Fleet.open(spread, vehicles=(), ledger=path, replay=True) as fleet:
        assert fleet.accounts.keys() == set(NAMES[:2])
        assert [fleet.accounts[name][-1].place for name in NAMES[:2]] == first.place.tolist()
        fleet.enrol([NAMES[1], "new"])
        reports = fleet.report([0, 1], *at(np.full(2, 3)), NINE)
        assert reports.stored.tolist() == [True, False]
        assert reports.place[0] == first.place[1]
        older = fleet.report([0, 1], *at(np.full(2, 3)), NINE - 30)
        assert older.late.tolist() == older.refused.tolist() == [True, True]
        assert not reports.late.any()
