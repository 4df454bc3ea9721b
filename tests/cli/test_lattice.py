"""`geoblanket lattice`, and the commands that take its bundles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.mechanism import load_bundle
from tests.roads.graphs import grid_graph


def run(*arguments: object) -> tuple[int, str, str, BaseException | None]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr, result.exception


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lattice") / "city.bundle"
    code, _, talk, _ = run(
        "lattice", "--center", "41.15,-8.61", "--radius-km", 3, "--epsilon", 20, "--out", path, "--cell-m", 20
    )
    assert code == 0, talk
    assert "A night of 8 hours at home gives away 160 per km" in talk
    assert "7.4 times for 100 m" in talk
    return path


def test_the_area_is_within_the_frame(bundle: Path) -> None:
    lattice = load_bundle(bundle).lattice
    assert lattice is not None
    assert lattice.anchor is not None
    assert (lattice.anchor.epsilon, lattice.anchor.period_s) == (20, 3600)
    for lat, lon in ((41.15 - 0.026, -8.61), (41.15 + 0.026, -8.61), (41.15, -8.645), (41.15, -8.575)):
        assert lattice.spec.plane.holds(lat, lon)


def test_verify_show_and_report_take_it(bundle: Path, tmp_path: Path) -> None:
    code, text, talk, _ = run("verify", bundle)
    assert code == 0, talk
    assert text.startswith(f"OK: {bundle}: 1 mechanism, a lattice of ")
    assert "No zone is." in run("verify", bundle, "--verbose")[1]
    assert "no device accepts" not in talk
    code, text, _, _ = run("show", bundle, "--picture", tmp_path / "a.png")
    assert code == 0
    assert "of 20 m" in text
    assert (tmp_path / "a.png").stat().st_size > 10_000
    code, text, _, _ = run("show", bundle, "--json")
    facts = json.loads(text)
    assert facts["lattice"]["epsilon_per_km"] == 20
    assert facts["lattice"]["anchor"] == {"epsilon_per_km": 20, "period_s": 3600}
    assert facts["lattice"]["area"]["south"] < 41.15 < facts["lattice"]["area"]["north"]
    code, _, talk, _ = run("report", bundle, "--out", tmp_path / "report")
    assert code == 0, talk
    assert "A night of 8 hours" in (tmp_path / "report" / "report.html").read_text("utf-8")


def test_a_policy_is_heard(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("largest_epsilon = 4")
    code, text, _, _ = run("verify", bundle, "--policy", tmp_path / "policy.toml")
    assert code == 1
    assert text.startswith("NOT OK: ")
    assert "its ε is 20 per km, more than 4" in text


def test_an_area_of_roads_and_json(tmp_path: Path) -> None:
    grid_graph(5, 5).save(tmp_path / "city.roads")
    code, text, _, _ = run(
        "lattice", "--roads", tmp_path / "city.roads", "--epsilon", 20, "--cell-m", 20, "--no-anchor", "--json",
        "--out", tmp_path / "a.bundle",
    )  # fmt: skip
    assert code == 0
    facts = json.loads(text)
    assert facts["anchor"] is None
    assert any("parked for an hour is found" in sentence for sentence in facts["meaning"])


@pytest.mark.parametrize(("options", "words"), [
    (("--epsilon", 2), "one of --roads"),
    (("--epsilon", 2, "--area", "1,2,3,4", "--center", "1,2"), "one of --roads"),
    (("--epsilon", 2, "--area", "1,2,3"), "SOUTH,WEST,NORTH,EAST"),
    (("--epsilon", 2, "--area", "41,x,42,3"), "SOUTH,WEST,NORTH,EAST"),
    (("--epsilon", 2, "--area", "42,1,41,2"), "ends south"),
    (("--epsilon", 2, "--area", "88,1,89,2"), "85°"),
    (("--epsilon", 2, "--area", "36,-9,44,3"), "more than 67,108,864"),
    (("--epsilon", 0, "--center", "41,-8"), "ε must be"),
    (("--epsilon", 1e6, "--center", "41,-8"), "ε must be"),
    (("--epsilon", "nan", "--center", "41,-8"), "ε must be"),
    (("--epsilon", 0.001, "--center", "41,-8"), "ε must be"),
    (("--epsilon", 30, "--center", "41,-8"), "from 0.01 to 20 per km. Got 30 instead. Devices refuse"),
    (("--epsilon", 4, "--anchor-epsilon", 30, "--center", "41,-8", "--radius-km", 2), "The anchor's ε₀ must be from"),
    (("--epsilon", 2, "--area", "30,1,60,80"), "wide where"),
    (("--epsilon", 2, "--center", "41,-8", "--cell-m", 5000), "fewer than 100"),
    (("--epsilon", 2, "--center", "41,-8", "--radius-km", 100, "--cell-m", 3000), "too coarse"),
    (("--epsilon", 2, "--center", "41,-8", "--radius-km", 0), "radius"),
    (("--epsilon", 2, "--center", "89.5,-8"), "pole"),
    (("--epsilon", 2, "--center", "41,-8", "--no-anchor", "--anchor-epsilon", 1), "contradict"),
    (("--epsilon", 4, "--center", "41,-8", "--radius-km", 2, "--anchor-period", 0), "31 days"),
])  # fmt: skip
def test_bad_input_is_refused_in_words(tmp_path: Path, options: tuple[object, ...], words: str) -> None:
    code, _, _, error = run("lattice", *options, "--out", tmp_path / "a.bundle")
    assert code == 1
    assert words in str(error)
    assert not (tmp_path / "a.bundle").exists()


def test_epsilon_has_no_default(tmp_path: Path) -> None:
    code, _, talk, _ = run("lattice", "--center", "41,-8", "--out", tmp_path / "a.bundle")
    assert code == 2
    assert "--epsilon" in talk
