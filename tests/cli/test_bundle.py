from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.errors import GeoblanketError, GuaranteeViolation, InputError
from geoblanket.mechanism.bundle.signing import sign_bundle
from geoblanket.mechanism.bundle.storage import BundledMechanism, save_bundle
from geoblanket.mechanism.mechanism import Mechanism
from tests.mechanism.bundle.test_signing import write_keys
from tests.mechanism.bundles import DOMAIN, forge, save_located, save_plain, tight


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return save_located(tmp_path / "a.bundle")


def test_verify_prints_the_guarantee_in_words(bundle: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(bundle)])
    assert result.exit_code == 0, result.output
    for words in ("at most e^(ε·d) times as probable", "Verified exactly", "Disclosed by every report"):
        assert words in result.stdout


def test_verify_as_json(bundle: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(bundle), "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["holds"] is True
    assert facts["mechanisms"][1]["epsilon_per_km"] == 4.0
    assert facts["mechanisms"][1]["eta_km"] is None


def test_a_broken_promise_exits_with_an_error_and_says_so(bundle: Path) -> None:
    forge(bundle, lambda _, arrays: arrays["weights"].put([0, 1], [0, 2**61]))
    result = CliRunner().invoke(app, ["verify", str(bundle), "--json"])
    assert isinstance(result.exception, GuaranteeViolation)
    facts = json.loads(result.stdout)
    assert facts["holds"] is False
    assert "zone 'centre'" in facts["problem"]
    script = "from geoblanket.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "verify", str(bundle)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "The mechanism must not be used." in done.stderr


def test_show_tells_what_is_in_it(bundle: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["show", str(bundle), "--picture", str(tmp_path / "a.png")])
    assert result.exit_code == 0, result.output
    for words in ("centre", "night", "5 of 7", "snapping radius", "the zone, the regime, and when a report was made"):
        assert words in result.stdout
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    facts = json.loads(CliRunner().invoke(app, ["show", str(bundle), "--json"]).stdout)
    assert [mechanism["outputs_used"] for mechanism in facts["mechanisms"]] == [5, 5]
    assert facts["places"] == 5


def test_names_in_a_bundle_cannot_style_the_terminal(tmp_path: Path) -> None:
    part = BundledMechanism.of(tight(), zone="[/red] [bold", regime="$x$ [link=http://a]b")
    save_bundle(tmp_path / "a.bundle", [part], version=1, domain=DOMAIN)
    result = CliRunner().invoke(app, ["show", str(tmp_path / "a.bundle"), "--picture", str(tmp_path / "a.png")])
    assert result.exit_code == 0, result.output
    assert "[/red] [bold" in result.stdout


def test_pins_and_signatures(bundle: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path, "ours")
    key = ["verify", str(bundle), "--public-key", str(public)]
    assert isinstance(CliRunner().invoke(app, key).exception, InputError)
    unsigned = CliRunner().invoke(app, [*key, "--allow-unsigned"])
    assert (unsigned.exit_code, "no valid signature" in unsigned.stderr) == (0, True)
    sign_bundle(bundle, private)
    signed = CliRunner().invoke(app, key)
    assert (signed.exit_code, "The signature is valid." in signed.stderr) == (0, True)
    for pin in (["--minimum-version", "4"], ["--domain", "0" * 64]):
        assert isinstance(CliRunner().invoke(app, ["verify", str(bundle), *pin]).exception, GeoblanketError)


def test_a_broken_triangle_is_noted_and_the_promise_decides(tmp_path: Path) -> None:
    distance = tight().distance_mm.copy()
    distance[0, 4] = distance[4, 0] = 10**8
    mechanism = Mechanism.verified(tight().weights, distance_mm=distance, epsilon_micro=2_000_000, eta_mm=2**63 - 2)
    result = CliRunner().invoke(app, ["verify", str(save_plain(tmp_path / "a.bundle", mechanism))])
    assert result.exit_code == 0
    assert "1 pair(s) of rows are further apart than by way of a third row" in result.stderr
    assert "third row" not in CliRunner().invoke(app, ["verify", str(save_plain(tmp_path / "b.bundle"))]).stderr
