from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from geoblanket.blanket.findings import read_labels, split_by_group, write_findings
from geoblanket.blanket.models import NetworkOptions, fit_boosting, fit_network, fit_rate_by_order
from geoblanket.blanket.training import TrainResult, train
from geoblanket.errors import ParameterError
from tests.blanket.made_findings import ABOUT, LARGEST, drawn_by_lot, learnable, make_findings


@pytest.fixture(scope="module")
def learned() -> TrainResult:
    return train(make_findings(learnable, noise=0.02), about=ABOUT)


@pytest.fixture(scope="module")
def by_lot() -> TrainResult:
    return train(make_findings(drawn_by_lot(3)), about=ABOUT, network=NetworkOptions(patience=20))


@pytest.mark.parametrize("trained_on", ["all", "tested"])
@pytest.mark.parametrize("model", ["network", "boosting"])
def test_a_rule_that_can_be_learned_is_learned(learned: TrainResult, model: str, trained_on: str) -> None:
    ours, baseline = (learned.evaluation(name, trained_on=trained_on) for name in (model, "m alone"))
    assert ours.scores["tested"].accuracy > baseline.scores["tested"].accuracy + 0.15
    assert ours.scores["all"].accuracy > baseline.scores["all"].accuracy + 0.05
    assert ours.right_length is not None
    assert baseline.right_length is not None
    assert ours.right_length > baseline.right_length + 0.3
    assert ours.gain > 5 * ours.gain_error > 0
    assert ours.scores["tested"].calibration_error < 0.1


def test_the_predictor_knows_the_rule(learned: TrainResult) -> None:
    cells = [(hour, speed, region) for hour in range(24) for speed in range(0, 80, 5) for region in range(3)]
    right = [learned.predictor.length(hour=h, speed_mph=s, region=r) == learnable(h, s, r) for h, s, r in cells]
    assert np.mean(right) > 0.8


@pytest.mark.parametrize("trained_on", ["all", "tested"])
@pytest.mark.parametrize("model", ["network", "boosting"])
def test_what_cannot_be_learned_is_reported_so(by_lot: TrainResult, model: str, trained_on: str) -> None:
    ours, baseline = (by_lot.evaluation(name, trained_on=trained_on) for name in (model, "m alone"))
    assert ours.gain <= 2 * ours.gain_error + 1e-9
    assert ours.scores["tested"].accuracy < baseline.scores["tested"].accuracy + 0.06


def test_imputed_labels_flatter(by_lot: TrainResult) -> None:
    """They are all "fail to reject" and many, so that even chance looks good with them."""
    one = by_lot.evaluation("network")
    assert one.scores["all"].accuracy > one.scores["tested"].accuracy + 0.1
    assert one.scores["all"].n > 2 * one.scores["tested"].n


def test_the_baseline_has_no_gain_over_itself(learned: TrainResult) -> None:
    one = learned.evaluation("m alone")
    assert (one.gain, one.gain_error) == (0.0, 0.0)


def test_what_was_trained_on_is_counted(learned: TrainResult) -> None:
    assert learned.groups == {"train": 691, "validation": 231, "test": 230}
    assert sum(learned.hypotheses.values()) == 24 * 16 * 3 * LARGEST
    assert learned.hypotheses["undecided"] == 0
    assert 50 < learned.epochs <= learned.best_epoch + 50
    origin = learned.predictor.origin
    assert (origin.by, origin.time_zone, origin.interval_s) == ("hour+speed+region", "Europe/Lisbon", 30.0)
    assert (origin.groups, origin.labels, origin.seed) == (691, "all", 0)


def test_distributions_of_lengths_count_cells_and_samples(learned: TrainResult) -> None:
    assert sum(learned.length_by_cell.values()) == 24 * 24 * 3
    assert sum(learned.length_by_sample.values()) == 1000 * 24 * 16 * 3 == sum(learned.found_by_sample.values())
    cells, counts = np.unique(learned.predictor.table[:, :, :3], return_counts=True)
    assert learned.length_by_cell == dict(zip(cells.tolist(), counts.tolist(), strict=True))


def test_the_same_seed_gives_the_same_predictor_and_another_another() -> None:
    findings = make_findings(learnable, hours=6, speeds=8, noise=0.05)
    first, again, shuffled, other = (
        train(rows, about=ABOUT, seed=seed, network=NetworkOptions(most_epochs=5))
        for rows, seed in (
            (findings, 1),
            (findings, 1),
            (findings.sample(fraction=1, shuffle=True, seed=0), 1),
            (findings, 2),
        )
    )
    for one in (again, shuffled):
        assert all(
            (a == b).all() for a, b in zip(first.predictor.network.weights, one.predictor.network.weights, strict=True)
        )
        assert one.evaluations == first.evaluations
    assert other.evaluations != first.evaluations


def test_every_epoch_shuffles_anew() -> None:
    """With a number as its random state, scikit-learn's partial_fit would take the same batches in every epoch."""
    parts = split_by_group(read_labels(make_findings(learnable, hours=6, speeds=8, noise=0.1)), seed=0)
    fitted = fit_network(parts, largest=LARGEST, options=NetworkOptions(patience=5), seed=0)
    assert len(set(fitted.validation_loss)) == len(fitted.validation_loss)
    assert fitted.best_epoch == 1 + int(np.argmin(fitted.validation_loss))
    rows = fitted.encoding.rows(parts.validation.inputs)
    p = fitted.network.probabilities(rows)
    loss = -np.log(np.where(parts.validation.kept, p, 1 - p)).mean()
    assert loss == pytest.approx(min(fitted.validation_loss))


@pytest.mark.parametrize(("length", "answer"), [(1, 1), (99, LARGEST)])
def test_labels_of_one_class_only_give_one_answer(length: int, answer: int) -> None:
    result = train(make_findings(lambda *_: length, hours=4, speeds=4, impute=False), about=ABOUT)
    assert (result.predictor.table == answer).all()
    assert result.best_epoch == 0
    for one in result.evaluations:
        assert one.scores["all"].accuracy == 1.0
        assert one.right_length == 1.0
        assert one.scores["all"].bce < 0.05


def test_only_the_tested_labels_of_blankets_of_one_are_of_one_class() -> None:
    result = train(make_findings(lambda *_: 1, hours=4, speeds=4), about=ABOUT, labels="tested")
    assert (result.predictor.table == 1).all()


def test_one_region_and_groups_by_speed_alone() -> None:
    one_region = train(
        make_findings(learnable, regions=1, hours=12), about=ABOUT, network=NetworkOptions(most_epochs=5)
    ).predictor
    assert one_region.encoding.regions == (0,)
    assert one_region.length(hour=3, speed_mph=20, region=0) == one_region.length(hour=3, speed_mph=20, region=5)
    by_speed = train(
        make_findings(learnable, speeds=24, by="speed"),
        about={**ABOUT, "regions": None},
        network=NetworkOptions(most_epochs=5),
    ).predictor
    assert by_speed.origin.by == "speed"
    assert by_speed.length(speed_mph=30) == by_speed.length(speed_mph=30, hour=4, region=2)


def test_a_region_only_seen_outside_the_training_part_is_judged_as_any_other() -> None:
    findings = make_findings(learnable, hours=5, speeds=3, regions=1)
    groups = split_by_group(read_labels(findings), seed=0).test.group
    alone = pl.when(pl.col("group") == groups[0]).then(42).otherwise("region").cast(pl.Int32)
    result = train(findings.with_columns(region=alone), about=ABOUT, network=NetworkOptions(most_epochs=5))
    assert result.predictor.encoding.regions == (0,)


def test_where_nothing_helps_the_network_is_the_rate_of_each_order(by_lot: TrainResult) -> None:
    result = by_lot
    assert result.best_epoch == 0
    assert result.epochs >= 20
    network, alone = result.evaluation("network"), result.evaluation("m alone")
    assert network.scores["all"].bce == pytest.approx(alone.scores["all"].bce, abs=1e-12)
    assert network.gain == pytest.approx(0, abs=1e-12)
    assert len(np.unique(result.predictor.table)) == 1
    assert result.predictor.length_by_network(hour=1, speed_mph=1, region=1) == result.predictor.table[0, 0, 0]


def test_without_imputed_labels_both_kinds_are_the_same() -> None:
    result = train(
        make_findings(learnable, hours=4, speeds=5, impute=False),
        about=ABOUT,
        network=NetworkOptions(most_epochs=5),
        labels="tested",
    )
    both = [result.evaluation("network", trained_on=kind) for kind in ("all", "tested")]
    assert both[0].scores == both[1].scores
    assert both[0].scores["all"] == both[0].scores["tested"]
    assert result.hypotheses["imputed"] == 0


def test_a_file_of_findings_and_its_rows_give_the_same(tmp_path: Path) -> None:
    findings = make_findings(learnable, hours=4, speeds=6)
    write_findings(findings, tmp_path / "findings.parquet", about=ABOUT)
    from_file = train(tmp_path / "findings.parquet", network=NetworkOptions(most_epochs=5))
    from_rows = train(findings, about=ABOUT, network=NetworkOptions(most_epochs=5))
    assert from_file.evaluations == from_rows.evaluations
    assert from_file.predictor.origin == from_rows.predictor.origin


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"labels": "imputed"}, "'labels' must be one of all, tested"),
        ({"by": "region"}, "'by' must be one of the groupings"),
        ({"about": None}, "'about' must say how the findings were made; 'interval_s' is missing"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        train(make_findings(learnable, hours=3, speeds=4), **{"about": ABOUT, **options})


@pytest.mark.parametrize(
    "options",
    [{"learning_rate": 0.0}, {"learning_rate": float("nan")}, {"patience": 0}, {"most_epochs": 0}, {"hidden": (64, 0)}],
)
def test_a_network_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=f"'{next(iter(options))}'.* must be"):
        NetworkOptions(**options)


def test_too_few_groups_are_refused() -> None:
    with pytest.raises(ParameterError, match="at least 10 groups"):
        train(make_findings(learnable, by="region"), about=ABOUT)


def test_a_training_that_may_not_go_on_stops() -> None:
    result = train(make_findings(learnable, hours=3, speeds=8), about=ABOUT, network=NetworkOptions(most_epochs=7))
    assert result.epochs == 7


def test_an_interrupt_ends_training() -> None:
    """scikit-learn alone would swallow it and go on."""
    parts = split_by_group(read_labels(make_findings(learnable)), seed=0)
    options = NetworkOptions(learning_rate=1e-7, patience=10**6, most_epochs=10**6)
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    start = time.perf_counter()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        fit_network(parts, largest=LARGEST, options=options, seed=0)
    assert time.perf_counter() - start < 20


def test_the_rate_of_each_order_is_counted_with_one_of_each_label_more() -> None:
    parts = split_by_group(read_labels(make_findings(learnable, hours=6, speeds=8)), seed=0)
    predict = fit_rate_by_order(parts)
    for m in range(1, LARGEST + 1):
        chosen = parts.train.inputs.m == m
        expected = (parts.train.kept[chosen].sum() + 1) / (chosen.sum() + 2)
        assert predict(parts.train.inputs.where(chosen)) == pytest.approx(expected)


def test_boosting_takes_more_regions_than_it_can_tell_apart() -> None:
    parts = split_by_group(read_labels(make_findings(learnable, hours=1, speeds=1, regions=600)), seed=0)
    assert np.isfinite(fit_boosting(parts, seed=0)(parts.test.inputs)).all()
