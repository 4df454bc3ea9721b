from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from geoblanket.lab.evaluate.report import answers, write_report
from geoblanket.lab.evaluate.results import write_results
from geoblanket.lab.study.paper_chapter import check_paper, paper_chapter
from tests.lab.evaluate.made_up import LOSSES, made_up

ABOUT = {
    "experiments": {"made up": {"reports": [10], "seed": 4, "settings": [{"epsilon": 1.0}, {"epsilon": 2.0}]}},
    "cities": {"porto": {"roads": "0123abcd"}},
    "software": {"geoblanket": "9.9"},
    "notes": ["porto, Tight constraints: <b>none</b> found"],
}
SOUND = {"lp_cmdp": 0.8, "lp": 1.0, "constopt": 1.15}


def _sound(**setting: Any) -> pl.DataFrame:
    """Return results that pass all checks, with a sweep and an equal-cost comparison."""
    return pl.concat([
        made_up(SOUND, epsilons=(0.5, 1.0, 2.0, 4.0), **setting),
        made_up(SOUND, epsilons=(2.0,), history_weight=0.5, **setting),
        made_up(SOUND, variant="equal cost per location", **setting),
        made_up(SOUND, loss_case="one destination", **setting),
    ])  # fmt: skip


def _losses_only(results: pl.DataFrame) -> pl.DataFrame:
    """Return the main comparison without attacks, of which few figures are made."""
    wanted = ["held_out_loss", "verified", "epsilon_effective", "gain_over_lp"]
    usual = (pl.col("variant") == "") & (pl.col("history_weight") == 1) & (pl.col("loss_case") == "population")
    return results.filter(usual & pl.col("measure").is_in(wanted))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(_sound(), folder, about=ABOUT, chapters=[paper_chapter(check_paper(_sound(), {}))])
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text("utf-8")


def test_the_page_needs_no_internet_and_lets_no_markup_in(page: str) -> None:
    assert re.findall(r"(?:src|href)=\"(?!data:|#)[^\"]*", page) == []
    assert "@import" not in page
    assert "url(" not in page
    assert "<script" not in page
    assert "<b>none" not in page
    assert "&lt;b&gt;none" in page


def test_the_answers_come_first(page: str) -> None:
    order = [
        "Which mechanism should I use?</h2>", "What does privacy cost?</h2>", "Would an attacker win?</h2>",
        "The paper&#x27;s numbers and ours</h2>", "Loss against ε</h2>", "Loss: one destination</h2>",
        "Leakage and attackers</h2>",
        "Utility against privacy</h2>", "it is known anyway)</h2>", "Time, memory and size</h2>",
        "Is the comparison sound?</h2>", "Every parameter</h2>",
    ]  # fmt: skip
    positions = [page.index(text) for text in order]
    assert positions == sorted(positions)
    assert "<p>Recommended at equal ε per report: LP+C-mDP; at equal cost per location: LP+C-mDP. At ε = 2" in page


def test_every_figure_is_there_wholly_in_both_formats(folder: Path, page: str) -> None:
    names = json.loads((folder / "report.json").read_text("utf-8"))["figures"]
    assert set(names) >= {
        "loss", "gain", "leakage", "inference", "context-inference", "tracking", "pareto", "equal-cost",
        "one-destination", "build-time", "sweep-history-weight",
    }  # fmt: skip
    for name in names:
        assert (folder / f"{name}.png").read_bytes()[-8:] == b"IEND\xaeB`\x82"
        assert (folder / f"{name}.svg").read_text("utf-8").rstrip().endswith("</svg>")
    assert page.count("<figure>") == len(names)
    assert sorted(path.suffix for path in folder.iterdir() if path.stem not in names) == [".html", ".json"]


def test_every_parameter_is_told(page: str) -> None:
    for text in ("0123abcd", "9.9", "seed"):
        assert text in page


def test_a_sound_comparison_has_no_red(page: str) -> None:
    assert 'class="wrong"' not in page
    assert "VIOLATED" not in page


def test_violations_are_red_at_the_top_and_in_their_section(tmp_path: Path) -> None:
    spent = (pl.col("measure") == "epsilon_effective") & (pl.col("method") == "lp")
    broken = _sound().with_columns(value=pl.when(spent).then(99.0).otherwise("value"))
    page = write_report(_losses_only(broken), tmp_path, about=ABOUT).read_text("utf-8")
    assert page.index('class="wrong"') < page.index("Which mechanism should I use?</h2>")
    assert "VIOLATED" in page
    assert "it spends ε = 99 per km" in page
    assert json.loads((tmp_path / "report.json").read_text("utf-8"))["violations"]


def test_a_table_that_lp_wins_does_not_say_that_context_wins(tmp_path: Path) -> None:
    losses = {**LOSSES, "lp_cmdp": 1.3, "lp_true_mb": 1.3, "lp_markov1": 1.3}
    page = write_report(_losses_only(made_up(losses)), tmp_path, about={}).read_text("utf-8")
    assert "<p>Recommended at equal ε per report: LP. At ε = 2 per km: " in page
    assert "report: LP+C-mDP" not in page


@pytest.mark.parametrize(
    ("right", "blind", "half", "answer"),
    [
        (0.62, 0.62, None, "Not by reports: "),
        (0.62, 0.61, 0.02, "Not by reports: "),
        (0.62, 0.55, 0.02, "Yes: "),
        (0.45, 0.12, None, "Not in most cases: "),
    ],
)
def test_an_attacker_wins_only_if_reports_help_it(right: float, blind: float, half: float | None, answer: str) -> None:
    results = made_up(SOUND)
    for measure, value in (("tracking_success", right), ("tracking_success_prior", blind)):
        here = pl.col("measure") == measure
        bounds = (None, None) if half is None else (value - half, value + half)
        changed = {"value": value, "low": bounds[0], "high": bounds[1]}
        results = results.with_columns(pl.when(here).then(pl.lit(v)).otherwise(n).alias(n) for n, v in changed.items())
    assert answers(results, ABOUT)["Would an attacker win?"]["porto"].startswith(answer)


def test_an_unknown_city_is_not_compared_with_the_paper(tmp_path: Path) -> None:
    results = _losses_only(_sound(city="elsewhere"))
    chapters = [paper_chapter(check_paper(results, {}))]
    page = write_report(results, tmp_path, about={}, chapters=chapters).read_text("utf-8")
    assert "numbers and ours" not in page


def test_one_method_alone_and_no_results_at_all_make_a_report_too(tmp_path: Path) -> None:
    write_report(_losses_only(made_up({"lp": 1.0}, epsilons=(2.0,))), tmp_path / "one", about={})
    page = write_report(made_up({}), tmp_path / "none", about={}).read_text("utf-8")
    assert "There are no results of all zones together." in page


def test_the_command_writes_the_report_again(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from geoblanket.cli.main import app

    results = _losses_only(_sound())
    page = write_report(results, tmp_path / "first", about=ABOUT, chapters=[paper_chapter(check_paper(results, {}))])
    write_results(results, tmp_path, about=ABOUT)
    result = CliRunner().invoke(app, ["evaluate", "report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "Recommended at equal ε per report: LP+C-mDP. " in result.stderr
    assert (tmp_path / "report" / "report.html").read_bytes() == page.read_bytes()
