"""The page to hand on: the figures of the promise, in plain words, on one sheet."""

from __future__ import annotations

import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from geoblanket import Budget, Ledger, certainty, load_bundle
from geoblanket.cli.main import app
from geoblanket.errors import ParameterError
from geoblanket.mechanism.certainty import times_in_100
from geoblanket.planning import handout
from geoblanket.planning.handout import Reader, write_handout
from geoblanket.release.fence import fence_delta
from tests.mechanism.bundles import save_located
from tests.release.lattices import save_small


@pytest.fixture(scope="module")
def lattice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small(tmp_path_factory.mktemp("handout") / "a.bundle", hold_m=50, interval_s=120)


def text_of(page: Path) -> str:
    """Return what a page says, in one line."""
    body = page.read_text("utf-8").partition("<body>")[2]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


@pytest.fixture
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handout, "_BROWSERS", ())


@pytest.mark.usefixtures("no_browser")
@pytest.mark.parametrize("reader", get_args(Reader))
def test_the_figures_are_those_of_certainty_and_of_the_fence(lattice: Path, reader: Reader, tmp_path: Path) -> None:
    bundle = load_bundle(lattice)
    (page,) = write_handout(
        bundle, tmp_path, reader=reader, fence_km=1.0, budget=Budget(61, 3600), kept_for="30 days", contact="<b>Ann</b>"
    )
    text = text_of(page)
    assert page.name == f"{reader}.html"
    for draws, what in ((1, "one report"), (30, "a month of nights at one of them"), (30, "an hour on the road")):
        right = times_in_100(certainty(bundle, apart_m=100, reports=draws).right)
        assert f"after {what} {right} in 100" in text
    fenced = (1 + fence_delta(1000, 0.1, lat=0)) / 2
    assert f"after years of nights inside a fence {times_in_100(fenced)} in 100" in text
    assert f"about 160 m from {'your' if reader == 'drivers' else 'a'} home" in text  # √(π/30)/2 km
    assert "stays about 570 m off, after any number of them. The ways in and out tell more." in text
    assert "at most 30 new positions in any 1 h" in text  # 61 per km, 2 each
    assert "deletes positions after: 30 days" in text
    assert "<b>Ann</b>" in text
    assert "<b>" not in page.read_text("utf-8")
    assert not re.search("[α-ωΑ-Ω]", text)
    for caveat in bundle.promise.sections()["What is not promised"]:
        assert caveat in text


@pytest.mark.usefixtures("no_browser")
def test_drivers_get_a_notice_and_an_officer_a_text_for_the_assessment(lattice: Path, tmp_path: Path) -> None:
    bundle = load_bundle(lattice)
    pages = {reader: text_of(write_handout(bundle, tmp_path, reader=reader)[0]) for reader in get_args(Reader)}
    assert "A notice for drivers." in pages["drivers"]
    assert "epsilon" not in pages["drivers"]
    assert "(metric differential privacy, epsilon = 2 per km)" in pages["officer"]
    assert "they remain personal data" in pages["officer"]
    for text in pages.values():
        assert "This page counts with no fence." in text
        assert "budget is enforced" not in text
        assert "deletes positions after: ____" in text


@pytest.mark.usefixtures("no_browser")
@pytest.mark.parametrize("reader", get_args(Reader))
def test_zones_say_what_they_disclose(reader: Reader, tmp_path: Path) -> None:
    bundle = load_bundle(save_located(tmp_path / "a.bundle"))
    text = text_of(write_handout(bundle, tmp_path / "out", reader=reader, fence_km=0.5)[0])
    assert "two places of one zone, 100 m apart" in text
    assert "The place that is sent is another one nearby, drawn by chance." in text
    assert not re.search("[α-ωΑ-Ω]", text)
    if reader == "officer":
        assert bundle.promise.disclosed in text


@pytest.mark.skipif(not any(map(shutil.which, handout._BROWSERS)), reason="there is no Chromium to print with")
@pytest.mark.parametrize("zones", [False, True])
def test_the_longest_page_is_one_sheet_of_a4(lattice: Path, zones: bool, tmp_path: Path) -> None:
    _, pdf = write_handout(
        load_bundle(save_located(tmp_path / "a.bundle") if zones else lattice), tmp_path, reader="officer",
        fence_km=1.0, budget=Budget(60, 3600), kept_for="30 days",
        contact="The data-protection officer of the fleet, telephone 0123 456 789, privacy@fleet.example",
    )  # fmt: skip
    content = pdf.read_bytes()
    assert len(re.findall(rb"/Type\s*/Page\b", content)) == 1
    box = re.search(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", content)
    assert box is not None
    assert [float(box[1]), float(box[2])] == pytest.approx([595.3, 841.9], abs=1)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.usefixtures("no_browser")
def test_the_command_reads_the_budget_of_a_ledger(lattice: Path, tmp_path: Path) -> None:
    Ledger.create(tmp_path / "car.ledger", budget=Budget(40, 1800))
    arguments = ("report", lattice, "--out", tmp_path, "--for", "drivers", "--ledger", tmp_path / "car.ledger")
    result = run(*arguments, "--fence", 1, "--set", "kept_for=a week")
    assert result.exit_code == 0, result.output
    assert "No PDF, because Chromium was not found." in result.stderr
    assert "at most 20 new positions in any 30 min" in text_of(tmp_path / "drivers.html")
    assert "has results (drivers.html)" in str(run(*arguments).exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--fence", 1), "need --for drivers or --for officer"), (("--for", "police"), "must be one of drivers, officer")],
)
def test_wrong_options_are_refused(lattice: Path, tmp_path: Path, arguments: tuple[object, ...], message: str) -> None:
    result = run("report", lattice, "--out", tmp_path / "out", *arguments)
    assert isinstance(result.exception, ParameterError)
    assert message in str(result.exception)
    assert not (tmp_path / "out").exists()
