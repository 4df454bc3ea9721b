"""Hostile bundles whose form is perfect: those that break the promise for any history at all are refused everywhere.

Some of them passed a check that compared listed histories only, which is kept here to show that they would.
"""

from __future__ import annotations

import itertools
import math
import platform
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.errors import (
    GeoblanketError,
    GuaranteeViolation,
    InputError,
    MechanismError,
    MismatchError,
    PolicyError,
)
from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.policy import ANYTHING
from geoblanket.mechanism.bundle.storage import load_for_release
from geoblanket.release import Budget, Device, Fleet, Ledger
from geoblanket.release import ledger as ledger_module
from geoblanket.serve.service.bundles import BundleStore
from tests.audit import hostile
from tests.audit.driven_device import check_rule
from tests.audit.second_verifier import NEVER, Contents, Distances, Table, check, exceeds, parse, upper_exponential
from tests.mechanism.bundles import load_zones

PLENTY = Budget(1e8, 3600.0)
NOON = 1_719_835_200.0

Maker = Callable[[], bytes]


def opened(path: Path) -> Device:
    """A device that takes whatever keeps its promise."""
    return Device.open(path, ledger=None, budget=PLENTY, policy=ANYTHING)


def old_check(contents: Contents) -> bool:
    """Whether a file passes a comparison of the histories that it lists, and no others."""
    return all(old_check_of(table, contents.distances) for table in contents.tables)


def old_check_of(table: Table, distances: Distances) -> bool:
    listed = hostile.listed_distances_mm(table.histories, table.rows, table.past_weights, distances)
    for row, other in itertools.permutations(range(len(table.weights)), 2):
        stated = table.stated_mm[row][other]
        if stated > listed.get((min(row, other), max(row, other)), NEVER) + 1:
            return False
        bound = upper_exponential(table.epsilon_micro, stated * 10**9)
        pairs = zip(table.weights[row], table.weights[other], strict=True)
        if stated <= table.eta_mm and any(exceeds(*pair, bound) for pair in pairs):
            return False
    return True


UNLISTED = [name for name in hostile.BREACHES if name.startswith(("decoys", "known", "own past", "unlisted"))]
"""What is wrong with these shows in histories that they do not list."""


@pytest.mark.parametrize("name", UNLISTED)
def test_a_check_of_listed_histories_alone_passes_them(name: str) -> None:
    data = hostile.BREACHES[name]()
    assert old_check(parse(data))
    assert check(data).violations


@pytest.mark.parametrize("name", hostile.BREACHES)
def test_the_second_verifier_finds_the_histories(name: str) -> None:
    data = hostile.BREACHES[name]()
    findings = check(data)
    assert findings.worst > 1.2
    contents = parse(data)
    for violation in findings.violations:
        table = contents.table(violation.zone, violation.regime)
        apart = contents.distances.of_histories_pm(violation.history, violation.other, table.past_weights)
        assert apart is not None
        assert math.isclose(apart / 1e15, violation.distance_km)


@pytest.mark.parametrize("name", hostile.BREACHES)
def test_whoever_reads_a_broken_promise_refuses_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.bundle"
    path.write_bytes(hostile.BREACHES[name]())
    for read in (load_bundle, load_for_release, opened):
        with pytest.raises((GuaranteeViolation, InputError), match="zone 'centre'"):
            read(path)
    with pytest.raises((GuaranteeViolation, InputError)):
        Fleet.open(path, vehicles=["a"], ledger=None)
    for arguments in ([], ["--json"]):
        result = CliRunner().invoke(app, ["verify", str(path), *arguments])
        assert result.exit_code == 1
        assert "NOT OK: " in result.output


def test_the_decoys_would_report_the_truth(tmp_path: Path) -> None:
    """What is at stake: with the check left out, every report of a hostile file is the true place."""
    path = tmp_path / "a.bundle"
    path.write_bytes(hostile.decoys())
    device = Device(
        load_for_release(path, is_known=lambda _: True),
        ledger_module.MemoryLedger(PLENTY, replay=True),
        clock_tolerance_s=math.inf,
    )
    walk = [0, 3, 5, 1, 4, 2, 0, 5]
    reported = []
    for step, place in enumerate(walk):
        lat, lon = hostile.CITY[place]
        reported.append(device.report(lat / 1e7, lon / 1e7, NOON + 30 * step).place)
    assert reported == walk


def test_a_file_that_an_older_verifier_passed_is_verified_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.bundle"
    path.write_bytes(hostile.decoys())
    Ledger.create(tmp_path / "a.ledger", budget=PLENTY)
    older = f"geoblanket 0.1.0, NumPy {np.__version__}, Python {platform.python_version()}"
    with monkeypatch.context() as patch:
        patch.setattr(ledger_module, "VERIFIER", older)
        ledger = Ledger.open(tmp_path / "a.ledger")
        ledger.remember_verified(load_for_release(path, is_known=lambda _: True).sha256)
        ledger.close()
    with pytest.raises((GuaranteeViolation, InputError)):
        Device.open(path, ledger=tmp_path / "a.ledger")


@pytest.mark.parametrize("name", hostile.NO_RULES)
def test_a_table_that_is_no_rule_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.bundle"
    path.write_bytes(hostile.NO_RULES[name]())
    for read in (load_bundle, load_for_release, opened):
        with pytest.raises((MechanismError, InputError), match="zone 'centre'"):
            read(path)
    assert CliRunner().invoke(app, ["verify", str(path)]).exit_code != 0


def test_zones_that_share_places_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.bundle"
    path.write_bytes(hostile.zones_that_share_places())
    assert "two zones have the place 2" in check(path.read_bytes()).problems[0]
    with pytest.raises((MismatchError, InputError), match="share"):
        opened(path)


@pytest.mark.parametrize("name", hostile.SOUND)
def test_what_is_odd_but_right_is_taken(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.bundle"
    path.write_bytes(hostile.SOUND[name]())
    findings = check(path.read_bytes())
    assert findings.holds, findings
    check_rule(load_zones(path), parse(path.read_bytes()), hostile.ALL_DAY)
    opened(path).close()


EVERY: dict[str, Maker] = {
    **hostile.BREACHES,
    **hostile.NO_RULES,
    **hostile.OPEN,
    **hostile.SOUND,
    **hostile.WORTHLESS,
    "zones that share places": hostile.zones_that_share_places,
}


@pytest.mark.parametrize("name", EVERY)
def test_what_a_device_takes_keeps_its_promise(name: str, tmp_path: Path) -> None:
    """Whatever the file: a device refuses it with a typed error, or the second verifier finds nothing."""
    path = tmp_path / "a.bundle"
    path.write_bytes(EVERY[name]())
    try:
        opened(path).close()
    except GeoblanketError:
        return
    findings = check(path.read_bytes())
    assert findings.holds, findings


@pytest.mark.parametrize("name", hostile.WORTHLESS)
def test_the_letter_of_a_worthless_promise_holds(name: str) -> None:
    """They are refused by policy, not by arithmetic."""
    findings = check(hostile.WORTHLESS[name]())
    assert findings.holds, findings


@pytest.mark.parametrize("name", hostile.WORTHLESS)
def test_a_worthless_promise_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.bundle"
    path.write_bytes(hostile.WORTHLESS[name]())
    with pytest.raises((PolicyError, InputError)):
        Device.open(path, ledger=None, budget=PLENTY)
    with pytest.raises((PolicyError, InputError)):
        Fleet.open(path, vehicles=["a"], ledger=None)
    with pytest.raises(InputError):
        BundleStore([path])
    assert CliRunner().invoke(app, ["verify", str(path)]).stdout.startswith("NOT OK: ")
    refused = CliRunner().invoke(app, ["perturb", str(path), "--stream", "--set", "budget=1e6"])
    assert isinstance(refused.exception, PolicyError | InputError)


def test_how_far_snapping_goes_is_computed_whatever_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "a.bundle"
    path.write_bytes(hostile.no_snapping())
    bundle = load_zones(path)
    assert bundle.snapping_radius_mm == 0
    assert bundle.snapping_radius_m is not None
    assert bundle.snapping_radius_m > 100
    assert f"add {2 * bundle.snapping_radius_m:,.0f} m to d" in str(bundle.promise)
