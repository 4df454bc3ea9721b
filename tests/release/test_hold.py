from __future__ import annotations

import itertools
import math
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoblanket._arrays import Floats
from geoblanket.errors import MechanismError, ParameterError, RefusedError
from geoblanket.mechanism import Bundle, load_bundle
from geoblanket.mechanism.bundle.storage import LatticeBundle
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.release import Budget, Device, Fleet, Ledger
from geoblanket.release.fence import Fences
from geoblanket.release.hold import DrawnAt, HoldFile
from tests.mechanism.lattice.frames import small_spec
from tests.release.lattices import LAT, LON, START, save_small

PLENTY = Budget(1e8, 86_400.0)
METRE = 1 / 111_195
"""Degrees of latitude."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small(tmp_path_factory.mktemp("hold") / "held.bundle", hold_m=50.0, cells=41)


@pytest.fixture(scope="module")
def bundle(path: Path) -> Bundle:
    return load_bundle(path)


def memory(bundle: Bundle, budget: Budget = PLENTY, **options: Any) -> Device:
    return Device.open(bundle, ledger=None, budget=budget, replay=True, **options)


def test_a_stay_costs_one_report_and_repeats_it(bundle: Bundle) -> None:
    with memory(bundle) as device:
        reports = [device.report(LAT + step % 5 * 10 * METRE, LON, START + 30 * step) for step in range(200)]
        assert len({report.place for report in reports}) == 1
        assert len({report.left for report in reports}) == 1
        assert not any(report.stored for report in reports)
        # From the last draw, not from the last position: a creeping vehicle draws once in 50 m.
        away = [device.report(LAT + step * 20 * METRE, LON, START + 30 * (200 + step)) for step in range(1, 13)]
    spent = [(reports[-1].left_micro - report.left_micro) // 2_000_000 for report in away]
    assert spent == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4]


def test_a_return_is_a_new_draw(bundle: Bundle) -> None:
    with memory(bundle) as device:
        lefts = [
            device.report(LAT + (step // 3 % 2) * 500 * METRE, LON, START + 30 * step).left_micro for step in range(12)
        ]
    assert [before - after for before, after in itertools.pairwise(lefts)] == [
        0, 0, 2_000_000, 0, 0, 2_000_000, 0, 0, 2_000_000, 0, 0,
    ]  # fmt: skip


def test_a_spent_budget_ends_draws_and_not_a_stay(bundle: Bundle) -> None:
    with memory(bundle, Budget(2.0, 3600.0)) as device:
        first = device.report(LAT, LON, START)
        assert device.report(LAT, LON, START + 30).place == first.place
        with pytest.raises(RefusedError):
            device.report(LAT + 300 * METRE, LON, START + 60)
        assert device.report(LAT, LON, START + 90).place == first.place


def test_a_held_report_takes_the_same_steps_as_a_fresh_one(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same random words, writes and fields, whether the vehicle rests or not."""
    original, words = os.urandom, []

    def counting(size: int) -> bytes:
        words.append(size)
        return original(size)

    monkeypatch.setattr(os, "urandom", counting)
    seen = []
    for far in (0.0, 500.0):
        words.clear()
        with memory(bundle) as device:
            fields = [
                list(device.report(LAT + step * far * METRE, LON, START + 30 * step).as_dict()) for step in range(4)
            ]
            seen.append((fields, list(words), [answer.slot_ms for answer in device._ledger.account("").answers]))
    assert seen[0] == seen[1]


def law(lattice: Lattice, life: tuple[tuple[int, int], ...]) -> Floats:
    """The probabilities of all report sequences of a life, an axis for each slot, computed from the definition."""
    count = lattice.cells
    result: Floats = np.ones(())
    last: tuple[int, int] | None = None
    for point in life:
        if last is None or (point[0] - last[0]) ** 2 + (point[1] - last[1]) ** 2 > 5**2:
            result = np.multiply.outer(result, lattice.weights_at(*point) / 2**62)
            last = point
        else:
            longer = np.zeros((*result.shape, count))
            longer[..., np.arange(count), np.arange(count)] = result
            result = longer
    return result


def draws_of(life: tuple[tuple[int, int], ...]) -> tuple[bool, ...]:
    flags, last = [], None
    for x, y in life:
        flags.append(last is None or (x - last[0]) ** 2 + (y - last[1]) ** 2 > 5**2)
        last = (x, y) if flags[-1] else last
    return tuple(flags)


def test_the_promise_of_lives_that_draw_in_the_same_slots_by_enumeration() -> None:
    """All pairs of lives of three positions among four points of a small frame, against the sum over draws."""
    lattice = Lattice.verified(small_spec(5, epsilon_micro=2_000_000), 50_000)
    unit_km, side = lattice.spec.plane.unit_mm / 1e6, lattice.spec.plane.side
    points = [(20, 20), (23, 24), (26, 20), (33, 12)]
    lives = list(itertools.product(points, repeat=3))
    laws = {life: law(lattice, life) for life in lives}
    compared = unlike = 0
    for first, second in itertools.permutations(lives, 2):
        flags = draws_of(first)
        if flags != draws_of(second):
            unlike += not np.array_equal(laws[first] > 0, laws[second] > 0)
            continue
        apart = [math.hypot(*(min((a - b) % side, (b - a) % side) for a, b in zip(*pair, strict=True)))
                 for pair, drawn in zip(zip(first, second, strict=True), flags, strict=True) if drawn]  # fmt: skip
        bound = math.exp(2.0 * unit_km * sum(apart)) * (1 + 1e-9)
        assert (laws[first] <= bound * laws[second]).all()
        compared += 1
    assert compared > 500
    assert unlike > 500  # without the condition nothing is promised: these lives tell by what they can report


def test_the_device_has_the_law_of_the_definition(bundle: Bundle) -> None:
    """Which slots of random walks have a draw, by the device and by the definition."""
    rng = np.random.default_rng(3)
    assert isinstance(bundle, LatticeBundle)
    plane = bundle.lattice.spec.plane
    for _ in range(20):
        steps = rng.normal(0, 40, (40, 2)).cumsum(axis=0)
        where = [(LAT + north * METRE, LON + east * METRE) for east, north in steps]
        units = tuple(plane.unit_of_e7(round(lat * 1e7), round(lon * 1e7)) for lat, lon in where)
        with memory(bundle) as device:
            lefts = [device.report(*place, START + 30 * k).left_micro for k, place in enumerate(where)]
            fleet = Fleet.open(bundle, vehicles=["a"], ledger=None, budget=PLENTY, replay=True)
            for k, (lat, lon) in enumerate(where):
                fleet.report([0], [lat], [lon], START + 30 * k)
            assert fleet._ledger is not None
            by_fleet = [answer.cost_micro > 0 for answer in fleet._ledger.account("a").answers]
        drawn = tuple(after < before for before, after in itertools.pairwise([10**14, *lefts]))
        assert drawn == tuple(by_fleet) == draws_of(units)


def test_after_a_restart_a_stay_goes_on_unless_it_is_kept_in_memory_only(path: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "a.ledger"
    Ledger.create(ledger, budget=PLENTY)
    hold = tmp_path / "a.ledger.hold"
    now = time.time() // 30 * 30 - 3000

    def report(step: int, **options: Any) -> tuple[int, int]:
        with Device.open(path, ledger=ledger, **options) as device:
            told = device.report(LAT, LON, now + 30 * step)
            return told.place, told.left_micro

    first = report(0)
    assert report(1) == first
    assert hold.stat().st_mode & 0o777 == 0o600
    again = report(2, hold_in_memory=True)
    assert again[1] == first[1] - 2_000_000
    assert not hold.exists()
    assert report(3)[1] == again[1] - 2_000_000


def test_a_kill_at_any_moment_never_repeats_a_report_for_another_place(path: Path, tmp_path: Path) -> None:
    """A child reports from places 200 m apart and is killed: whoever comes next draws, or holds the right report."""
    ledger = tmp_path / "a.ledger"
    Ledger.create(ledger, budget=PLENTY)
    now = int(time.time()) // 30 * 30 - 40_020
    for attempt in range(12):
        start = now + 3000 * attempt
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:  # the parent holds no ledger
            device = Device.open(path, ledger=ledger)
            for step in range(100):
                device.report(LAT + step % 2 * 200 * METRE, LON, start + 30 * step)
                os.write(writer, b".")
            os._exit(0)
        for _ in range(attempt):
            os.read(reader, 1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
        opened = Ledger.open(ledger)
        last, drawn = opened.account("").last, opened.drawn_at("")
        opened.close()
        if last is None:
            continue
        number = (last.slot_ms // 1000 - start) // 30
        if drawn is not None and number >= 0:
            assert drawn.slot_ms == last.slot_ms
            with Device.open(path, ledger=ledger) as device:
                plane = device._reporter._plane  # type: ignore[union-attr]
                here = round((LAT + number % 2 * 200 * METRE) * 1e7), round(LON * 1e7)
                assert plane.unit_of_e7(*here) == (drawn.x, drawn.y)


def test_the_file_of_draws_tells_nothing_and_trusts_nothing(tmp_path: Path) -> None:
    file = tmp_path / "x.hold"
    drawn = DrawnAt(1_719_792_000_000, b"f" * 16, 123_456, 654_321)
    first = HoldFile(file, b"k" * 32, b"i" * 16)
    first.write("a", drawn)
    first.write("b", drawn._replace(x=7))
    first.write("a", drawn._replace(slot_ms=drawn.slot_ms + 1, x=9))
    first.close()
    content = file.read_bytes()
    assert len(content) == 2 * 72  # overwritten in place
    for number in (123_456, 654_321, 7, 9):
        assert number.to_bytes(8, "little") not in content
    again = HoldFile(file, b"k" * 32, b"i" * 16)
    assert again.read("b", drawn.slot_ms) == drawn._replace(x=7)
    assert again.read("a", drawn.slot_ms) is None  # another draw came after it
    assert again.read("a", drawn.slot_ms + 1) == drawn._replace(slot_ms=drawn.slot_ms + 1, x=9)
    assert HoldFile(file, b"K" * 32, b"i" * 16).read("b", drawn.slot_ms) is None
    assert HoldFile(file, b"k" * 32, b"I" * 16).read("b", drawn.slot_ms) is None
    for position in range(72, 144):
        changed = bytearray(content)
        changed[position] ^= 1
        file.write_bytes(changed)
        assert HoldFile(file, b"k" * 32, b"i" * 16).read("b", drawn.slot_ms) is None
    for length in (0, 1, 71, 100):
        file.write_bytes(content[:length])
        short = HoldFile(file, b"k" * 32, b"i" * 16)
        assert short.read("b", drawn.slot_ms) is None
        short.write("c", drawn)
        short.close()
        assert HoldFile(file, b"k" * 32, b"i" * 16).read("c", drawn.slot_ms) == drawn


def test_inside_a_fence_every_visit_is_one_draw_from_its_centre(bundle: Bundle) -> None:
    fences, home = Fences().with_place(LAT, LON, radius_km=0.5)
    rng = np.random.default_rng(5)
    with memory(bundle, fences=fences) as device:
        inside = [
            device.report(LAT + north * METRE, LON + east * METRE, START + 30 * step)
            for step, (north, east) in enumerate(rng.uniform(-200, 200, (100, 2)))
        ]
        assert len({report.place for report in inside}) == 1
        drawn = device._ledger.drawn_at("")
        plane = device._reporter._plane  # type: ignore[union-attr]
        assert drawn is not None
        assert (drawn.x, drawn.y) == plane.unit_of_e7(home.lat_e7, home.lon_e7)


@pytest.mark.parametrize("hold_mm", [-1, 1_000_001])
def test_holding_within_more_than_the_noise_is_refused(hold_mm: int) -> None:
    with pytest.raises(MechanismError, match="can be held within 0 to 1,000 m"):
        Lattice.verified(small_spec(11, epsilon_micro=2_000_000), hold_mm)


def test_hold_is_said_and_its_range_checked_where_a_lattice_is_made(tmp_path: Path) -> None:
    from geoblanket import make_lattice

    for hold_m in (-1.0, 300.0, math.nan):
        with pytest.raises(ParameterError, match=r"hold_m must be 0 to 250 m"):
            make_lattice((45.0, -30.0, 3), tmp_path / "a.bundle", epsilon=8, hold_m=hold_m)
    held = make_lattice((45.0, -30.0, 3), tmp_path / "a.bundle", epsilon=8)
    assert held.lattice.hold_m == 50.0  # larger than a cell of 25 m: fine
    assert held.disclosed == "when a report was made, and when the vehicle rests"
    assert "draw new reports at the same times" in str(held.promise)
    plain = make_lattice((45.0, -30.0, 3), tmp_path / "b.bundle", epsilon=8, hold_m=0)
    assert plain.disclosed == "when a report was made"
    assert "a parked car is found" in str(plain.promise)
