from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest

from geoblanket._display import Interval
from geoblanket.errors import InputError
from geoblanket.lab.evaluate.methods import METHODS
from geoblanket.lab.evaluate.results import RESULTS_SCHEMA
from geoblanket.lab.study.paper import CITIES, Claim, Measured, Verdict, claims_table, judge, paper_claims, paper_number
from geoblanket.lab.study.paper_chapter import Facts, check_paper, read_facts, write_claims
from tests.lab.evaluate.made_up import LOSSES, made_up

SOURCE = Path(__file__).parents[4] / "shared" / "paper" / "c-mdp.tex"

SCORES: dict[str, float | None] = {
    "n": 500, "bce": 0.2, "accuracy": 0.94, "precision": 0.95, "recall": None, "f1": 0.96, "negative_precision": 0.4,
    "negative_recall": 0.75, "negative_f1": 0.73,
}  # fmt: skip
TRAINING = {
    "evaluations": [
        {"model": "m alone", "trained_on": "all", "scores": {}},
        {"model": "network", "trained_on": "all", "scores": {"all": SCORES, "tested": SCORES}},
    ],
    "predicted_lengths": {"1": 30, "2": 50, "3": 20},
    "seconds": 12.0,
    "epochs": 700,
    "predict_us": {"mean": 1.5, "98 %": 3.0, "within 2 ms": 1.0},
}
STUDY = {"claims": [{"key": "rejected:first", "measured": 0.9, "interval": [0.8, 1.0], "words": ""}]}


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Facts]:
    folder = tmp_path_factory.mktemp("facts")
    (folder / "porto" / "study").mkdir(parents=True)
    (folder / "porto" / "training.json").write_text(json.dumps(TRAINING), encoding="utf-8")
    (folder / "porto" / "study" / "study.json").write_text(json.dumps(STUDY), encoding="utf-8")
    return read_facts(folder, CITIES)


def _claims(losses: dict[str, float], *, uncertainty: float = 0.005) -> dict[str, Claim]:
    results = made_up(losses, epsilons=(0.1, 0.25, 0.5, 1.0), uncertainty=uncertainty)
    return {claim.key: claim for claim in check_paper(results, {})}


def _measured(interval: Interval | None) -> Claim:
    return Claim("key", "topic", "10 to 40 %", 0.1, 0.4, "section 5", measured=Measured(0.2, interval))


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
    assert _measured(interval).verdict is verdict


def test_gains_are_means_over_epsilon_with_all_intervals() -> None:
    gain = _claims({**LOSSES, "lp_cmdp": 0.85})["gain:lp"]
    assert (gain.topic, gain.paper) == ("loss of LP+C-mDP below LP", "13 to 17 %")
    assert (gain.ours, gain.interval, gain.judgement) == ("15.0% (15.0% to 15.0%)", "14.5% to 15.5%", "holds")
    for loss, uncertainty, verdict in ((1.0, 0.005, Verdict.FAILS), (0.9, 0.05, Verdict.UNDECIDED)):
        claims = _claims({**LOSSES, "lp_cmdp": loss}, uncertainty=uncertainty)
        assert claims["gain:lp"].verdict is verdict
    # LP is the best of the others here, so the least gain is the one over it.
    assert (claims["gain:least"].ours, claims["gain:least"].interval) == ("10.0%", "5.0% to 15.0%")


def test_a_mechanism_is_not_compared_with_itself() -> None:
    itself = _claims({**LOSSES, "lp_cmdp": LOSSES["lp_true_mb"]})["gain:lp_true_mb"]
    assert itself.measured is not None
    assert (itself.measured.interval, itself.verdict) == (None, Verdict.UNDECIDED)


def test_prediction_sizes_and_times_come_from_training(facts: Mapping[str, Facts]) -> None:
    claims = {claim.key: claim for claim in check_paper(made_up(LOSSES), facts)}
    assert claims["rejected:first"].verdict is Verdict.HOLDS  # from the study
    accuracy, recall = claims["prediction:accuracy"], claims["prediction:recall"]
    assert (accuracy.paper, accuracy.ours, accuracy.verdict) == ("0.9413", "0.9400", Verdict.HOLDS)
    assert recall.judgement == "cannot be decided: not measured in this run"
    assert claims["sizes:predicted"].ours == "80.0% (1: 30%, 2: 50%, 3: 20%)"
    assert claims["sizes:predicted"].verdict is Verdict.FAILS
    assert claims["time:train"].ours == "12.0 (700 epochs)"
    assert claims["time:predict"].ours == "0.0015 (98 %: below 0.0030)"
    assert claims["time:predict within 2 ms"].verdict is Verdict.HOLDS


def test_numbers_that_are_not_like_for_like_are_shown_and_not_judged() -> None:
    results = made_up(LOSSES, epsilons=(0.1,), loss_case="one destination")
    loss = next(claim for claim in check_paper(results, {}) if claim.key == "loss:one destination:lp")
    assert loss.ours == f"{LOSSES['lp'] * 0.1**-0.25:.3f}"
    assert loss.judgement.startswith("not judged: the paper's domain is")


def test_spread_and_times_are_over_zones() -> None:
    base = made_up(LOSSES, epsilons=(0.1,))
    zones = [base.with_columns(zone=pl.lit(zone, pl.Int32), value=pl.col("value") * (1 + zone)) for zone in (0, 1)]
    claims = {claim.key: claim for claim in check_paper(pl.concat([base, *zones]), {})}
    # 0.099 and twice as much: the mean is 1.5 times, the deviation half of it.
    assert claims["privacy:population:leakage_max:lp"].ours == f"{0.099 * 1.5:.3f} ±{1.96 * 0.099 / 2:.3f}"
    assert claims["time:solve"].ours == "12.00 (8.00 to 16.00)"


def test_trends_are_shares_of_methods() -> None:
    claims = _claims(LOSSES)
    assert claims["trend:budget"].verdict is Verdict.HOLDS
    assert claims["trend:loss"].verdict is Verdict.HOLDS
    worse = made_up(LOSSES, epsilons=(0.1, 0.25))
    later = (pl.col("method") == "lp") & (pl.col("epsilon") == 0.25) & (pl.col("measure") == "design_loss")
    worse = worse.with_columns(value=pl.when(later).then(99.0).otherwise("value"))
    trend = next(claim for claim in check_paper(worse, {}) if claim.key == "trend:loss")
    assert trend.measured is not None
    assert trend.measured.value == pytest.approx(1 - 1 / len(LOSSES))
    assert trend.verdict is Verdict.FAILS


def test_every_claim_has_a_row_a_place_and_a_number_or_a_reason(tmp_path: Path, facts: Mapping[str, Facts]) -> None:
    claims = check_paper(pl.concat([made_up(LOSSES, city=city) for city in CITIES]), facts)
    assert {claim.key for claim in claims} == {claim.key for claim in paper_claims()}
    write_claims(claims, tmp_path / "claims.csv")
    header, *rows = csv.reader((tmp_path / "claims.csv").read_text("utf-8").splitlines())
    assert header == [
        "claim", "where in the paper", "paper", "ours (Porto)", "ours (Rome)", "95 % interval", "verdict or why not",
    ]  # fmt: skip
    assert len(rows) == len({(claim.where, claim.topic) for claim in claims})
    assert all(len(row) == len(header) and row[1] and row[2] and row[6] for row in rows)
    accuracy = next(row for row in rows if row[0] == "prediction: accuracy")
    assert accuracy[2:5] == ["Porto: 0.9413; Rome: 0.9512", "0.9400", "–"]
    assert accuracy[6] == "Porto: holds; Rome: cannot be decided: not measured in this run"


def test_one_city_alone_has_a_table() -> None:
    rows = claims_table(judge({"gain:lp": Measured(0.15, Interval(0.14, 0.16))}, "rome"))
    assert rows[1] == (
        "loss of LP+C-mDP below LP", "section 5.3", "13 to 17 %", "15.0%", "14.0% to 16.0%", "holds",
    )  # fmt: skip


def test_a_city_that_the_paper_does_not_study_is_compared_with_both_of_its_cities() -> None:
    measured = {
        key: Measured(value, Interval(value, value))
        for key, value in {
            "rejected:first": 0.4,  # claimed of both
            "correlation:pearson:speed": -0.3,  # the same range in both
            "gain:least": 0.06,  # true of Porto
            "correlation:spearman:longitude": 0.3,  # true of neither
            "classifier:time": 0.01,  # the opposite in both
        }.items()
    }
    claims = {claim.key: claim for claim in judge(measured, "sanfrancisco")}
    assert {key: claim.verdict for key, claim in claims.items()} == {
        "rejected:first": Verdict.HOLDS,
        "correlation:pearson:speed": Verdict.HOLDS,
        "gain:least": Verdict.HOLDS,
        "correlation:spearman:longitude": Verdict.FAILS,
        "classifier:time": Verdict.NOT_JUDGED,
    }
    assert claims["gain:least"].paper == "Porto: 4.9 %; Rome: 15.6 %"
    assert claims["classifier:time"].judgement.startswith("not judged: the paper's cities differ")
    both = claims_table([*judge(measured, "porto"), *claims.values()])
    assert both[0][3:5] == ("ours (Porto)", "ours (San Francisco)")
    least = next(row for row in both if row[0].startswith("loss of LP+C-mDP below every"))
    assert least[2] == "4.9 %"  # what it says of the city that it studies


def test_other_cities_are_not_compared() -> None:
    assert check_paper(made_up(city="elsewhere"), {}) == []
    assert check_paper(pl.DataFrame(schema=RESULTS_SCHEMA), {}) == []


def test_a_broken_file_of_the_preparation_is_named(tmp_path: Path) -> None:
    (tmp_path / "porto").mkdir()
    (tmp_path / "porto" / "training.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"training\.json"):
        read_facts(tmp_path, ["porto"])


def test_methods_of_the_paper_are_known() -> None:
    gains = {claim.key.removeprefix("gain:") for claim in paper_claims() if claim.key.startswith("gain:")}
    assert gains - {"least"} <= set(METHODS)


def test_ranges_follow_the_papers_numbers() -> None:
    ranges = {(claim.city, claim.key): (claim.low, claim.high) for claim in paper_claims()}
    assert ranges["porto", "correlation:spearman:speed"] == (-1.0, -1e-9)
    assert ranges["porto", "correlation:spearman:time"] == (-0.2, 0.2)
    assert ranges["rome", "classifier:speed"] == (0.0, 0.05)
    assert ranges["rome", "classifier:time"][0] > 0.05
    assert ranges["rome", "density:with:100"] == pytest.approx((0.928, 1.0))
    assert paper_number("rome", "time:train") == 492.4
    assert paper_number("elsewhere", "time:train") is None


@pytest.mark.skipif(not SOURCE.exists(), reason="the paper is not there")
def test_every_number_stands_in_the_paper() -> None:
    text = SOURCE.read_text("utf-8").replace("{,}", ",").replace("$\\pm$ ", "±").replace("$\\pm$", "±")
    tables = ("prediction:", "correlation:", "classifier:", "loss:one", "privacy:", "data:trips", "time:train")
    printed = {claim.paper for claim in paper_claims() if claim.key.startswith(tables)}
    printed |= {claim.paper.removesuffix(" %") for claim in paper_claims() if claim.key.startswith("density:")}
    assert len(printed) > 100
    assert sorted(number for number in printed if number.replace(" ±", "±").lstrip("-") not in text) == []
