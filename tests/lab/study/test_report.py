"""The study from walks to report on a small world, with a quick test in place of the real ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from geoblanket.blanket.discovery import DiscoveryOptions
from geoblanket.errors import InputError, OutputError, ParameterError
from geoblanket.lab.study import running
from geoblanket.lab.study.paper import Verdict
from geoblanket.lab.study.report import check_claims, summarise, write_report
from geoblanket.lab.study.running import Study, StudyOptions, run_study
from tests.blanket.quick_test import use_quick_test
from tests.blanket.worlds import Walk, square, wandering, write_world

SIDE = 12


def quick_study(world: tuple[Path, Path], folder: Path, **options: Any) -> Study:
    quick = {"test": "quick", "largest": 2, "smallest_group": 60, "largest_sample": 300}
    chosen = StudyOptions(DiscoveryOptions(**quick | options), permutations=19)  # type: ignore[arg-type]
    return run_study(*world, folder, chosen, workers=1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    graph = square(SIDE)
    walks = wandering(graph, side=SIDE, walks=900, steps=14, seed=2)
    return write_world(tmp_path_factory.mktemp("world"), graph, walks)


@pytest.fixture(scope="module")
def study(world: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Study:
    with pytest.MonkeyPatch.context() as patch:
        use_quick_test(patch)
        return quick_study(world, tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def folder(study: Study, world: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    write_report(study, out, roads=world[1], paper="porto", title="<b>Taxis & co</b>")
    return out


def test_every_order_is_tested_in_every_grouping(study: Study) -> None:
    findings = study.found.findings
    assert set(findings["by"]) == {"+".join(features) or "all" for features in running.GROUPINGS}
    assert "imputed" not in set(findings["status"])
    assert set(study.equal.findings.filter(pl.col("status") == "tested")["n"]) == {60}


def test_figures_tables_and_page_are_written(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    for figure in ("p-by-region", "p-by-speed", "p-by-hour", "rejections", "blanket-sizes"):
        assert {f"{figure}.png", f"{figure}.svg"} <= names
    assert {"report.html", "study.json", "correlations.csv", "classifier-tests.csv", "density.csv"} <= names
    assert not any("partial" in name for name in names)
    assert pl.read_csv(folder / "correlations.csv")["coefficient"].drop_nulls().is_between(-1, 1).all()


def test_the_page_escapes_its_title_and_fetches_nothing(folder: Path) -> None:
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert "<b>Taxis" not in html
    assert "&lt;b&gt;Taxis &amp; co&lt;/b&gt;" in html
    assert "http:" not in html
    assert "https:" not in html
    assert html.count("data:image/svg+xml;base64,") >= 6
    assert "nan" not in html.lower().replace("data:image", "").split("base64")[0]


def test_the_summary_says_the_numbers(study: Study, folder: Path) -> None:
    samples, rejected = summarise(study)
    assert f"{study.about['counts']['walks']:,} walks" in samples
    row = study.rejections.filter((pl.col("by") == study.main) & (pl.col("m") == 1)).row(0, named=True)
    assert f"|B| = 1: {row['share']:.1%} ({row['rejected_adjusted']} of {row['tested']}); " in rejected
    written = json.loads((folder / "study.json").read_text())
    assert written["summary"] == [samples, rejected]
    assert written["claims"] == [claim.as_dict() for claim in check_claims(study, "porto")]


def test_verdicts_follow_the_numbers(study: Study) -> None:
    """Were every hypothesis rejected, or none, the claim that movement has memory would be judged so."""
    for share, verdict in ((1.0, Verdict.HOLDS), (0.0, Verdict.FAILS)):
        table = study.rejections.with_columns(
            pl.lit(share).alias("share"), pl.lit(max(share - 0.05, 0.0)).alias("low"), pl.lit(share).alias("high")
        )
        claims = check_claims(replace(study, rejections=table), None)
        assert {claim.topic: claim.verdict for claim in claims}["rejected at |B| = 1"] is verdict


def test_claims_have_a_number_a_range_and_a_verdict(study: Study) -> None:
    claims = {claim.topic: claim for claim in check_claims(study, "porto")}
    speed = claims["Spearman's correlation of p with speed"]
    assert (speed.paper, speed.low, speed.high) == ("-0.1283", -1.0, -1e-9)
    dense = claims["points with 1000 others within 100 m"]
    # Few points were recorded: they may get denser with more, so nothing speaks against the claim.
    assert dense.measured is not None
    assert dense.measured.value is not None
    assert dense.verdict is (Verdict.HOLDS if dense.measured.value >= dense.low else Verdict.UNDECIDED)
    assert all(claim.where for claim in claims.values())


def test_a_finished_study_is_not_tested_again(
    world: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_quick_test(monkeypatch)
    first = quick_study(world, tmp_path, largest=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(running, "discover")
        again = quick_study(world, tmp_path, largest=1)
    assert again.found.findings.equals(first.found.findings)
    assert again.dependence.equals(first.dependence)
    other = quick_study(world, tmp_path, largest=1, alpha=0.01)
    assert other.about["alpha"] == 0.01


def test_too_few_samples_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_quick_test(monkeypatch)
    world = write_world(tmp_path, square(SIDE), [Walk("only", 0.0, [1, 2, 3, 4, 5])])
    with pytest.raises(InputError, match="no group has 60 samples"):
        quick_study(world, tmp_path / "study")


def test_one_region_and_standing_vehicles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report is written all the same; what cannot be told is not told, and no p is missing a number."""
    use_quick_test(monkeypatch)
    graph = square(SIDE)
    moving = wandering(graph, side=SIDE, walks=300, steps=12, seed=3, vehicles=1)
    standing = [Walk("still", 60.0 * number, [5] * 8) for number in range(100)]
    world = write_world(tmp_path, graph, [*moving, *standing])
    regions = "grid:-80,80,-170,170,1,1"
    study = quick_study(world, tmp_path / "study", regions=regions)
    summary = write_report(study, tmp_path / "study", roads=world[1], regions=regions)
    assert {claim["topic"] for claim in summary["claims"]} >= {"rejected at |B| = 1"}
    assert study.dependence.filter(pl.col("feature") == "longitude")["p_value"].null_count() == 3
    assert not study.correlations["p_value"].drop_nulls().is_nan().any()


def test_bad_options_are_refused(world: tuple[Path, Path], tmp_path: Path, study: Study) -> None:
    with pytest.raises(ParameterError, match="19 permutations"):
        run_study(*world, tmp_path, StudyOptions(permutations=5))
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file"):
        run_study(*world, tmp_path / "file")
    with pytest.raises(ParameterError, match="porto, rome"):
        write_report(study, tmp_path, roads=world[1], paper="atlantis")
