from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from geoblanket.errors import InputError
from geoblanket.evaluate.methods import METHODS
from geoblanket.evaluate.report.comparison import Comparison
from geoblanket.study.comparison import paper_claims, read_training
from geoblanket.study.paper import GAINS, PAPER, Claim
from tests.evaluate.made_up import LOSSES, made_up

SOURCE = Path(__file__).parents[3] / "shared" / "paper" / "c-mdp.tex"

SCORES: dict[str, float | None] = {
    "n": 500, "bce": 0.2, "accuracy": 0.94, "precision": 0.95, "recall": None, "f1": 0.96, "negative_precision": 0.4,
    "negative_recall": 0.75, "negative_f1": 0.73,
}  # fmt: skip
TRAINING = {
    "porto": {
        "evaluations": [
            {"model": "m alone", "trained_on": "all", "scores": {}},
            {"model": "network", "trained_on": "all", "scores": {"all": SCORES, "tested": SCORES}},
        ],
        "predicted_lengths": {"1": 30, "2": 50, "3": 20},
    }
}


def _rows(losses: dict[str, float], *, uncertainty: float = 0.005) -> dict[str, Claim]:
    comparison = Comparison.of(made_up(losses, uncertainty=uncertainty), {})
    return {row.topic: row for row in paper_claims(comparison, TRAINING)}


def test_verdicts_follow_from_the_numbers() -> None:
    rows = _rows({**LOSSES, "lp_cmdp": 0.85})
    assert rows["loss of LP+C-mDP against LP"].verdict == "agrees"
    assert "ε = 2: 15.0% (14.5% to 15.5%) below" in rows["loss of LP+C-mDP against LP"].measured
    assert rows["loss of LP+C-mDP against LP+TrueMB"].verdict == "differs"
    itself = _rows({**LOSSES, "lp_cmdp": LOSSES["lp_true_mb"]})["loss of LP+C-mDP against LP+TrueMB"]
    assert itself.verdict == "cannot be decided"
    assert "compares a mechanism with itself" in itself.why
    assert _rows({**LOSSES, "lp_cmdp": 1.0})["loss of LP+C-mDP against LP"].verdict == "differs"
    assert _rows({**LOSSES, "lp_cmdp": 0.9}, uncertainty=0.05)["loss of LP+C-mDP against LP"].verdict == (
        "cannot be decided"
    )


def test_where_only_some_epsilon_agree_they_are_named() -> None:
    results = pl.concat([
        made_up({"lp_cmdp": 0.99, "lp": 1.0}, epsilons=(1.0,), uncertainty=0.001),
        made_up({"lp_cmdp": 0.85, "lp": 1.0}, epsilons=(4.0,), uncertainty=0.001),
    ])  # fmt: skip
    (row,) = (claim for claim in paper_claims(Comparison.of(results, {}), {}) if claim.topic.endswith("against LP"))
    assert row.verdict == "agrees at ε = 4; differs at ε = 1"


def test_prediction_and_sizes_come_from_training() -> None:
    rows = _rows(LOSSES)
    assert rows["prediction: accuracy"].paper == "0.9413"
    assert rows["prediction: accuracy"].verdict == "agrees"
    assert rows["prediction: negative precision"].verdict == "differs"
    assert (rows["prediction: recall"].measured, rows["prediction: recall"].verdict) == (
        "–; on tested hypotheses only –",
        "cannot be decided",
    )
    assert rows["blankets of at most 2 locations"].measured == "80.0% of samples, as predicted"
    assert rows["blankets of at most 2 locations"].verdict == "differs"


def test_a_few_hypotheses_decide_nothing_about_predictions() -> None:
    scores = {kind: {**SCORES, "n": 20} for kind in ("all", "tested")}
    few = {"evaluations": [{"model": "network", "trained_on": "all", "scores": scores}]}
    rows = {row.topic: row for row in paper_claims(Comparison.of(made_up(), {}), {"porto": few})}
    assert rows["prediction: accuracy"].verdict == "cannot be decided"
    assert "Judged by 20 hypotheses" in rows["prediction: accuracy"].why


def test_every_row_says_where_in_the_paper_it_stands_and_why_it_may_differ() -> None:
    rows = _rows(LOSSES)
    assert len(rows) > 30
    assert all(row.where and row.why and row.measured for row in rows.values())


def test_other_cities_are_not_compared() -> None:
    assert paper_claims(Comparison.of(made_up(city="elsewhere"), {}), TRAINING) == []


def test_training_is_read_where_it_was_left(tmp_path: Path) -> None:
    (tmp_path / "porto").mkdir()
    (tmp_path / "porto" / "training.json").write_text('{"predicted_lengths": {"1": 3}}', encoding="utf-8")
    assert read_training(tmp_path, ["porto", "rome"]) == {"porto": {"predicted_lengths": {"1": 3}}}
    (tmp_path / "porto" / "training.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"training\.json"):
        read_training(tmp_path, ["porto"])


def test_methods_of_the_paper_are_known() -> None:
    for figures in PAPER.values():
        assert {*figures.loss_km, *figures.nearest_error, *figures.privacy} <= set(METHODS)
    assert {gain.over for gain in GAINS} <= set(METHODS)


@pytest.mark.skipif(not SOURCE.exists(), reason="the paper is not there")
def test_every_number_stands_in_the_paper() -> None:
    text = SOURCE.read_text("utf-8")
    rows = {tuple(map(float, re.findall(r"(\d\.\d+)\$\\pm", line))) for line in text.splitlines()}
    for figures in PAPER.values():
        printed = [
            *(f"{value:.4f}" for value in figures.prediction.values()),
            *(f"{value:.3f}" for value in figures.loss_km.values()),
            f"{figures.prediction_ms:.4f}",
            f"{figures.build_seconds:.2f}",
            *(f"{value:.2f}" for value in figures.build_seconds_range),
        ]
        assert [number for number in printed if number not in text] == []
        for one in figures.privacy.values():
            assert (one.leakage, one.expected_leakage, one.inference_error_km, one.inference_success) in rows
    for method, rome in PAPER["rome"].loss_km.items():
        rome_ii, porto_ii = (PAPER[city].nearest_error[method] for city in ("rome", "porto"))
        assert (rome, PAPER["porto"].loss_km[method], rome_ii, porto_ii) in rows
