"""Fences and hold in devices and fleets: the fenced position is all that reports and ledgers depend on."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoblanket._arrays import Floats
from geoblanket.errors import LedgerError, ParameterError, RefusedError
from geoblanket.mechanism import Bundle, load_bundle
from geoblanket.release import Budget, Device, Fleet, Ledger
from geoblanket.release.fence import NO_FENCES, Fence, Fences
from geoblanket.release.hold import HoldFile
from tests.release.lattices import LAT, LON, START, save_small
from tests.release.worlds import PLACES, STEP_DEG

PLENTY = Budget(1e8, 86_400.0)
METRE = 1 / 111_195


@pytest.fixture(scope="module")
def held_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small(tmp_path_factory.mktemp("held") / "held.bundle", hold_m=50.0, cells=41)


@pytest.fixture(scope="module")
def held(held_path: Path) -> Bundle:
    return load_bundle(held_path)


def walk(rng: np.random.Generator, steps: int) -> Floats:
    """Positions that rest, creep and jump, latitude and longitude."""
    size = rng.choice([0.0, 8.0, 200.0], (steps, 1), p=[0.4, 0.3, 0.3])
    return np.array([LAT, LON]) + np.cumsum(rng.normal(0, 1, (steps, 2)) * size, axis=0) * METRE


@pytest.mark.parametrize("durable", [False, True])
def test_a_fleet_and_devices_agree_on_fences_and_hold(held: Bundle, tmp_path: Path, durable: bool) -> None:
    """Draws and costs of random walks of vehicles with 0 to 3 fences, with restarts, of the fleet and of devices."""
    rng = np.random.default_rng(8)
    names, steps = ["a", "b", "c", "d"], 120
    fences = {}
    for count, name in enumerate(names):
        fences[name] = Fences()
        for number in range(count):
            fences[name], _ = fences[name].with_place(
                LAT + 0.012 * number, LON, radius_km=0.2, margin_m=50, name=str(number)
            )
    ways = np.stack([walk(rng, steps) for _ in names])
    ledger, options = None, {"fences": fences}
    if durable:
        ledger, options = tmp_path / "a.ledger", {}
        Ledger.create(ledger, budget=PLENTY)
        opened = Ledger.open(ledger)
        for name, some in fences.items():
            opened.set_fences(some, name)
        opened.close()

    def open_fleet() -> Fleet:
        return Fleet.open(held, vehicles=names, ledger=ledger, budget=PLENTY, replay=True, **options)  # type: ignore[arg-type]

    fleet = open_fleet()
    places = np.empty((len(names), steps), np.int64)
    for step in range(steps):
        places[:, step] = fleet.report(np.arange(4), ways[:, step, 0], ways[:, step, 1], START + 30 * step).place
        if durable and step % 17 == 0:
            fleet.close()
            fleet = open_fleet()
    assert fleet._ledger is not None
    drawn_in_all = 0
    for number, name in enumerate(names):
        with Device.open(held, ledger=None, budget=PLENTY, replay=True, fences=fences[name]) as device:
            for step in range(steps):
                device.report(float(ways[number, step, 0]), float(ways[number, step, 1]), START + 30 * step)
            expected = [answer.cost_micro for answer in device._ledger.account("").answers]
            assert fleet._ledger.drawn_at(name) == device._ledger.drawn_at("")
        costs = [answer.cost_micro for answer in fleet._ledger.account(name).answers]
        assert costs == expected
        kept = np.flatnonzero(np.array(costs[1:]) == 0)
        assert (places[number, kept + 1] == places[number, kept]).all()
        drawn_in_all += len(costs) - len(kept)
    assert 100 < drawn_in_all < 400
    fleet.close()


def lives(fences: Fences, outside: tuple[float, float], steps: int = 60) -> list[list[tuple[float, float]]]:
    """Two lives that differ inside a fence, as far as it reaches, and are the same outside."""
    rng = np.random.default_rng(6)
    center = fences[0].lat_e7 / 1e7, fences[0].lon_e7 / 1e7
    result = []
    for _ in range(2):
        angle, share = rng.uniform(0, 2 * np.pi, steps), rng.uniform(0, 0.98, steps)
        reach = fences[0].radius_m * METRE * share
        inside = np.column_stack(
            [center[0] + reach * np.sin(angle), center[1] + reach * np.cos(angle) / np.cos(np.radians(center[0]))]
        )
        where = np.where((np.arange(steps) // 7 % 2)[:, None] == 1, np.array(outside), inside)
        result.append([(float(lat), float(lon)) for lat, lon in where])
    assert result[0] != result[1]
    return result


def of_device(bundle: Bundle, ledger: Path, fences: Fences, life: Sequence[tuple[float, float]]) -> list[Any]:
    with Device.open(bundle, ledger=ledger, replay=True, fences=fences) as device:
        return [device.report(*place, START + 30 * step).as_dict() for step, place in enumerate(life)]


def of_fleet(bundle: Bundle, ledger: Path, fences: Fences, life: Sequence[tuple[float, float]]) -> list[Any]:
    fleet = Fleet.open(bundle, vehicles=["a"], ledger=ledger, replay=True, fences={"a": fences})
    with fleet:
        reports = [fleet.report([0], [lat], [lon], START + 30 * step) for step, (lat, lon) in enumerate(life)]
    return [(report.place.tolist(), report.refused.tolist()) for report in reports]


@pytest.mark.parametrize("reports_of", [of_device, of_fleet])
@pytest.mark.parametrize("kind", ["zones", "lattice"])
def test_lives_that_agree_after_the_fence_have_the_same_reports_for_the_same_words(
    kind: str, reports_of: Callable[..., list[Any]], spread: Bundle, held: Bundle, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """History included: with zones a report depends on the places before it. So the laws of both lives are equal."""
    if kind == "zones":
        bundle, home, radius_km = spread, (float(PLACES.lat[9]), float(PLACES.lon[9])), 2.5
        outside = home[0] - 4 * STEP_DEG, home[1]
    else:
        bundle, home, radius_km, outside = held, (LAT, LON), 0.5, (LAT + 0.02, LON)
    fences, _ = Fences().with_place(*home, radius_km=radius_km)
    assert not fences[0].holds(*outside)

    def told(life: Sequence[tuple[float, float]], applied: Fences, name: str) -> tuple[list[Any], object]:
        ledger = tmp_path / name
        Ledger.create(ledger, budget=PLENTY)
        monkeypatch.setattr(os, "urandom", np.random.default_rng(3).bytes)
        reports = reports_of(bundle, ledger, applied, life)
        opened = Ledger.open(ledger)
        rows = [(vehicle, opened.account(vehicle).answers, opened.drawn_at(vehicle)) for vehicle in opened.vehicles]
        opened.close()
        return reports, rows

    first, second = lives(fences, outside)
    assert told(first, fences, "1") == told(second, fences, "2")
    assert told(first, NO_FENCES, "3")[0] != told(second, NO_FENCES, "4")[0]  # without it they differ


def test_held_and_fresh_reports_are_written_alike(
    held_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, int]] = []
    original = os.pwrite

    def counted(descriptor: int, content: bytes, offset: int) -> int:
        calls.append((Path(f"/proc/self/fd/{descriptor}").readlink().suffix, len(content)))
        return original(descriptor, content, offset)

    monkeypatch.setattr(os, "pwrite", counted)
    Ledger.create(tmp_path / "a.ledger", budget=PLENTY)
    with Device.open(held_path, ledger=tmp_path / "a.ledger", replay=True) as device:
        seen = []
        for step, north_m in enumerate([0, 0, 500, 500]):
            calls.clear()
            device.report(LAT + north_m * METRE, LON, START + 30 * step)
            seen.append(list(calls))
    assert seen == [[(".count", 64), (".hold", 72)]] * 4


@pytest.mark.parametrize("then", ["zones", "no hold"])
def test_a_draw_that_is_never_held_wipes_the_point_of_the_last_one(
    held: Bundle, spread: Bundle, lattice_bundle: Bundle, tmp_path: Path, then: str
) -> None:
    ledger, hold = tmp_path / "a.ledger", tmp_path / "a.ledger.hold"
    Ledger.create(ledger, budget=PLENTY)
    for step, bundle in enumerate((held, spread if then == "zones" else lattice_bundle)):
        with Device.open(bundle, ledger=ledger, replay=True) as device:
            device.report(LAT, LON, START + 30 * step)
            assert (device._ledger.drawn_at("") is None) == (step == 1)
        assert (hold.read_bytes() == bytes(72)) == (step == 1)
    with Device.open(held, ledger=ledger, replay=True) as device:
        left = [device.report(LAT, LON, START + 30 * step).left_micro for step in (2, 3)]
    assert left[0] == left[1]


def test_a_hold_file_of_another_time_ledger_key_or_vehicle_is_worth_nothing(held: Bundle, tmp_path: Path) -> None:
    """Each costs a draw, and never repeats a report from another place."""
    ledger, hold = tmp_path / "a.ledger", tmp_path / "a.ledger.hold"
    for path in (ledger, tmp_path / "b.ledger"):
        Ledger.create(path, budget=PLENTY)
        with Device.open(held, ledger=path, replay=True) as device:
            device.report(LAT, LON, START)
    Ledger.create(tmp_path / "c.ledger", budget=PLENTY, device_key=b"sixteen bytes!!!")
    with Device.open(held, ledger=tmp_path / "c.ledger", replay=True, device_key=b"sixteen bytes!!!") as device:
        device.report(LAT, LON, START)
    earlier = hold.read_bytes()
    for step, content in enumerate(
        [earlier, b"", (tmp_path / "b.ledger.hold").read_bytes(), (tmp_path / "c.ledger.hold").read_bytes()], 1
    ):
        with Device.open(held, ledger=ledger, replay=True) as device:
            device.report(LAT + 0.01 * step, LON, START + 60 * step)
        hold.write_bytes(content)
        with Device.open(held, ledger=ledger, replay=True) as device:
            assert device._ledger.drawn_at("") is None
            device.report(LAT + 0.01 * step, LON, START + 60 * step + 30)
            assert device._ledger.account("").answers[-1].cost_micro == 2_000_000
    opened = Ledger.open(ledger)
    slot_ms = opened.account("").drawn_slot_ms
    assert opened.drawn_at("") is not None
    file = HoldFile(hold, opened._key, opened._identity)
    assert file.read("", slot_ms) == opened.drawn_at("")
    assert file.read("b", slot_ms) is None
    opened.close()


@pytest.mark.parametrize("hindrance", ["folder", "fifo", "sparse"])
def test_a_hold_file_that_is_none_is_as_good_as_missing(held: Bundle, tmp_path: Path, hindrance: str) -> None:
    ledger, hold = tmp_path / "a.ledger", tmp_path / "a.ledger.hold"
    Ledger.create(ledger, budget=PLENTY)
    if hindrance == "folder":
        hold.mkdir()
    elif hindrance == "fifo":
        os.mkfifo(hold)
    else:
        with hold.open("wb") as file:
            file.truncate(1 << 40)
    with Device.open(held, ledger=ledger, replay=True) as device:
        assert device._ledger.drawn_at("") is None
        device.report(LAT, LON, START)
        assert device.report(LAT, LON, START + 30).left == PLENTY.epsilon - 2
    if hindrance == "folder":
        with pytest.raises(LedgerError, match=r"hold: cannot be removed .*Remove it"):
            Device.open(held, ledger=ledger, replay=True, hold_in_memory=True)
        hold.rmdir()
    Device.open(held, ledger=ledger, replay=True, hold_in_memory=True).close()
    assert not hold.exists()


def test_nothing_is_beside_a_ledger_whose_draws_are_kept_in_memory(held: Bundle, tmp_path: Path) -> None:
    ledger = tmp_path / "a.ledger"
    Ledger.create(ledger, budget=PLENTY)
    with Device.open(held, ledger=ledger, replay=True, hold_in_memory=True) as device:
        left = [device.report(LAT, LON, START + 30 * step).left_micro for step in range(5)]
    assert len(set(left)) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ledger", "a.ledger.count"]
    assert device._ledger._drawn == {}  # forgotten when it is closed


def test_a_copy_of_a_ledger_has_neither_fences_nor_draws_for_another_device(
    held: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "a.ledger"
    Ledger.create(ledger, budget=PLENTY)
    opened = Ledger.open(ledger)
    opened.add_fence(LAT, LON, radius_km=1)
    opened.close()
    with Device.open(held, ledger=ledger, replay=True) as device:
        device.report(LAT, LON, START)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for file in tmp_path.glob("a.ledger*"):
        shutil.copy(file, elsewhere / file.name)
    monkeypatch.setenv("GEOBLANKET_DEVICE_KEY_FILE", str(elsewhere / "device.key"))
    Ledger.create(elsewhere / "b.ledger", budget=PLENTY)  # which makes the key of that device
    with pytest.raises(LedgerError, match="another device key"):
        Ledger.open(elsewhere / "a.ledger")


def test_a_clock_that_is_set_back_neither_holds_nor_draws(held: Bundle, tmp_path: Path) -> None:
    ledger = tmp_path / "a.ledger"
    Ledger.create(ledger, budget=PLENTY)
    now = time.time() // 30 * 30
    with Device.open(held, ledger=ledger) as device:
        device.report(LAT, LON, now)
        left = device.report(LAT, LON, now + 30).left_micro
        before = device._ledger.drawn_at("")
        for there in (LAT, LAT + 0.01):
            with pytest.raises(RefusedError, match="later report"):
                device.report(there, LON, now - 60)
        assert device._ledger.drawn_at("") == before
    with Device.open(held, ledger=ledger) as device:
        with pytest.raises(RefusedError, match="later report"):
            device.report(LAT, LON, now - 30)
        assert device.report(LAT, LON, now + 60).left_micro == left


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_device_reports_nothing_and_touches_no_file(held: Bundle, tmp_path: Path) -> None:
    ledger, hold = tmp_path / "a.ledger", tmp_path / "a.ledger.hold"
    Ledger.create(ledger, budget=PLENTY)
    with Device.open(held, ledger=ledger, replay=True) as device:
        device.report(LAT, LON, START)
        before = hold.read_bytes()
        if (child := os.fork()) == 0:
            try:
                device.report(LAT + 0.01, LON, START + 30)
            except LedgerError:
                device.close()
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert hold.read_bytes() == before
        assert device.report(LAT, LON, START + 60).left == PLENTY.epsilon - 2


@pytest.mark.parametrize("durable", [False, True])
def test_fences_that_are_refused_leave_those_of_a_fleet_in_use(held: Bundle, tmp_path: Path, durable: bool) -> None:
    ledger = tmp_path / "a.ledger" if durable else None
    if ledger is not None:
        Ledger.create(ledger, budget=PLENTY)
    home = Fences([Fence.draw(LAT, LON, radius_km=0.3)])
    second = Fences([Fence.draw(LAT, LON, radius_km=0.3, name="second")])
    work = Fence.draw(LAT + 0.1, LON, radius_km=0.3, name="work")
    options: dict[str, Any] = {"ledger": ledger, "budget": PLENTY, "replay": True}
    with Fleet.open(held, vehicles=["a", "b"], fences={"a": home}, **options) as fleet:
        with pytest.raises(ParameterError, match="may be for one place"):
            fleet.set_fences("a", second)
        assert fleet.fences_of("a") == home
        where = round(LAT * 1e7), round(LON * 1e7)
        center = home[0].lat_e7, home[0].lon_e7
        assert [int(part[0]) for part in fleet._fenced_e7(*(np.array([one]) for one in (0, *where)))] == [*center]
        fleet.set_fences("b", second)
        fleet.set_fences("b", second.with_all([work]))
        with pytest.raises(ParameterError, match="never forgotten"):
            fleet.set_fences("b", second)
        assert fleet.fences_of("b").names == ("second", "work")
        # A vehicle that cannot be enrolled changes nothing for the others.
        fleet._given_fences["c"] = Fences([home[0], *second])
        if fleet._ledger is not None:
            fleet._ledger.set_fences(Fences([Fence.draw(LAT, LON, radius_km=0.3, name="third")]), "c")
            with pytest.raises(ParameterError, match="may be for one place"):
                fleet.enrol(["c"])
            assert fleet.vehicles == ("a", "b")
        fleet.enrol(["d"])
        assert not fleet.report([0, 1, 2], [LAT] * 3, [LON] * 3, START).refused.any()
