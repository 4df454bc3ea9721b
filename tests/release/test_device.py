from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoblanket.errors import (
    GeoblanketError,
    LedgerError,
    MismatchError,
    ParameterError,
    PolicyError,
    RandomnessError,
    RefusedError,
)
from geoblanket.mechanism import Bundle, load_bundle
from geoblanket.mechanism.bundle import storage as bundle_file
from geoblanket.mechanism.bundle.trust import Trust
from geoblanket.release import Budget, Device, Ledger, Report
from tests.mechanism.bundles import save_plain
from tests.release.worlds import CLOCK, PLACES, certain, report, save_certain

NINE = datetime(2024, 7, 1, 0, tzinfo=UTC).timestamp()
"""Nine o'clock in Tokyo, which is day; the night begins at 18, which is nine hours later."""
PLENTY = Budget(1e8, 3600.0)


def at(place: int) -> tuple[float, float]:
    """A location some metres from a place."""
    return float(PLACES.lat[place]) + 1e-4, float(PLACES.lon[place]) - 1e-4


def memory(bundle: Bundle, budget: Budget = PLENTY) -> Device:
    return Device.open(bundle, ledger=None, budget=budget, replay=True)


def test_each_report_is_that_of_its_history_and_regime(town: Bundle) -> None:
    device = memory(town)
    walk = [0, 1, 2, 8, 9, 4]
    reports = [device.report(*at(place), NINE + 30 * step) for step, place in enumerate(walk)]
    expected = [
        report("start", 0, 0),
        *(report("day", now, before) for before, now in pairwise(walk)),
    ]
    assert [report.place for report in reports] == expected
    for reported in reports:
        assert abs(reported.lat - PLACES.lat[reported.place]) < 1e-7 > abs(reported.lon - PLACES.lon[reported.place])
    assert [report.slot for report in reports] == [int(NINE) // 30 + step for step in range(6)]
    assert reports[1].time == datetime(2024, 7, 1, 0, 0, 30, tzinfo=UTC)
    assert not any(report.stored for report in reports)


def test_the_regime_changes_with_the_hour_of_the_bundles_time_zone(town: Bundle) -> None:
    device = memory(town)
    evening = NINE + 9 * 3600
    reports = [device.report(*at(place), evening - 60 + 30 * step).place for step, place in enumerate([0, 1, 2, 3])]
    assert reports == [report("start", 0, 0), report("day", 1, 0), report("night", 2, 1), report("night", 3, 2)]


def test_after_a_gap_a_restart_or_another_bundle_there_is_no_history(
    town: Bundle, spread: Bundle, tmp_path: Path
) -> None:
    Ledger.create(tmp_path / "a.ledger", budget=PLENTY)
    with Device.open(town, ledger=tmp_path / "a.ledger", replay=True) as device:
        device.report(*at(0), NINE)
        assert device.report(*at(1), NINE + 30).place == report("day", 1, 0)
        assert device.report(*at(2), NINE + 90).place == report("start", 2, 0)
        assert device.report(*at(2), NINE + 120).place == report("day", 2, 2)
        left = device.report(*at(2), NINE + 120).left_micro
    with Device.open(spread, ledger=tmp_path / "a.ledger", replay=True) as device:
        reported = device.report(*at(3), NINE + 150)
        assert reported.left_micro == left - device.costs.start
    with Device.open(town, ledger=tmp_path / "a.ledger", replay=True) as device:
        assert device.report(*at(4), NINE + 180).place == report("start", 4, 0)
        assert Ledger.__name__ in repr(device)


def test_a_location_outside_and_a_teleport_have_an_answer_by_the_nearest_place(town: Bundle) -> None:
    device = memory(town)
    assert device.report(*at(5), NINE).place == report("start", 4, 0)  # place 5 is in no zone
    assert device.report(48.0, -8.6, NINE + 30).place == report("day", 18, 5)  # 800 km to the north
    assert device.report(-40.0, 170.0, NINE + 60).place in range(24)
    assert device.report(*at(0), NINE + 90).place in range(24)


def test_the_same_slot_or_request_has_the_same_answer_for_nothing(spread: Bundle) -> None:
    device = memory(spread)
    first = device.report(*at(0), NINE, request="a")
    for place, asked, request in ((0, NINE, "a"), (7, NINE + 29.9, None), (3, NINE + 5000, "a"), (3, NINE - 900, "a")):
        again = device.report(*at(place), asked, request=request)
        assert again == Report(first.place, first.lat, first.lon, first.slot, first.slot_ms, first.left_micro, True)
    places = {device.report(*at(0), NINE + 30 * step, request=f"r{step}").place for step in range(1, 60)}
    assert len(places) > 3
    assert device.report(*at(0), NINE).place == first.place


def test_a_clock_that_is_set_back_gets_nothing(town: Bundle) -> None:
    device = memory(town)
    device.report(*at(0), NINE)
    device.report(*at(0), NINE + 7200)
    for earlier in (NINE + 30, NINE - 30, NINE + 7170):
        with pytest.raises(RefusedError, match="later report") as caught:
            device.report(*at(0), earlier)
        assert caught.value.reason == "time"


def test_times_far_from_the_systems_clock_are_refused(town: Bundle) -> None:
    now = time.time()
    with Device.open(town, ledger=None, budget=PLENTY) as device:
        with pytest.raises(ParameterError, match="future"):
            device.report(*at(0), now + 2 * 86_400)
        with pytest.raises(ParameterError, match=r"too far in the past.*for old data, open a replay"):
            device.report(*at(0), now - 2 * 86_400)
        assert not device.report(*at(0), now - 80_000).stored
        assert not device.report(*at(0), now + 80_000).stored
    with Device.open(town, ledger=None, budget=PLENTY, clock_tolerance_s=60.0) as device:
        for wrong in (-120, 120):
            with pytest.raises(ParameterError, match="clock right"):
                device.report(*at(0), now + wrong)
    with memory(town) as device:
        assert not device.report(*at(0), now - 3 * 86_400).stored
        assert not device.report(*at(0), now + 3 * 86_400).stored


def test_one_location_asked_for_again_and_again_is_refused_after_the_budget(spread: Bundle) -> None:
    device = memory(spread, Budget(100.0, 86_400.0))
    answered, refusals = [], Counter[str]()
    for number in range(10_000):
        try:
            answered.append(device.report(*at(9), NINE + number, request=f"new {number}").slot)
        except RefusedError as error:
            refusals[str(error)] += 1
    cost_first, cost = device.costs
    assert (cost_first, cost) == (4_000_000, 4_000_000)
    assert len(set(answered)) == 100 // 4
    # The first report leaves the window a day after its slot; until then the wait gets shorter by 30 s a slot.
    assert len(refusals) == -(-10_000 // 30) - 25
    assert next(iter(refusals)) == (
        "The privacy budget of this window of time is spent. Enough of it frees up in 85,650 s: report again at "
        f"{datetime.fromtimestamp(NINE + 86_400, UTC):%Y-%m-%d %H:%M:%S} UTC."
    )


def test_a_refusal_tells_from_when_on_reports_are_made_again(town: Bundle) -> None:
    device = memory(town, Budget(120.0, 600.0))
    for step in range(3):
        device.report(*at(step), NINE + 30 * step)
    with pytest.raises(RefusedError) as refused:
        device.report(*at(3), NINE + 90)
    assert refused.value.retry_after_s is not None
    then = NINE + 90 + refused.value.retry_after_s
    with pytest.raises(RefusedError) as again:
        device.report(*at(3), then - 30)
    assert again.value.retry_after_s == 30
    assert not device.report(*at(3), then).stored


def test_a_refused_location_is_not_part_of_any_history(town: Bundle) -> None:
    device = memory(town, Budget(120.0, 120.0))
    walk = [0, 1, 2, 3, 4]
    made = [device.report(*at(place), NINE + 30 * step).place for step, place in enumerate(walk[:3])]
    assert made[2] == report("day", 2, 1)
    with pytest.raises(RefusedError, match="budget"):
        device.report(*at(3), NINE + 90)
    assert device.report(*at(4), NINE + 120).place == report("start", 4, 0)


def control_flow(bundle: Bundle, places: list[int]) -> list[Any]:
    """What is seen from outside but for the draws: fields, errors and the number of random words."""
    words: list[int] = []
    original = os.urandom
    device = memory(bundle, Budget(20.0, 3600.0))
    seen: list[Any] = []

    def counting(size: int) -> bytes:
        words.append(size)
        return original(size)

    os.urandom = counting
    try:
        for step, place in enumerate(places):
            try:
                report = device.report(*at(place), NINE + 30 * step)
                seen.append((report.slot, report.left_micro, report.stored, sorted(report.as_dict())))
            except RefusedError as error:
                seen.append((error.reason, str(error)))
    finally:
        os.urandom = original
    return [*seen, words]


def test_costs_refusals_and_random_words_are_the_same_for_all_locations(spread: Bundle) -> None:
    seen = [control_flow(spread, places) for places in ([0] * 8, [1] * 8, [0, 7, 5, 23, 11, 4, 2, 9], [23] * 8)]
    assert [one[0] for one in seen[0][:-1]].count("budget") == 3
    assert all("Enough of it frees up in 3," in one[1] for one in seen[0][5:-1])
    assert all(one == seen[0] for one in seen)


NOWHERE = [(0.0, 0.0), (float(PLACES.lon[0]), float(PLACES.lat[0])), (-89.9, 179.9), (90.0, -180.0), (48.0, -8.6)]
"""No fix, exchanged coordinates, and other ends of the Earth."""


@pytest.mark.parametrize("location", NOWHERE)
def test_no_location_is_refused(spread: Bundle, location: tuple[float, float]) -> None:
    """A refusal that depends on the location tells something of it: all of them are answered, at the same cost."""
    with memory(spread, Budget(8.0, 600.0)) as device, memory(spread, Budget(8.0, 600.0)) as other:
        for step in range(3):
            outcomes: list[object] = []
            for reporter, where in ((device, location), (other, at(9))):
                try:
                    outcomes.append(reporter.report(*where, NINE + 30 * step).left_micro)
                except RefusedError as error:
                    outcomes.append(str(error))
            assert outcomes[0] == outcomes[1]


def test_a_device_warns_its_developer_of_what_seems_wrong(spread: Bundle) -> None:
    with memory(spread) as device:
        assert "without a fix" in str(device.warning_for(0.0, 0.0))
        assert "exchanged" in str(device.warning_for(*at(0)[::-1]))
        assert device.warning_for(*at(0)) is None
        assert device.warning_for(48.0, -8.6) is None
        with pytest.raises(ParameterError, match="latitude must be"):
            device.warning_for(91.0, 0.0)


@pytest.mark.parametrize("name", ["bundle_sha256", "costs", "fences", "interval_ms", "kind"])
def test_what_a_device_does_cannot_be_changed_by_assignment(spread: Bundle, name: str) -> None:
    with memory(spread) as device, pytest.raises(AttributeError):
        setattr(device, name, getattr(device, name))


def test_many_threads_spend_no_more_than_the_budget(spread_path: Path, tmp_path: Path) -> None:
    Ledger.create(tmp_path / "a.ledger", budget=Budget(80.0, 3600.0))
    answers: dict[int, set[int]] = {}
    refused: list[str] = []
    with Device.open(spread_path, ledger=tmp_path / "a.ledger", replay=True) as device:

        def ask(number: int) -> None:
            for step in range(30):
                try:
                    report = device.report(*at(number % 24), NINE + 30 * step)
                    answers.setdefault(report.slot, set()).add(report.place)
                except RefusedError as error:
                    refused.append(error.reason)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(len(places) == 1 for places in answers.values())
    ledger = Ledger.open(tmp_path / "a.ledger")
    assert ledger.spent_micro == 4_000_000 * len(answers) <= 80_000_000
    assert set(refused) <= {"budget", "time"}
    ledger.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_is_refused_and_harms_nothing(spread: Bundle, tmp_path: Path) -> None:
    Ledger.create(tmp_path / "a.ledger", budget=PLENTY)
    device = Device.open(spread, ledger=tmp_path / "a.ledger", replay=True)
    device.report(*at(0), NINE)
    child = os.fork()
    if child == 0:
        try:
            device.report(*at(0), NINE + 30)
        except LedgerError:
            device.close()
            del device
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    device.report(*at(0), NINE + 30)
    device.close()
    ledger = Ledger.open(tmp_path / "a.ledger")
    assert ledger.account("").reports == 2
    ledger.close()


FORKED = """
import os, sys
from geoblanket.release import Device, Ledger
device = Device.open(sys.argv[1], ledger=sys.argv[2], replay=True)
device.report(41.0, -8.6, 1719792000)
child = os.fork()
if child == 0:
    sys.exit(3)  # an ordinary end, with everything that Python tidies up
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
for step in range(1, 50):
    device.report(41.0, -8.6, 1719792000 + 30 * step)
os._exit(0)  # without closing
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_that_ends_leaves_the_ledger_to_its_parent(spread_path: Path, tmp_path: Path) -> None:
    Ledger.create(tmp_path / "a.ledger", budget=PLENTY)
    subprocess.run([sys.executable, "-c", FORKED, spread_path, tmp_path / "a.ledger"], check=True)
    ledger = Ledger.open(tmp_path / "a.ledger")
    assert ledger.account("").reports == 50
    ledger.close()


def draws(bundle: Bundle) -> tuple[int, ...]:
    device = memory(bundle)
    return tuple(device.report(*at(9), NINE + 30 * step).place for step in range(40))


def test_seeds_and_forks_have_no_effect_on_reports(spread: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for _ in range(3):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002 - the global seed is what is tested
        seen.add(draws(spread))
    monkeypatch.setattr(random, "getrandbits", lambda _: 0)
    seen.add(draws(spread))
    assert len(seen) == 4


def test_without_randomness_nothing_is_released_or_spent(
    spread: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Ledger.create(tmp_path / "a.ledger", budget=PLENTY)
    with Device.open(spread, ledger=tmp_path / "a.ledger", replay=True) as device:
        with monkeypatch.context() as patch:
            patch.setattr(os, "urandom", lambda _: b"short")
            with pytest.raises(RandomnessError):
                device.report(*at(0), NINE)
        assert not device.report(*at(0), NINE).stored
    ledger = Ledger.open(tmp_path / "a.ledger")
    assert ledger.account("").reports == 1
    ledger.close()


LIGHT = """
import sys
from geoblanket.release import Device
device = Device.open(sys.argv[1], ledger=sys.argv[2], replay=True)
device.report(41.0, -8.6, 1719792000.0)
device.close()
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_a_device_needs_neither_scipy_nor_polars_nor_learning(spread_path: Path, tmp_path: Path) -> None:
    """The first time, when the bundle is verified, and later, when the ledger remembers."""
    Ledger.create(tmp_path / "a.ledger", budget=PLENTY)
    for _ in range(2):
        command = [sys.executable, "-c", LIGHT, str(spread_path), str(tmp_path / "a.ledger")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        heavy = {"scipy", "sklearn", "polars", "joblib", "matplotlib", "pandas", "typer", "multiprocessing"}
        assert heavy.isdisjoint(done.stdout.split())
        assert "numpy" in done.stdout.split()


def test_a_bundle_is_verified_again_unless_these_very_bytes_were(
    town_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[str] = []
    original = bundle_file._verified

    def counting(path: Path, header: Any, *arguments: Any, **options: Any) -> Any:
        verified.append(header.zone)
        return original(path, header, *arguments, **options)

    monkeypatch.setattr(bundle_file, "_verified", counting)
    ledger, bundle = tmp_path / "a.ledger", tmp_path / "a.bundle"
    Ledger.create(ledger, budget=PLENTY)
    bundle.write_bytes(town_path.read_bytes())
    for expected in (6, 0, 0):
        verified.clear()
        Device.open(bundle, ledger=ledger).close()
        assert len(verified) == expected
    save_certain(bundle, epsilon=19.0)
    Device.open(bundle, ledger=ledger).close()
    assert len(verified) == 6
    with monkeypatch.context() as patch:
        patch.setattr("geoblanket.release.ledger.VERIFIER", "another version")
        verified.clear()
        Device.open(bundle, ledger=ledger).close()
        assert len(verified) == 6


def test_a_bundle_that_breaks_its_promise_is_never_remembered(town_path: Path, tmp_path: Path) -> None:
    bundle, ledger = tmp_path / "a.bundle", tmp_path / "a.ledger"
    content = bytearray(town_path.read_bytes())
    content[-100] ^= 1
    bundle.write_bytes(content)
    Ledger.create(ledger, budget=PLENTY)
    for _ in range(2):
        with pytest.raises(GeoblanketError):
            Device.open(bundle, ledger=ledger)
    opened = Ledger.open(ledger)
    assert opened.summary()["verified_bundles"] == 0
    opened.close()


def test_what_does_not_fit_is_refused(town_path: Path, town: Bundle, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="Give a ledger, or a budget"):
        Device.open(town, ledger=None)
    with pytest.raises(ParameterError, match=r"One report costs up to 40 per km, and the whole budget is 39\.99"):
        Device.open(town, ledger=None, budget=Budget(39.99, 60.0), replay=True)
    with pytest.raises(ParameterError, match="shorter than the interval"):
        Device.open(town, ledger=None, budget=Budget(1e6, 29.0), replay=True)
    with pytest.raises(ParameterError, match="clock_tolerance_s"):
        Device.open(town, ledger=None, budget=PLENTY, clock_tolerance_s=float("nan"))
    with pytest.raises(ParameterError, match="For data of any time, open a replay"):
        Device.open(town, ledger=None, budget=PLENTY, clock_tolerance_s=float("inf"))
    with pytest.raises(MismatchError, match="no clock"):
        Device.open(load_bundle(save_certain(tmp_path / "a.bundle", clock=None)), ledger=None, budget=PLENTY)
    with pytest.raises(PolicyError, match="has no places"):
        Device.open(save_plain(tmp_path / "b.bundle"), ledger=None, budget=PLENTY)
    with pytest.raises(MismatchError, match="another domain"):
        Device.open(town_path, ledger=None, budget=PLENTY, trust=Trust(domain="0" * 64))
    with pytest.raises(ParameterError, match="`trust` is for files"):
        Device.open(town, ledger=None, budget=PLENTY, trust=Trust(minimum_version=2))
    with pytest.raises(GeoblanketError, match="older than the 2"):
        Device.open(town_path, ledger=None, budget=PLENTY, trust=Trust(minimum_version=2))
    Ledger.create(tmp_path / "a.ledger", budget=Budget(5000.0, 60.0))
    with pytest.raises(MismatchError, match="another budget"):
        Device.open(town, ledger=tmp_path / "a.ledger", budget=Budget(5001.0, 60.0))
    Device.open(town, ledger=tmp_path / "a.ledger", budget=Budget(5000.0, 60.0)).close()


def test_a_machine_without_the_time_zone_says_so(tmp_path: Path) -> None:
    bundle = load_bundle(save_certain(tmp_path / "a.bundle", clock=replace(CLOCK, time_zone="Mars/Olympus")))
    with pytest.raises(MismatchError, match="time zone 'Mars/Olympus'"):
        Device.open(bundle, ledger=None, budget=PLENTY, replay=True)


def test_checks_hold_without_assertions(spread_path: Path) -> None:
    """`python -O` strips `assert`."""
    script = """
import sys
from geoblanket.errors import ParameterError, RefusedError
from geoblanket.release import Budget, Device
device = Device.open(sys.argv[1], ledger=None, budget=Budget(4.0, 60.0), replay=True)
refused = 0
for lat, time in ((91.0, 1719792000), (True, 1719792000), (41.0, 0), (41.0, 1719792000), (41.0, 1719792030)):
    try:
        device.report(lat, -8.6, time)
    except (ParameterError, RefusedError):
        refused += 1
print(refused)
"""
    done = subprocess.run([sys.executable, "-O", "-c", script, spread_path], capture_output=True, text=True, check=True)
    assert done.stdout == "4\n"


def test_draws_of_a_device_follow_the_weights(spread: Bundle) -> None:
    """A χ² test of the reports of many starts, at one in a million."""
    bundled = certain("start", "east", epsilon=2.0)
    row = int(np.flatnonzero(bundled.histories[:, 0] == 9)[0])
    expected = bundled.mechanism.probabilities[row] * 4_000
    device = memory(spread, Budget(1e8, 600.0))
    drawn = Counter(device.report(*at(9), NINE + 60 * step).place for step in range(4_000))
    counts = np.array([drawn[place] for place in bundled.output_places.tolist()])
    assert counts.sum() == 4_000
    assert ((counts - expected) ** 2 / expected).sum() < 40.5  # 7 degrees of freedom
