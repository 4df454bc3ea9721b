"""Algorithm 1 and the predictor on samples that are not about places, of processes whose blanket is known."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import polars as pl
import pytest

from geoblanket import DiscoveryOptions, SampleTable, discover_table, train_table
from geoblanket._arrays import Floats
from geoblanket.blanket.independence import find_test
from geoblanket.errors import ParameterError, UntestableError

WORDS = np.random.default_rng(99).normal(size=(6, 3))
"""Six words as vectors."""
AFTER_ONE, AFTER_TWO = 2 * np.random.default_rng(5).normal(size=(2, 6, 6))
"""How a word depends on the one before, and on the one before that."""


def numbers(coefficients: tuple[float, ...], count: int, seed: int, *, variables: int = 3) -> Floats:
    """An autoregressive series, the latest first: its blanket is as long as its coefficients. Shape (n, 1 + T, 1)."""
    rng = np.random.default_rng(seed)
    series = np.zeros((count, variables + 25))
    for t in range(len(coefficients), series.shape[1]):
        past = sum(weight * series[:, t - lag] for lag, weight in enumerate(coefficients, start=1))
        series[:, t] = past + rng.normal(size=count)
    return series[:, : -variables - 2 : -1, None]


def words(order: int, count: int, seed: int, *, variables: int = 3) -> Floats:
    """A text in which a word depends on one or two before it, as vectors. Shape (n, 1 + T, 3)."""
    rng = np.random.default_rng(seed)
    text = list(rng.integers(0, 6, (2, count)))
    for _ in range(variables + 15):
        taste = AFTER_ONE[text[-1]] + (AFTER_TWO[text[-2]] if order == 2 else 0.0)
        text.append((taste + rng.gumbel(size=(count, 6))).argmax(axis=1))
    vectors: Floats = WORDS[np.stack(text[: -variables - 2 : -1], axis=1)]
    return vectors


def table(samples: Floats, **options: Any) -> SampleTable:
    return SampleTable(samples[:, 0], list(samples[:, 1:].swapaxes(0, 1)), **options)


@pytest.mark.parametrize(
    ("samples", "order"),
    [
        (numbers((0.7,), 500, 1), 1),
        (numbers((0.5, 0.3), 500, 2), 2),
        (words(1, 500, 3), 1),
        (words(2, 500, 4), 2),
    ],
)
def test_the_blanket_of_a_known_process_is_found(samples: Floats, order: int) -> None:
    found = discover_table(table(samples), workers=1)
    assert found.blankets["order"].to_list() == [order]
    assert found.findings.filter(m=order)["status"].to_list() == ["tested"]


def rejections(kind: str, order: int, m: int, *, repeats: int, count: int) -> int:
    """How many of the hypotheses of order m are rejected at 5 %."""
    test, rejected = find_test("analytic"), 0
    for seed in range(repeats):
        samples = words(order, count, seed) if kind == "words" else numbers((0.5, 0.3)[:order], count, seed)
        x, y, z = table(samples).hypothesis(np.arange(count), m=m, length=0, block=False)
        with contextlib.suppress(UntestableError):  # neither a rejection nor the absence of one
            rejected += test(x, y, z, seed=seed).p_value <= 0.05
    return rejected


@pytest.mark.parametrize("kind", ["numbers", "words"])
@pytest.mark.parametrize("order", [1, 2])
def test_true_hypotheses_are_rejected_as_rarely_as_the_level_says(kind: str, order: int) -> None:
    """Of 60 at 5 %, more than 8 are rejected by chance once in 300 times."""
    assert rejections(kind, order, order, repeats=60, count=400) <= 8


@pytest.mark.parametrize("kind", ["numbers", "words"])
def test_false_hypotheses_are_rejected(kind: str) -> None:
    assert rejections(kind, 2, 1, repeats=20, count=400) >= 19


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["numbers", "words"])
def test_the_level_holds_in_large_samples(kind: str) -> None:
    """Of 400 at 5 %, more than 33 are rejected by chance once in 500 times."""
    assert rejections(kind, 2, 2, repeats=400, count=1500) <= 33


def by_age_and_kind(groups: int = 30, count: int = 250) -> SampleTable:
    """Busy people older than 12 have a memory of two, all others of one."""
    samples, labels = [], []
    for age in range(groups):
        for kind in ("calm", "busy"):
            memory = (0.5, 0.4) if kind == "busy" and age >= 12 else (0.6,)
            samples.append(numbers(memory, count, seed=2 * age + (kind == "busy")))
            labels += [(age, kind)] * count
    return table(np.concatenate(samples), groups=pl.DataFrame(labels, schema=["age", "kind"], orient="row"))


def test_a_predictor_learns_blankets_from_group_columns_of_any_name() -> None:
    found = discover_table(by_age_and_kind(), workers=1)
    assert found.findings.columns[:5] == ["group", "by", "age", "kind", "m"]
    assert found.findings["by"].unique().to_list() == ["age+kind"]
    predictor = train_table(found.findings)
    asked = pl.DataFrame({"kind": ["calm", "busy", "calm", "busy"], "age": [3, 3, 25, 25]})
    assert predictor.lengths(asked).tolist() == [1, 1, 1, 2]
    assert predictor.scores["network"].bce < predictor.scores["m alone"].bce
    with pytest.raises(ParameterError, match="No age"):
        predictor.lengths(asked.drop("age"))


def test_a_group_does_not_depend_on_the_order_of_the_samples_of_others() -> None:
    whole, shuffled = numbers((0.5, 0.3), 600, 1), np.random.default_rng(1).permutation(600)
    town = pl.DataFrame({"town": np.array(["a", "b", None])[np.arange(600) % 3].tolist()})
    found, again = (
        discover_table(table(whole[order], groups=town[order.tolist()]), workers=1, options=OPTIONS)
        for order in (np.arange(600), shuffled)
    )
    assert found.findings["available"].unique().to_list() == [200]
    assert found.blankets["town"].to_list() == [None, "a", "b"]
    np.testing.assert_allclose(found.findings["p_value"], again.findings["p_value"], rtol=1e-9)


OPTIONS = DiscoveryOptions(largest=2, stop_early=False)


def test_a_block_sees_a_dependence_that_skips_a_variable() -> None:
    rng = np.random.default_rng(7)
    context = rng.normal(size=(400, 4))
    secret = context[:, 0] + context[:, 3] + rng.normal(size=400)
    samples = SampleTable(secret, list(context.T))
    plain, block = (
        discover_table(samples, DiscoveryOptions(block=block), workers=1).blankets["order"].item()
        for block in (False, True)
    )
    assert plain == 1
    assert block == 3  # the largest that can be tested: V_4 is in no smaller blanket


@pytest.mark.parametrize(
    ("secret", "context", "groups", "message"),
    [
        ([1.0, 2.0], [[1.0, 2.0], [1.0]], None, "as many rows in each column.*columns of 1, 2 rows"),
        ([1.0, 2.0], [[1.0, 2.0]], None, r"two context variables or more.*Got 1 variable"),
        ([1.0, np.nan], [[1.0, 2.0]] * 2, None, "The secret must be finite"),
        ([1.0, 2.0], [[1.0, 2.0], [1.0, np.inf]], None, "V_2 must be finite"),
        ([1.0, 2.0], [[1.0, 2.0]] * 2, pl.DataFrame({"town": ["a"]}), "columns of 1, 2 rows"),
        ([1.0, 2.0], [[1.0, 2.0]] * 2, pl.DataFrame({"status": ["a", "b"]}), "must not be called status"),
    ],
)
def test_bad_tables_are_refused(secret: Any, context: Any, groups: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        SampleTable(secret, context, groups=groups)


def test_too_few_groups_to_learn_from() -> None:
    found = discover_table(by_age_and_kind(groups=3), workers=1)
    with pytest.raises(ParameterError, match="at least 10 groups"):
        train_table(found.findings)
