"""Methods of two stages, in a small town: between the optimum over their rows and their first stage."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from geoblanket.evaluate.experiment import Experiment
from geoblanket.evaluate.methods import METHODS
from geoblanket.evaluate.report.tables import second_stage_tables
from geoblanket.evaluate.report.writing import write_report
from geoblanket.evaluate.results import ALL_ZONES, read_results
from geoblanket.evaluate.running import Evaluation, evaluate_cities
from geoblanket.evaluate.sanity import check_results
from geoblanket.evaluate.settings import Setting
from tests.evaluate.test_zone_problems import problems
from tests.evaluate.towns import Town

METHODS_COMPARED = ("lp_markov1", "lp_markov1_refined", "lp_markov1_split", "lp")
SETTING = Setting(methods=METHODS_COMPARED, epsilon=4.0, max_places=8, max_rows=20, history_weights=(1.0, 0.5))
CHECK = "a second stage never costs more than the first, nor less than possible"


@pytest.fixture(scope="module")
def found(town: Town, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Evaluation]:
    out = tmp_path_factory.mktemp("results")
    experiment = Experiment(
        name="stages", title="Two stages", settings=(SETTING, SETTING.replaced(equal_cost=True)), zones=1, gap=0.02,
        max_tasks=100, reports=(4,),
    )  # fmt: skip
    return out, evaluate_cities([town.files], [experiment], out, workers=1)


def measure(results: pl.DataFrame, name: str, method: str, variant: str = "") -> float:
    return float(results.filter(measure=name, method=method, variant=variant, zone=ALL_ZONES)["value"].item())


@pytest.mark.parametrize("variant", ["", "equal cost per location"])
def test_refined_lies_between_the_optimum_and_the_first_stage(found: tuple[Path, Evaluation], variant: str) -> None:
    results = found[1].results
    assert found[1].violations == ()
    refined, first = (
        measure(results, name, "lp_markov1_refined", variant) for name in ("design_loss", "first_stage_loss")
    )
    bound = measure(results, "lower_bound", "lp_markov1_split", variant)
    assert measure(results, "lower_bound", "lp_markov1_refined", variant) == pytest.approx(bound)
    assert bound <= refined < first
    assert measure(results, "design_loss", "lp_markov1_split", variant) < first
    rows = [measure(results, "rows", method, variant) for method in METHODS_COMPARED[:3]]
    assert rows[0] < rows[1] == rows[2]


def test_one_more_place_costs_as_much_as_it_counts(found: tuple[Path, Evaluation]) -> None:
    results = found[1].results
    assert measure(results, "epsilon_per_location", "lp_markov1") == pytest.approx(8.0)
    assert measure(results, "epsilon_per_location", "lp_markov1_refined") == pytest.approx(10.0)
    equal = [measure(results, "epsilon_per_location", key, "equal cost per location") for key in METHODS_COMPARED]
    assert equal == pytest.approx([4.0] * 4, rel=1e-5)


def test_the_stages_are_told_side_by_side(found: tuple[Path, Evaluation], tmp_path: Path) -> None:
    out, evaluation = found
    results, about = read_results(out)
    tables = list(second_stage_tables(results))
    assert len(tables) == 2
    row = tables[0].rows[0]
    shown = [measure(results, "first_stage_loss", "lp_markov1_refined")]
    shown += [measure(results, "design_loss", key) for key in METHODS_COMPARED[1:3]]
    shown += [measure(results, "lower_bound", "lp_markov1_refined")]
    shown += [measure(results, "held_out_loss", key) for key in METHODS_COMPARED[:3]]
    assert [row[column] for column in (2, 3, 5, 7, 8, 9, 10)] == [f"{value:.4f}" for value in shown]
    page = write_report(evaluation.results, tmp_path, about=about).read_text(encoding="utf-8")
    assert "What a second stage gains" in page
    assert f"{shown[0]:.4f}" in page


@pytest.mark.parametrize(("name", "factor"), [("first_stage_loss", 0.5), ("lower_bound", 2.0)])
def test_a_broken_second_stage_is_noticed(found: tuple[Path, Evaluation], name: str, factor: float) -> None:
    here = (pl.col("measure") == name) & (pl.col("method") == "lp_markov1_refined")
    broken = found[1].results.with_columns(value=pl.when(here).then(pl.col("value") * factor).otherwise("value"))
    assert CHECK in {violation.check for violation in check_results(broken)}


def test_rows_that_cannot_be_split_stay() -> None:
    zone = problems(predicted=1)
    many = Setting(methods=("lp",), epsilon=2.0, max_rows=8000)
    assert zone.rows("markov:1, split", many.replaced(history_weights=(1.0,))) is zone.rows(
        "markov:1", many.replaced(history_weights=(1.0,))
    )
    few = many.replaced(max_rows=20)
    assert len(zone.rows("predicted, split", few)) > len(zone.rows("predicted", few))
    assert not problems().has("predicted, split")


def test_every_second_stage_names_methods_over_the_right_rows() -> None:
    for method in METHODS.values():
        if method.stages is not None:
            first, direct = (METHODS[key] for key in method.stages)
            assert method.rows == direct.rows == f"{first.rows}, split"
            assert first.maker is direct.maker is METHODS["lp"].maker
