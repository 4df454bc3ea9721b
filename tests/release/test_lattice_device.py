from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.errors import InputError, MismatchError, PolicyError, RefusedError
from geoblanket.mechanism import Bundle, load_bundle
from geoblanket.mechanism.bundle.policy import Policy
from geoblanket.mechanism.bundle.storage import LatticeBundle, save_lattice
from geoblanket.release import Budget, Device, Fleet, Ledger
from geoblanket.release.bulk import perturb_points
from geoblanket.serve.gateway.config import read_config
from geoblanket.serve.gateway.running import Gateway
from geoblanket.serve.service.bundles import BundleStore
from tests.mechanism.lattice.frames import small_spec
from tests.release.lattices import LAT, LON, START, deviation, save_small
from tests.release.test_lattice_bulk import save_traces
from tests.serve.gateway.living import HTTP, upstream, write_config

PLENTY = Budget(1e8, 3600.0)


def memory(bundle: Bundle, budget: Budget = PLENTY) -> Device:
    return Device.open(bundle, ledger=None, budget=budget, replay=True)


def test_a_report_has_a_cell_its_centre_and_the_slot(lattice_bundle: Bundle) -> None:
    assert isinstance(lattice_bundle, LatticeBundle)
    with memory(lattice_bundle) as device:
        for step in range(50):
            report = device.report(LAT, LON, START + 30 * step + 7.5)
            assert report.cell == report.place
            lat, lon = lattice_bundle.lattice.center(report.place)
            assert abs(report.lat - lat) < 1e-7 > abs(report.lon - lon)
            assert report.slot_ms == 1000 * (START + 30 * step)
            assert list(report.as_dict()) == ["cell", "lat", "lon", "slot", "time", "left", "stored"]
        again = device.report(0.0, 0.0, START)
        assert (again.stored, again.slot) == (True, START // 30)


@pytest.mark.usefixtures("fixed_randomness")
def test_reports_follow_the_weights(lattice_bundle: Bundle) -> None:
    assert isinstance(lattice_bundle, LatticeBundle)
    with memory(lattice_bundle) as device:
        cells = [device.report(LAT, LON, START + 30 * step).place for step in range(4_000)]
    assert abs(deviation(cells, lattice_bundle.lattice.weights(LAT, LON) / 2**62)) < 4
    assert deviation(cells, lattice_bundle.lattice.weights(LAT + 0.003, LON) / 2**62) > 15


NOWHERE = [(0.0, 0.0), (LON, LAT), (-89.9, 179.9), (90.0, -180.0), (48.0, -8.6), (LAT, 180.0)]


def control_flow(bundle: Bundle, locations: list[tuple[float, float]], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is seen from outside but for the draws: fields, errors, and how many random words are drawn."""
    words: list[int] = []
    original = os.urandom
    device = memory(bundle, Budget(8.0, 3600.0))
    seen: list[Any] = []

    def counting(size: int) -> bytes:
        words.append(size)
        return original(size)

    with monkeypatch.context() as patch:
        patch.setattr(os, "urandom", counting)
        for step, location in enumerate(locations):
            try:
                report = device.report(*location, START + 600 * step)
                seen.append((report.slot, report.left_micro, report.stored, sorted(report.as_dict())))
            except RefusedError as error:
                seen.append((error.reason, str(error)))
    return [*seen, words]


def test_every_location_is_answered_and_treated_alike(lattice_bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = control_flow(lattice_bundle, [(LAT, LON)] * 8, monkeypatch)
    assert [len(step) for step in plain[:-1]] == [4, 4, 4, 4, 2, 2, 4, 4]
    for location in NOWHERE:
        assert control_flow(lattice_bundle, [location] * 8, monkeypatch) == plain


def test_outside_the_frame_its_nearest_point_is_reported_from(lattice_bundle: Bundle) -> None:
    assert isinstance(lattice_bundle, LatticeBundle)
    plane = lattice_bundle.lattice.spec.plane
    rng = np.random.default_rng(0)
    for lat, lon in zip(rng.uniform(-90, 90, 300), rng.uniform(-180, 180, 300), strict=True):
        near_lat, near_lon = 41.1 + lat / 9000, -8.6 + lon / 18_000
        for where in ((lat, lon), (near_lat, near_lon)):
            lat_e7, lon_e7 = (round(degrees * 1e7) for degrees in where)
            assert plane.unit_of_e7(lat_e7, lon_e7) == tuple(int(unit) for unit in plane.units(*where))
            assert plane.holds_many(np.array([where[0]]), np.array([where[1]]))[0] == plane.holds(*where)


def test_the_driver_may_be_told_of_a_location_outside(lattice_bundle: Bundle) -> None:
    with memory(lattice_bundle) as device:
        assert device.warning_for(LAT, LON) is None
        assert "outside the area" in str(device.warning_for(48.0, -8.6))
        assert "exchanged" in str(device.warning_for(LON, LAT))
        assert "without a fix" in str(device.warning_for(0.0, 0.0))


def test_a_lattice_that_promises_too_little_is_refused(lattice_bundle: Bundle, lattice_path: Path) -> None:
    for bundle in (lattice_bundle, lattice_path):
        with pytest.raises(PolicyError, match="its ε is 2 per km, more than 1"):
            Device.open(bundle, ledger=None, budget=PLENTY, policy=Policy(largest_epsilon=1.0))


def test_a_lattice_of_kilometres_is_refused_everywhere(tmp_path: Path) -> None:
    """It verifies, but its promise adds 1.4 km to every distance: neighbours get none."""
    spec = small_spec(20, unit_mm=10**6, cell_units=1, epsilon_micro=400_000)
    path = tmp_path / "coarse.bundle"
    save_lattice(path, spec, version=1, interval_s=30.0)
    bundle = load_bundle(path)
    gateway = write_config(tmp_path / "gateway", path, HTTP + upstream("osmand", "http://127.0.0.1:9"))
    save_traces(tmp_path / "t.parquet", vehicle=["a"], trip=[0], time=[0])
    attempts: list[Callable[[], object]] = [
        lambda: Device.open(path, ledger=None, budget=PLENTY),
        lambda: Fleet.open(bundle, vehicles=["a"], ledger=None),
        lambda: perturb_points(tmp_path / "t.parquet", tmp_path / "out.parquet", bundle=bundle),
        lambda: Gateway(read_config(gateway)),
        lambda: BundleStore([path]),
    ]
    for refused in attempts:
        with pytest.raises((PolicyError, InputError), match="rounds a coordinate by up to 707 m, more than 10 m"):
            refused()
    Device.open(path, ledger=None, budget=PLENTY, policy=Policy(largest_rounding_m=708)).close()


def test_a_device_opens_again_without_verifying_and_draws_the_same(lattice_path: Path, tmp_path: Path) -> None:
    """What is known is not prepared; the sums of rows are then made for each report."""
    Ledger.create(tmp_path / "a.ledger", budget=PLENTY)
    for step in range(2):
        with Device.open(lattice_path, ledger=tmp_path / "a.ledger") as device:
            assert device.report(LAT, LON, time.time() + 60 * step).cell is not None


def test_the_stream_and_the_ledger_tell_of_cells(lattice_path: Path, tmp_path: Path) -> None:
    ledger = str(tmp_path / "a.ledger")
    create = ["ledger", "create", ledger, "--budget", "8", "--window", "7200"]
    assert CliRunner().invoke(app, create).exit_code == 0
    lines = "".join(f'{{"lat": {LAT}, "lon": {LON}, "time": {START + 1200 * step}}}\n' for step in range(5))
    stream = ["perturb", str(lattice_path), "--stream", "--ledger", ledger, "--set", "replay=true"]
    done = CliRunner().invoke(app, stream, input=lines)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer.get("left") for answer in answers] == [6.0, 4.0, 2.0, 0.0, None]
    assert answers[-1]["error"] == "budget"
    assert all(0 <= answer["cell"] < 121 for answer in answers[:-1])
    told = json.loads(CliRunner().invoke(app, ["ledger", "show", ledger, "--json"]).stdout)
    assert (told["spent"], told["reports"]) == (8.0, 4)
    assert CliRunner().invoke(app, ["ledger", "verify", ledger]).exit_code == 0


def test_devices_and_fleets_refuse_to_go_back_to_an_older_bundle(tmp_path: Path) -> None:
    """Also a bundle that was loaded, also the whole ledger after a restart; another domain has versions of its own."""
    old, new = (save_small(tmp_path / f"{version}.bundle", version=version) for version in (1, 3))
    other = save_small(tmp_path / "other.bundle", cells=13)
    assert load_bundle(old).domain == load_bundle(new).domain != load_bundle(other).domain
    ledger = tmp_path / "a.ledger"
    Ledger.create(ledger, budget=Budget(1e6, 7200.0))
    for step, bundle in enumerate((old, new, new, other)):
        Device.open(new, ledger=ledger, replay=True).close()  # opened only: nothing was released with it
        with Device.open(bundle, ledger=ledger, replay=True) as device:
            device.report(LAT, LON, START + 30 * step)
    for older in (old, load_bundle(old)):
        for opened in (Device.open, partial(Fleet.open, vehicles=["a"])):
            with pytest.raises(MismatchError, match=r"is version 1, and the ledger has reports by version 3"):
                opened(older, ledger=ledger, replay=True)
    with Device.open(new, ledger=ledger, replay=True) as device:
        assert not device.report(LAT, LON, START + 300).stored
