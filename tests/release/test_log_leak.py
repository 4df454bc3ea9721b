"""Canaries: no true and no protected location is in an error, a log, a traceback with local variables, or a file."""

from __future__ import annotations

import io
import logging
import os
import sqlite3
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoblanket.errors import LedgerError, ParameterError, RandomnessError
from geoblanket.mechanism import Bundle, load_bundle
from geoblanket.mechanism.bundle.storage import LatticeBundle
from geoblanket.release import Budget, Device, Fleet, Ledger
from geoblanket.release.device import answers
from geoblanket.release.fence import Fence, Fences
from tests.release.lattices import save_small

LAT, LON = 41.00012345, -8.59967891
"""Within the town, and not a place of it."""
TIME = 1_719_792_000.0
PARTS = ("00012345", "59967891", "0001234", "5996789", "410001234", "85996789", "410001235")


def leaks(text: str) -> list[str]:
    return [part for part in PARTS if part in text]


def everything_of(error: BaseException, *, but: str) -> str:
    """An error as careful and careless loggers print it: all causes, and the local variables of all frames of ours."""
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    frames = []
    chain: traceback.TracebackException | None = told
    while chain is not None:
        frames += [str(frame.locals) for frame in chain.stack if but not in frame.filename]
        chain = chain.__cause__ or chain.__context__
    return "\n".join([str(error), repr(error), repr(vars(error)), repr(error.args), *frames])


def no_randomness(_: int) -> bytes:
    raise OSError("no entropy")


def break_ledger(device: Device) -> None:
    device._ledger.close()


PATHS: list[tuple[str, Callable[[Device, pytest.MonkeyPatch], Any], tuple[Any, ...]]] = [
    ("latitude", lambda *_: None, (LAT + 100, LON, TIME)),
    ("text", lambda *_: None, (str(LAT), LON, TIME)),
    ("list", lambda *_: None, ([LAT], LON, TIME)),
    ("time", lambda *_: None, (LAT, LON, 0.0)),
    ("naive", lambda *_: None, (LAT, LON, "now")),
    ("future", lambda *_: None, (LAT, LON, 4.2e9)),
    ("older", lambda device, _: device.report(LAT, LON, TIME + 60), (LAT, LON, TIME)),
    ("budget", lambda device, _: [device.report(LAT, LON, TIME - 30 * k) for k in (3, 2, 1)], (LAT, LON, TIME)),
    ("randomness", lambda _, patch: patch.setattr(os, "urandom", no_randomness), (LAT, LON, TIME)),
    ("ledger", lambda device, _: break_ledger(device), (LAT, LON, TIME)),
    ("surprise", lambda device, _: setattr(device._reporter, "_rule", None), (LAT, LON, TIME)),
]


@pytest.mark.parametrize(("prepare", "arguments"), [path[1:] for path in PATHS], ids=[path[0] for path in PATHS])
def test_no_error_of_a_device_tells_where_it_is(
    spread_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    prepare: Callable[[Device, pytest.MonkeyPatch], Any],
    arguments: tuple[Any, ...],
) -> None:
    caplog.set_level(logging.DEBUG)
    Ledger.create(tmp_path / "a.ledger", budget=Budget(12.0, 600.0))
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        device = Device.open(spread_path, ledger=tmp_path / "a.ledger", replay=True)
        prepare(device, monkeypatch)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - of any kind
            device.report(*arguments)
        told = everything_of(caught.value, but=__file__) + repr(device)
        device.close()
    assert not leaks(told + out.getvalue() + err.getvalue() + caplog.text)
    for file in tmp_path.iterdir():
        assert not leaks(file.read_bytes().decode("latin-1"))


def test_the_canary_is_seen_where_it_leaks() -> None:
    def careless(lat: float) -> None:
        raise ValueError(f"no place near {lat}")

    with pytest.raises(ValueError, match="no place") as caught:
        careless(LAT)
    assert leaks(everything_of(caught.value, but="nothing"))
    caught.value.args = ("no place",)
    assert leaks(everything_of(caught.value, but="nothing"))


def test_a_ledger_holds_reports_and_nothing_of_the_true_way(spread: Bundle, tmp_path: Path) -> None:
    """Two devices with the same reports and other true places have ledgers of the same contents."""
    rows = []
    for place in (9, 15):
        path = tmp_path / f"{place}.ledger"
        Ledger.create(path, budget=Budget(1e6, 1e6))
        with Device.open(spread, ledger=path, replay=True) as device:
            for step in range(30):
                device.report(LAT + place * 1e-5, LON, TIME + 30 * step)
        ledger = Ledger.open(path)
        rows.append([one._replace(place=0, lat_e7=0, lon_e7=0) for one in ledger.account("").answers])
        ledger.close()
    assert rows[0] == rows[1]


def test_no_error_of_a_fleet_or_stream_tells_where_it_is(spread: Bundle) -> None:
    fleet = Fleet.open(spread, vehicles=["a", "b"], ledger=None, replay=True)
    for lat, lon, time in (([LAT, 91.0], [LON, LON], TIME), ([LAT] * 2, [LON] * 2, 0.0)):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - of any kind
            fleet.report(np.arange(2), lat, lon, time)
        assert not leaks(everything_of(caught.value, but=__file__) + repr(fleet))
    with Device.open(spread, ledger=None, budget=Budget(4.0, 60.0), replay=True) as device:
        lines = f'{{"lat": {LAT}, "lon": {LON}, "time": 1719792000, "x": 1}}\n{LAT} {LON}\n'.encode()
        assert not leaks(str(list(answers(device, io.BytesIO(lines)))))


def test_the_command_tells_nothing_either(spread_path: Path, tmp_path: Path) -> None:
    stdin = f'{{"lat": {LAT}, "lon": {LON}, "time": 1719792000}}\n' * 2
    stdin += f'{{"lat": {LAT}, "lon": {LON}, "time": 1719791000}}\n{LAT}\n{{"lat": {LAT}'
    for extra in (["--set", "budget=8"], ["--ledger", "absent"], []):
        command = [sys.executable, "-c", "from geoblanket.cli import main; main()", "perturb", str(spread_path)]
        done = subprocess.run(
            [*command, "--stream", *extra], cwd=tmp_path, input=stdin, capture_output=True, text=True, check=False
        )
        assert done.stdout + done.stderr
        assert not leaks(done.stdout + done.stderr)


LATTICE_LAT, LATTICE_LON = 41.10512345, -8.59367891
HOME_LAT, HOME_LON = 41.10987654, -8.59123457


def secrets_of(bundle: Bundle, *places: tuple[float, float]) -> list[bytes]:
    """Return how files could hold places: degrees and units of the frame, in text and in bytes.

    Short numbers are looked for in pairs only: alone they would be found by chance.
    """
    assert isinstance(bundle, LatticeBundle)
    result = []
    for place in places:
        e7 = [round(degrees * 1e7) for degrees in place]
        for degrees in place:
            digits = f"{abs(degrees):.8f}"[:-1]
            result += [digits.encode(), digits.replace(".", "").encode(), struct.pack("<d", degrees)]
        for pair in (e7, bundle.lattice.spec.plane.unit_of_e7(*e7)):
            result += [struct.pack(form, *pair) for form in ("<ii", ">ii", "<qq", ">qq")]
            result += [f"{pair[0]}{between}{pair[1]}".encode() for between in (",", ", ", ", y=")]
    return result


@pytest.fixture(scope="module")
def held_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small(tmp_path_factory.mktemp("held") / "held.bundle", hold_m=50.0, cells=21)


@pytest.mark.parametrize(
    "fault", ["budget", "older", "randomness", "ledger", "surprise", "write", "hold", "fence", "none"]
)
def test_neither_the_location_nor_the_protected_place_is_told(
    held_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """Beside the ledger too, where the point of the last draw lies."""
    caplog.set_level(logging.DEBUG)
    ledger = tmp_path / "a.ledger"
    Ledger.create(ledger, budget=Budget(4.0, 600.0))
    out, err = io.StringIO(), io.StringIO()
    where, home, told = (LATTICE_LAT, LATTICE_LON), (HOME_LAT, HOME_LON), ""
    away = (LATTICE_LAT + 0.002, LATTICE_LON)
    with redirect_stdout(out), redirect_stderr(err):
        opened = Ledger.open(ledger)
        told += repr(opened.add_fence(*home, radius_km=0.1, margin_m=0)) + repr(opened.fences)
        told += opened.fences.as_json()
        opened.close()
        device = Device.open(held_path, ledger=ledger, replay=True)
        told += repr(device.report(*where, TIME)) + str(device.report(*where, TIME).as_dict())
        told += repr(device.report(*where, TIME + 30)) + repr(device._ledger.drawn_at(""))
        prepare: dict[str, Callable[[], Any]] = {
            "budget": lambda: [device.report(*away, TIME + 60), device.report(*away, TIME + 90)],
            "older": lambda: device.report(*where, TIME + 300),
            "randomness": lambda: monkeypatch.setattr(os, "urandom", no_randomness),
            "ledger": lambda: break_ledger(device),
            "surprise": lambda: setattr(device._reporter, "lattice", None),
            "write": lambda: monkeypatch.setattr(Ledger, "_store", None),
            "hold": lambda: setattr(device._ledger, "_hold", 7),
            "fence": lambda: monkeypatch.setattr(Fence, "holds_e7", None),
            "none": lambda: None,
        }
        prepare[fault]()
        try:
            device.report(*where, TIME + 120)
            device.report(*home, TIME + 150)
            device.report(*where, TIME + 180)
        except Exception as error:
            told += everything_of(error, but=__file__)
        else:
            assert fault == "none"
        told += repr(device) + repr(device._ledger.account("")) + repr(device._reporter) + repr(device.fences)
        if fault != "ledger":
            assert (tmp_path / "a.ledger.hold").stat().st_size == 72
        for file in tmp_path.iterdir():  # while it is open: the log too
            told += file.read_bytes().decode("latin-1")
        if fault == "hold":
            device._ledger._hold = None  # type: ignore[attr-defined]
        device.close()
        if fault not in {"write", "randomness"}:
            with sqlite3.connect(ledger) as connection:
                connection.execute("UPDATE fences SET fences = replace(fences, 'true', 'false')")
            connection.close()
            with pytest.raises(LedgerError) as caught:
                Ledger.open(ledger)
            told += everything_of(caught.value, but=__file__)
    everything = (told + out.getvalue() + err.getvalue() + caplog.text).encode("latin-1", "replace")
    for file in tmp_path.iterdir():
        everything += file.read_bytes()
    assert not [part for part in secrets_of(load_bundle(held_path), where, home, away) if part in everything]


def test_the_canary_would_be_found_in_the_hold_file(
    held_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geoblanket.release.hold._xor", lambda secret, _: secret)
    Ledger.create(tmp_path / "a.ledger", budget=Budget(4.0, 600.0))
    with Device.open(held_path, ledger=tmp_path / "a.ledger", replay=True) as device:
        device.report(LATTICE_LAT, LATTICE_LON, TIME)
    content = (tmp_path / "a.ledger.hold").read_bytes()
    assert [part for part in secrets_of(load_bundle(held_path), (LATTICE_LAT, LATTICE_LON)) if part in content]


def test_no_error_about_a_fence_tells_the_place(tmp_path: Path) -> None:
    """A frame of the traceback must not know it either."""
    Ledger.create(tmp_path / "a.ledger", budget=Budget(4.0, 600.0))
    ledger = Ledger.open(tmp_path / "a.ledger")
    ledger.add_fence(LAT, LON, radius_km=1)
    fences = ledger.fences
    full = Fences().with_all(Fence.draw(-60 + 5 * number, 100, radius_km=1, name=str(number)) for number in range(20))
    attempts: list[Callable[[], object]] = [
        lambda: ledger.add_fence(LAT, LON, radius_km=1, name="second"),
        lambda: ledger.add_fence(LAT, LON, radius_km=0),
        lambda: ledger.add_fence(LAT, str(LON), radius_km=1),  # type: ignore[arg-type]
        lambda: ledger.add_fence(LAT + 1, LON, radius_km=1, name="home"),
        lambda: fences.with_place(LAT, LON, radius_km=1),
        lambda: full.with_place(LAT, LON, radius_km=1),
        lambda: Fence.draw(LAT, LON, radius_km=1, name=""),
        lambda: Fence.draw(LAT + 100, LON, radius_km=1),
        lambda: fences[0].holds(LAT + 100, LON),
    ]
    for attempt in attempts:
        with pytest.raises(ParameterError) as caught:
            attempt()
        assert not leaks(everything_of(caught.value, but=__file__))
    ledger.close()
    for file in tmp_path.iterdir():
        assert not leaks(file.read_bytes().decode("latin-1"))


def test_no_error_of_a_fleet_tells_where_it_was_drawn(held_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = load_bundle(held_path)
    where = (LATTICE_LAT, LATTICE_LON)
    fleet = Fleet.open(held_path, vehicles=["a", "b"], ledger=None, budget=Budget(4.0, 600.0), replay=True)
    told = repr(fleet) + repr(fleet.report([0, 1], [LATTICE_LAT] * 2, [LATTICE_LON] * 2, TIME).place)
    monkeypatch.setattr(os, "urandom", no_randomness)
    with pytest.raises(RandomnessError) as caught:
        fleet.report([0, 1], [LATTICE_LAT] * 2, [LATTICE_LON] * 2, TIME + 30)
    told += everything_of(caught.value, but=__file__)
    assert not [part for part in secrets_of(bundle, where) if part in told.encode()]
