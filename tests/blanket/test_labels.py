from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.blanket.findings import LEAST_GROUPS, Labels, choose_grouping, read_labels, split_by_group
from geoblanket.blanket.predictor import PredictorInputs
from geoblanket.errors import InputError, ParameterError
from tests.blanket.made_findings import LARGEST, learnable, make_findings


def test_labels_are_the_decisions_and_say_which_were_tested() -> None:
    findings = make_findings(learnable, hours=1, speeds=5, regions=2)
    labels = read_labels(findings)
    assert len(labels) == 10 * LARGEST
    for group, hour, speed, region, m, kept, tested in zip(
        labels.group, labels.inputs.hour, labels.inputs.speed_mph, labels.inputs.region, labels.inputs.m, labels.kept,
        labels.tested, strict=True,
    ):  # fmt: skip
        length = learnable(hour, speed, region)
        assert kept == (m >= length), group
        assert tested == (m <= length), group


@pytest.mark.parametrize("status", ["too_few", "unresolved"])
def test_hypotheses_without_a_decision_are_left_out(status: str) -> None:
    findings = make_findings(learnable, hours=2, speeds=3, regions=1)
    poor = (pl.col("group") == 4) & (pl.col("m") > 1)
    findings = findings.with_columns(
        status=pl.when(poor).then(pl.lit(status)).otherwise("status"), rejected=pl.when(~poor).then("rejected")
    )
    labels = read_labels(findings)
    assert len(labels) == 6 * LARGEST - 4
    assert labels.inputs.m[labels.group == 4].tolist() == [1]


def test_features_that_do_not_define_groups_are_minus_one() -> None:
    labels = read_labels(make_findings(learnable, by="speed"))
    assert set(labels.inputs.hour) == set(labels.inputs.region) == {-1}
    assert len(set(labels.inputs.speed_mph)) == 16


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("hour", 24, "'hour' must be from 0 to 23"),
        ("speed_mph", 120, "'speed_mph' must be from 0 to 115"),
        ("speed_mph", -5, "'speed_mph'"),
        ("region", -1, "'region'"),
        ("m", 0, "'m'"),
        ("m", 100, "'m'"),
    ],
)
def test_findings_out_of_range_are_refused(column: str, value: int, words: str) -> None:
    findings = make_findings(learnable, hours=2, speeds=2, regions=2)
    last = (pl.col("group") == 7) & (pl.col("m") == LARGEST)
    changed = pl.when(last).then(pl.lit(value)).otherwise(column).cast(findings.schema[column]).alias(column)
    with pytest.raises(InputError, match=words):
        read_labels(findings.with_columns(changed))


def test_the_finest_grouping_is_used_unless_another_is_asked_for() -> None:
    fine, coarse = (make_findings(learnable, hours=4, by=by) for by in ("hour+speed+region", "speed"))
    both = pl.concat([fine, coarse])
    assert choose_grouping(both).equals(fine)
    assert choose_grouping(both, "speed").equals(coarse)
    with pytest.raises(ParameterError, match="must be one of the groupings of the findings: hour"):
        choose_grouping(both, "region")
    hours = make_findings(learnable, by="hour")
    with pytest.raises(ParameterError, match="There are: hour, speed"):
        choose_grouping(pl.concat([coarse, hours]))
    with pytest.raises(ParameterError, match="there are none"):
        choose_grouping(fine[:0])


def made_labels(groups: list[int]) -> Labels:
    group = np.repeat(np.array(groups, np.int64), 3)
    zeros = np.zeros_like(group)
    inputs = PredictorInputs(zeros, zeros, zeros, np.tile(np.arange(1, 4), len(groups)))
    return Labels(group, inputs, zeros == 0, zeros == 0)


@given(
    groups=st.lists(st.integers(0, 10**6), min_size=LEAST_GROUPS, max_size=80, unique=True),
    seed=st.integers(0, 2**32 - 1),
)
def test_parts_never_share_a_group_and_leave_none_out(groups: list[int], seed: int) -> None:
    parts = split_by_group(made_labels(groups), seed=seed)
    train, validation, test = (set(part.group.tolist()) for part in parts)
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert train | validation | test == set(groups)
    assert sum(len(part) for part in parts) == 3 * len(groups)
    for part, share in ((train, 0.6), (validation, 0.2), (test, 0.2)):
        assert abs(len(part) - share * len(groups)) <= 1
        assert part
    again = split_by_group(made_labels(groups), seed=seed)
    assert (again.test.group == parts.test.group).all()


def test_another_seed_gives_other_parts() -> None:
    labels = made_labels(list(range(50)))
    assert set(split_by_group(labels, seed=0).test.group) != set(split_by_group(labels, seed=1).test.group)


def test_too_few_groups_to_split_are_refused() -> None:
    with pytest.raises(ParameterError, match="at least 10 groups with a decision, and the findings have 9"):
        split_by_group(made_labels(list(range(9))), seed=0)
