"""A canary: a true location appears in no error, no log, no traceback with local variables, and no file."""

from __future__ import annotations

import io
import logging
import os
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoblanket.errors import LedgerError, RandomnessError
from geoblanket.mechanism import Bundle
from geoblanket.mechanism.lattice.anchor import AnchorSpec
from geoblanket.release import Budget, Device, Fleet, Ledger
from geoblanket.release.stream import answers

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
    ("surprise", lambda device, _: setattr(device._source, "_rule", None), (LAT, LON, TIME)),
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
    for extra in (["--budget", "8"], ["--ledger", "absent"], []):
        command = [sys.executable, "-c", "from geoblanket.cli import main; main()", "perturb", str(spread_path)]
        done = subprocess.run(
            [*command, "--stream", *extra], cwd=tmp_path, input=stdin, capture_output=True, text=True, check=False
        )
        assert done.stdout + done.stderr
        assert not leaks(done.stdout + done.stderr)


SHIFT = (90_317_642_851, 70_846_135_927)
"""An anchor that is found wherever it is told; on the frame it counts modulo its side."""
LATTICE_LAT, LATTICE_LON = 41.10512345, -8.59367891
SECRETS = ("9031764285", "7084613592", "10512345", "59367891", "1051234", "5936789", "411051234", "85936789")


@pytest.mark.parametrize("fault", ["budget", "older", "randomness", "ledger", "surprise", "write", "none"])
def test_neither_the_anchor_nor_the_location_is_told(
    lattice_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(AnchorSpec, "draw", lambda *_: SHIFT)
    Ledger.create(tmp_path / "a.ledger", budget=Budget(4.0, 600.0, 3.0))
    out, err = io.StringIO(), io.StringIO()
    where, told = (LATTICE_LAT, LATTICE_LON), ""
    with redirect_stdout(out), redirect_stderr(err):
        device = Device.open(lattice_path, ledger=tmp_path / "a.ledger", replay=True)
        told += repr(device.report(*where, TIME)) + str(device.report(*where, TIME).as_dict())
        prepare: dict[str, Callable[[], Any]] = {
            "budget": lambda: device.report(*where, TIME + 30),
            "older": lambda: device.report(*where, TIME + 60),
            "randomness": lambda: monkeypatch.setattr(os, "urandom", no_randomness),
            "ledger": lambda: break_ledger(device),
            "surprise": lambda: setattr(device._source, "_lattice", None),
            "write": lambda: monkeypatch.setattr(Ledger, "_store_account", None),
            "none": lambda: None,
        }
        prepare[fault]()
        try:
            device.report(*where, TIME + (30 if fault == "older" else 90))
        except Exception as error:
            told += everything_of(error, but=__file__)
        account = device._ledger.account("")
        told += repr(device) + repr(account) + repr(account.anchors) + repr(device.anchor) + repr(device._source)
        device.close()
        if fault != "write":
            opened = Ledger.open(tmp_path / "a.ledger")
            told += repr(opened) + str(opened.summary())
            opened.close()
            with sqlite3.connect(tmp_path / "a.ledger") as connection:
                connection.execute("UPDATE anchors SET cost_micro = 1")
            connection.close()
            with pytest.raises(LedgerError) as caught:
                Ledger.open(tmp_path / "a.ledger")
            told += everything_of(caught.value, but=__file__)
    everything = told + out.getvalue() + err.getvalue() + caplog.text
    assert not [part for part in SECRETS if part in everything]
    for file in tmp_path.iterdir():
        content = file.read_bytes().decode("latin-1")
        assert not [part for part in SECRETS if part in content]


def test_no_error_of_a_fleet_tells_an_anchor(lattice_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnchorSpec, "draw", lambda *_: SHIFT)
    fleet = Fleet.open(lattice_path, vehicles=["a", "b"], ledger=None, budget=Budget(4.0, 600.0, 3.0), replay=True)
    told = repr(fleet) + repr(fleet.report([0, 1], [LATTICE_LAT] * 2, [LATTICE_LON] * 2, TIME).place)
    monkeypatch.setattr(os, "urandom", no_randomness)
    with pytest.raises(RandomnessError) as caught:
        fleet.report([0, 1], [LATTICE_LAT] * 2, [LATTICE_LON] * 2, TIME + 30)
    told += everything_of(caught.value, but=__file__)
    assert not [part for part in SECRETS if part in told]
