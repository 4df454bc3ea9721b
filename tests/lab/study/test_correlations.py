from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from geoblanket.lab.study.group_statistics import (
    MEASURES,
    circular_linear,
    correlate,
    correlation_table,
    shuffle_within,
    size_strata,
)
from tests.lab.study.groups import by_chance, by_size, by_speed, made_up


@pytest.fixture
def sample() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    given = rng.normal(size=80)
    return given + rng.normal(size=80), np.round(0.7 * given + rng.normal(size=80), 1), given


def test_raw_correlations_are_those_of_scipy(sample: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    x, y, _ = sample
    for measure, expected in (
        ("pearson", stats.pearsonr(x, y)),
        ("spearman", stats.spearmanr(x, y)),
        ("kendall", stats.kendalltau(x, y)),
    ):
        found = correlate(x, y, measure=measure)
        assert found.coefficient == pytest.approx(expected.statistic, abs=1e-12)
        assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)


def test_partial_correlations_by_hand(sample: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """The textbook formula (r_xy - r_xz r_yz) / √((1 - r_xz²)(1 - r_yz²)) holds for all three measures."""
    x, y, z = sample
    for measure in MEASURES:
        xy, xz, yz = (correlate(a, b, measure=measure).coefficient or 0 for a, b in ((x, y), (x, z), (y, z)))
        expected = (xy - xz * yz) / np.sqrt((1 - xz**2) * (1 - yz**2))
        found = correlate(x, y, measure=measure, given=z)
        assert found.coefficient == pytest.approx(expected, abs=1e-12)
        if measure == "kendall":
            assert found.p_value is None
        else:
            t = expected * np.sqrt((len(x) - 3) / (1 - expected**2))
            assert found.p_value == pytest.approx(2 * stats.t.sf(abs(t), len(x) - 3), rel=1e-9)


def test_partial_correlation_has_the_right_level() -> None:
    """X and y depend on z alone: the raw test always sees them as dependent, the partial one in 5 % of cases."""
    rng = np.random.default_rng(5)
    raw = partial = 0
    for _ in range(400):
        z = rng.normal(size=60)
        x, y = z + 0.5 * rng.normal(size=60), z + 0.5 * rng.normal(size=60)
        raw += correlate(x, y, measure="spearman").p_value <= 0.05  # type: ignore[operator]
        partial += correlate(x, y, measure="pearson", given=z).p_value <= 0.05  # type: ignore[operator]
    assert raw == 400
    assert stats.binom.ppf(0.001, 400, 0.05) <= partial <= stats.binom.ppf(0.999, 400, 0.05)


def test_circular_correlation_is_mardias() -> None:
    rng = np.random.default_rng(2)
    hour, y = rng.integers(0, 24, 100).astype(float), rng.normal(size=100)
    turn = 2 * np.pi * hour / 24
    xc, xs, cs = (
        stats.pearsonr(*pair).statistic for pair in ((y, np.cos(turn)), (y, np.sin(turn)), (np.cos(turn), np.sin(turn)))
    )
    expected = np.sqrt((xc**2 + xs**2 - 2 * xc * xs * cs) / (1 - cs**2))
    assert circular_linear(hour, y).coefficient == pytest.approx(expected, abs=1e-12)


def test_a_daily_rhythm_is_seen_by_the_circular_measure_alone() -> None:
    hour = np.repeat(np.arange(24.0), 3)
    y = np.cos(2 * np.pi * hour / 24) + 0.1 * np.random.default_rng(0).normal(size=len(hour))
    linear, circular = correlate(hour, y, measure="pearson"), circular_linear(hour, y)
    assert abs(linear.coefficient or 1) < 0.15
    assert circular.coefficient is not None
    assert circular.coefficient > 0.98
    assert circular.p_value is not None
    assert circular.p_value < 1e-10


@given(shift=st.integers(0, 23))
def test_the_circular_measure_does_not_care_where_the_day_begins(shift: int) -> None:
    rng = np.random.default_rng(7)
    hour, y = rng.integers(0, 24, 40).astype(float), rng.normal(size=40)
    there, here = circular_linear((hour + shift) % 24, y), circular_linear(hour, y)
    assert there.coefficient == pytest.approx(here.coefficient, abs=1e-9)


def test_size_looks_like_speed_until_it_is_given() -> None:
    """P-values follow the number of samples, which follows speed: only the raw correlation blames speed."""
    table = correlation_table(made_up(by_size, seed=3))
    row = table.row(
        by_predicate=pl.col("m").is_null()
        & (pl.col("feature") == "speed")
        & (pl.col("measure") == "spearman")
        & (pl.col("outcome") == "p_value"),
        named=True,
    )
    assert row["coefficient"] < -0.7
    assert row["p_value"] < 1e-8
    assert abs(row["given_n"]) < 0.25
    assert row["groups"] == 60


def test_speed_is_seen_through_size() -> None:
    table = correlation_table(made_up(by_speed)).filter(
        (pl.col("feature") == "speed") & (pl.col("outcome") == "p_value") & (pl.col("measure") == "spearman")
    )
    assert table.height == 3
    assert (table["coefficient"] < -0.9).all()
    assert (table["given_n"] < -0.2).all()


def test_the_table_has_every_feature_and_measure() -> None:
    table = correlation_table(made_up(by_chance))
    assert set(table["feature"]) == {"speed", "longitude", "latitude", "time"}
    assert set(table.filter(pl.col("feature") == "time")["measure"]) == {*MEASURES, "circular"}
    assert table["coefficient"].is_between(-1, 1).all()
    assert table["p_value"].is_between(0, 1).all()


def test_a_constant_feature_or_few_groups_give_nothing() -> None:
    some = made_up(by_chance, hours=1)
    table = correlation_table(some).filter(pl.col("feature") == "time")
    assert table["coefficient"].null_count() == table.height
    assert correlation_table(some.head(4))["coefficient"].null_count() > 0
    assert correlation_table(some.clear()).is_empty()


@given(seed=st.integers(0, 1000), size=st.integers(1, 40))
def test_shuffles_stay_within_strata(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    stratum = size_strata(rng.normal(size=size))
    order = shuffle_within(stratum, rng)
    assert sorted(order) == list(range(size))
    assert (stratum[order] == stratum).all()
