from __future__ import annotations

from pathlib import Path

import pytest

from geoblanket._display import Interval
from geoblanket.errors import InputError
from geoblanket.lab.evaluate.methods import METHODS
from geoblanket.lab.evaluate.panels import Comparison
from geoblanket.lab.study.paper import GAINS, PAPER, Claim, Verdict
from geoblanket.lab.study.paper_chapter import paper_claims, read_training
from tests.lab.evaluate.made_up import LOSSES, made_up

SOURCE = Path(__file__).parents[4] / "shared" / "paper" / "c-mdp.tex"

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
    comparison = Comparison.of(made_up(losses, epsilons=(0.25, 0.5, 1.0), uncertainty=uncertainty), {})
    return {row.topic: row for row in paper_claims(comparison, TRAINING)}


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        (Interval(0.2, 0.3), Verdict.HOLDS),
        (Interval(0.05, 0.3), Verdict.UNDECIDED),
        (Interval(0.0, 1.0), Verdict.UNDECIDED),
        (Interval(0.5, 0.6), Verdict.FAILS),
        (None, Verdict.UNDECIDED),
    ],
)
def test_one_rule_judges_every_claim(interval: Interval | None, verdict: Verdict) -> None:
    assert Claim("topic", "10 to 40 %", 0.1, 0.4, 0.2, interval, "").verdict is verdict


def test_gains_are_rows_with_their_intervals() -> None:
    row = _rows({**LOSSES, "lp_cmdp": 0.85})["loss of LP+C-mDP below LP, ε = 0.5"]
    assert row.cells[1:5] == ("13 to 17 % below", "15.0%", "14.5% to 15.5%", "holds")
    for loss, uncertainty, verdict in ((1.0, 0.005, Verdict.FAILS), (0.9, 0.05, Verdict.UNDECIDED)):
        rows = _rows({**LOSSES, "lp_cmdp": loss}, uncertainty=uncertainty)
        assert rows["loss of LP+C-mDP below LP, ε = 0.5"].verdict is verdict


def test_a_mechanism_is_not_compared_with_itself() -> None:
    itself = _rows({**LOSSES, "lp_cmdp": LOSSES["lp_true_mb"]})["loss of LP+C-mDP below LP+TrueMB, ε = 0.5"]
    assert (itself.interval, itself.verdict) == (None, Verdict.UNDECIDED)


def test_prediction_and_sizes_come_from_training() -> None:
    rows = _rows(LOSSES)
    accuracy, recall = rows["prediction: accuracy"], rows["prediction: recall"]
    assert (accuracy.paper, accuracy.measured, accuracy.verdict) == ("0.9413", 0.94, Verdict.HOLDS)
    assert (recall.measured, recall.verdict) == (None, Verdict.UNDECIDED)
    assert rows["blankets of at most 2 locations"].measured == 0.8
    assert rows["blankets of at most 2 locations"].verdict is Verdict.FAILS


def test_every_row_says_where_in_the_paper_it_stands() -> None:
    rows = _rows(LOSSES)
    assert len(rows) == 8 + 1 + len(GAINS) * 2
    assert all(row.where for row in rows.values())


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
    assert {gain.over for gain in GAINS} <= set(METHODS)


@pytest.mark.skipif(not SOURCE.exists(), reason="the paper is not there")
def test_every_number_stands_in_the_paper() -> None:
    text = SOURCE.read_text("utf-8")
    for figures in PAPER.values():
        printed = [f"{value:.4f}" for value in figures.prediction.values()]
        printed += [f"{abs(value):.4f}" for table in figures.correlations.values() for value in table.values()]
        assert [number for number in printed if number not in text] == []
