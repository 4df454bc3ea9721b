from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from geoblanket._training import Training
from geoblanket.cli.main import app
from geoblanket.errors import ParameterError
from geoblanket.mechanism.bundle.storage import save_bundle
from geoblanket.mechanism.bundle.trust import sign_bundle
from geoblanket.tracking.motion_model import MotionModel
from tests.mechanism.bundle.test_trust import write_keys
from tests.mechanism.bundles import PLACES_E7, forge, located, save_located, tight
from tests.model_files import edit_model
from tests.promises import promise, promised
from tests.tracking.chains import second_order


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return save_located(tmp_path / "a.bundle")


def test_verify_ends_with_the_verdict_and_a_few_notes(bundle: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(bundle)])
    assert result.exit_code == 0, result.output
    verdict, *notes = result.stdout.splitlines()
    assert verdict.startswith(
        f"OK: {bundle}: 2 mechanisms in 1 zone, verified exactly. The best guess between two locations of one zone, "
        "100 m apart, is right "
    )
    assert " (50 would be chance; ε = 2 to 4 per km). In one sentence: each report" in verdict
    assert 1 <= len(notes) <= 5
    assert all(note.startswith("Note: ") for note in notes)
    assert "Note: The file does not say what it was learned from: count on no privacy for the drivers." in notes
    verbose = CliRunner().invoke(app, ["verify", str(bundle), "--verbose"]).stdout
    for words in ("at most a factor of e^(ε·d)", "Verified exactly", "Every report discloses"):
        assert words in verbose
        assert words not in result.stdout
    assert verbose.endswith(result.stdout)


def test_what_is_not_promised_is_noted_the_gravest_first(tmp_path: Path) -> None:
    parted = located(tight(eta_km=0.5))  # all places are further apart
    save_bundle(tmp_path / "a.bundle", [parted], version=1, places_e7=PLACES_E7, training=Training("walks"))
    anything = tmp_path / "policy.toml"
    anything.write_text("smallest_eta_km = 0\nfewest_places = 1\nsmallest_extent_m = 0\n")
    _, *notes = (
        CliRunner().invoke(app, ["verify", str(tmp_path / "a.bundle"), "--policy", str(anything)]).stdout.splitlines()
    )
    assert notes[0].startswith("Note: Those whose trips were learned from are promised nothing")
    assert notes[1] == "Note: In 1 mechanism no chain joins all rows: between the parts nothing is promised."
    assert len(notes) == 5


def test_verify_as_json(bundle: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(bundle), "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["ok"] is facts["holds"] is True
    assert facts["mechanisms"][1]["epsilon_per_km"] == 4.0
    assert facts["mechanisms"][1]["eta_km"] is None


def test_a_broken_promise_exits_with_an_error_and_says_so(bundle: Path) -> None:
    forge(bundle, lambda _, arrays: arrays["weights"].put([0, 1], [0, 2**61]))
    as_json = CliRunner().invoke(app, ["verify", str(bundle), "--json"])
    facts = json.loads(as_json.stdout)
    assert facts["ok"] is facts["holds"] is False
    assert "zone 'centre'" in facts["problem"]
    result = CliRunner().invoke(app, ["verify", str(bundle)])
    assert as_json.exit_code == result.exit_code == 1
    assert result.stdout.startswith(f"NOT OK: {bundle}: zone 'centre', regime 'day': ")
    assert result.stdout.endswith("The mechanism must not be used.\n")
    assert as_json.stderr == result.stdout


def refusal(*arguments: str) -> str:
    """Return the verdict on what is not OK."""
    result = CliRunner().invoke(app, ["verify", *arguments])
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith("NOT OK: ")
    return line


def test_what_else_is_not_ok(bundle: Path, tmp_path: Path) -> None:
    strict = tmp_path / "policy.toml"
    strict.write_text("largest_epsilon = 3")
    assert f"NOT OK: {bundle}: the bundle promises less than the policy asks for: its ε is 4 per km" in refusal(
        str(bundle), "--policy", str(strict)
    )
    assert refusal(str(tmp_path / "absent")) == f"NOT OK: {tmp_path / 'absent'}: no such file."
    data = bytearray(bundle.read_bytes())
    data[-1] ^= 1
    bundle.write_bytes(data)
    assert "was changed or damaged" in refusal(str(bundle))


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
    part = located(tight(), zone="[/red] [bold", regime="$x$ [link=http://a]b")
    save_bundle(tmp_path / "a.bundle", [part], version=1, places_e7=PLACES_E7)
    result = CliRunner().invoke(app, ["show", str(tmp_path / "a.bundle"), "--picture", str(tmp_path / "a.png")])
    assert result.exit_code == 0, result.output
    assert "[/red] [bold" in result.stdout


def test_pins_and_signatures(bundle: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path, "ours")
    key = ["verify", str(bundle), "--public-key", str(public)]
    assert "signature" in refusal(*key[1:])
    unsigned = CliRunner().invoke(app, [*key, "--set", "allow_unsigned=true"])
    assert (unsigned.exit_code, "Note: There is no valid signature." in unsigned.stdout) == (0, True)
    sign_bundle(bundle, private)
    signed = CliRunner().invoke(app, key)
    assert (signed.exit_code, "Note: The signature is valid." in signed.stdout) == (0, True)
    for pin in (["--set", "minimum_version=4"], ["--set", "domain=0" * 64]):
        refusal(str(bundle), *pin)


def test_the_verdict_tells_the_whole_promise(tmp_path: Path) -> None:
    path = tmp_path / "a.bundle"
    save_bundle(path, [located(tight())], version=1, places_e7=PLACES_E7, training=promised())
    result = CliRunner().invoke(app, ["verify", str(path)])
    verdict = result.stdout.split("\n")[0]
    assert verdict.startswith("OK: ")
    assert " In one sentence: each report changes the odds between two histories of one zone and regime" in verdict
    assert verdict.endswith("; the mechanisms were learned with ε = 1, δ = 1e-06 for each vehicle.")
    facts = json.loads(CliRunner().invoke(app, ["verify", str(path), "--json"]).stdout)
    assert verdict.endswith(facts["guarantee"][-1])
    assert "only who learned can know" in facts["notes"][0]
    assert Training.parsed(facts["training"]) == promised()
    shown = CliRunner().invoke(app, ["show", str(path)], env={"COLUMNS": "200"}).stdout
    assert "with ε = 1, δ = 1e-06 for each vehicle" in shown


def model_of(path: Path, learned: dict[str, Any]) -> Path:
    replace(second_order(), learned=learned).save(path)
    return path


PRIVATE = {"from": "private", "promise": promise().as_json()}


def test_verify_checks_what_a_model_says(tmp_path: Path) -> None:
    path = model_of(tmp_path / "a.model", PRIVATE)
    result = CliRunner().invoke(app, ["verify", str(path), "--verbose"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    for part in promise().parts:
        assert all(word in result.stdout for word in (part.name, f"{part.scale / part.bound:.4g}", f"{part.rho:.4g}"))
    assert f"Together they cost ρ = {promise().rho:.4g}, and for δ = 1e-06 that means ε = 1," in result.stdout
    assert CliRunner().invoke(app, ["verify", str(path)]).stdout.split("\n")[0] == (
        f"OK: {path}: a motion model of {second_order().place_count} places, its ε follows from the noise that it "
        "names. In one sentence: a model does not change what reports disclose, and the model was learned with "
        "ε = 1, δ = 1e-06 for each vehicle."
    )
    facts = json.loads(CliRunner().invoke(app, ["verify", str(path), "--json"]).stdout)
    assert facts["holds"] is True
    assert Training.parsed(facts["training"]) == promised()
    assert sum(facts["rho"]) == pytest.approx(promise().rho)


@pytest.mark.parametrize(
    ("learned", "words"),
    [
        ({"from": "roads"}, "nothing was learned from anyone."),
        ({"from": "roads and walks"}, "the model was learned without privacy for those in the traces."),
        ({"from": "released", "start": {"from": "roads"}}, "the model was learned from released reports, ε unknown."),
        (
            {"from": "released", "start": PRIVATE},
            "learned with ε = 1, δ = 1e-06 for each vehicle, and from released reports, ε unknown.",
        ),
        ({}, "the model was learned from what its file does not say."),
    ],
)
def test_verify_of_other_models(tmp_path: Path, learned: dict[str, Any], words: str) -> None:
    result = CliRunner().invoke(app, ["verify", str(model_of(tmp_path / "a.model", learned))])
    assert result.exit_code == 0, result.output
    assert result.stdout.split("\n")[0].endswith(words)


def test_verify_refuses_a_model_that_was_edited(tmp_path: Path) -> None:
    path = model_of(tmp_path / "a.model", {"from": "private", "promise": promise().as_json()})
    assert MotionModel.load(path).training == promised()
    edit_model(path, lambda learned: learned["promise"].update(epsilon=0.1))
    result = CliRunner().invoke(app, ["verify", str(path), "--json"])
    assert json.loads(result.stdout)["ok"] is False
    assert "the noise of its parts is too small for its ε" in refusal(str(path))


def test_what_is_for_bundles_is_not_for_models(tmp_path: Path) -> None:
    path = model_of(tmp_path / "a.model", PRIVATE)
    for option in (["--set", "domain=0" * 64], ["--set", "minimum_version=1"], ["--public-key", "a"]):
        assert isinstance(CliRunner().invoke(app, ["verify", str(path), *option]).exception, ParameterError)
