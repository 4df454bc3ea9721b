from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.mechanism.metric import Metric, shortest_paths, weighted, whole_millionths
from geoblanket.mechanism.problem import NEVER_MM

LINE = [[0, 1, 5], [1, 0, 1], [5, 1, 0]]
"""A way of 5 from the first to the last, and one of 2 by the second."""


@pytest.mark.parametrize("p", [1, 2, 3.5, np.inf])
def test_norms_are_those_of_scipy_rounded_down(p: float) -> None:
    vectors = np.random.default_rng(1).normal(size=(30, 4)) * 100
    expected = cdist(vectors, vectors, "minkowski", p=p) * 1e6
    found = Metric.norm(vectors, p=p, unit="unit").whole
    assert ((expected - 1.001 <= found) & (found <= expected + 1e-6)).all()
    assert np.array_equal(found, found.T)
    assert not np.diagonal(found).any()


@pytest.mark.parametrize("p", [1, 2, 3])
def test_no_norm_is_above_the_true_distance(p: int) -> None:
    """Exactly: a root of whole numbers may be a whole number itself, where floats are off to either side."""
    vectors = np.random.default_rng(p).integers(0, 40, (40, 2)) / 8
    found = Metric.norm(vectors, p=p, unit="unit").whole
    for one, other in np.ndindex(found.shape):
        power = sum(abs(Fraction(a) - Fraction(b)) ** p for a, b in zip(vectors[one], vectors[other], strict=True))
        assert Fraction(int(found[one, other]), 10**6) ** p <= power < Fraction(int(found[one, other]) + 2, 10**6) ** p


def test_high_powers_of_large_numbers_do_not_overflow() -> None:
    assert Metric.norm([0.0, 1e6], p=200, unit="unit").whole[0, 1] == 10**12 - 1


def test_haversine_is_in_millimetres_and_never_above_the_true_distance() -> None:
    places = np.array([[411_500_000, -86_200_000], [411_500_123, -86_200_456], [413_000_000, -84_000_000]], np.int32)
    found = Metric.haversine(places).whole
    lat, lon = places.T * 1e-7
    expected = haversine_m(lat[:, None], lon[:, None], lat, lon) * 1000
    assert ((expected - 1.002 <= found) & (found <= expected)).all()
    assert Metric.haversine(places).unit == "km"
    antipodes = np.array([[0, 0], [0, 1_800_000_000]])
    assert Metric.haversine(antipodes).whole[0, 1] == 10**10


def test_a_matrix_is_taken_to_the_last_decimal() -> None:
    found = Metric.matrix([[0, 0.3, 2e-7], [0.3, 0, 0.3], [2e-7, 0.3, 0]], unit="bit").whole
    assert found.tolist() == [[0, 300_000, 0], [300_000, 0, 300_000], [0, 300_000, 0]]
    assert Metric.matrix([[0, np.inf], [np.inf, 0]], unit="bit").whole[0, 1] == NEVER_MM


def test_a_function_makes_a_metric_with_its_texts_as_labels() -> None:
    metric = Metric.of(["a", "abc", "ab"], lambda one, other: abs(len(one) - len(other)), unit="letter")
    assert metric.whole[0].tolist() == [0, 2_000_000, 1_000_000]
    assert metric.number("ab") == metric.number(2) == 2
    assert metric.between(np.array([1]), np.array([0, 2])).tolist() == [[2_000_000, 1_000_000]]
    assert repr(metric) == "<Metric: 3 secrets, in letter>"


@pytest.mark.parametrize(
    ("distance", "message"),
    [
        ([[0, 1], [2, 0]], "symmetric, 1 pair"),
        ([[0, -1], [-1, 0]], "2 negative"),
        ([[0, np.nan], [1, 0]], "1 value.* NaN"),
        ([[1, 1], [1, 0]], "0 on its diagonal, 1 value"),
        ([[0, 1, 2], [1, 0, 2]], "square"),
        ([[0, 1], [1]], "array of numbers"),
        ([[0, 1e10], [1e10, 0]], "above 1e"),
        (np.empty((0, 0)), "non-empty"),
        (LINE, "secrets 0 and 2 are 5 apart, and only 2 by way of 1.*shortest_paths"),
    ],
)
def test_what_is_not_a_metric_is_refused(distance: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Metric.matrix(distance, unit="bit")


def test_a_broken_triangle_is_told_by_labels_and_repaired_by_shortest_paths() -> None:
    with pytest.raises(ParameterError, match=r"'a' and 'c' are 5 apart, and only 2 by way of 'b'"):
        Metric.matrix(LINE, unit="bit", labels=["a", "b", "c"])
    assert Metric.matrix(shortest_paths(LINE), unit="bit").whole[0, 2] == 2_000_000


def test_shortest_paths_are_those_of_scipy() -> None:
    from scipy.sparse.csgraph import floyd_warshall

    rng = np.random.default_rng(3)
    distance = rng.uniform(0.1, 9, (25, 25))
    distance = np.minimum(distance, distance.T)
    np.fill_diagonal(distance, 0)
    distance[3, 7] = distance[7, 3] = np.inf
    found = shortest_paths(distance)
    np.testing.assert_allclose(found, floyd_warshall(distance), rtol=1e-12)
    Metric.matrix(found, unit="bit")


def test_rounding_alone_never_breaks_the_triangle_inequality() -> None:
    """Points on a line: every triangle is an equality, the hardest case for floats and for rounding."""
    line = np.random.default_rng(4).uniform(0, 100, 60)
    Metric.matrix(np.abs(line[:, None] - line), unit="bit")


@pytest.mark.parametrize(
    ("vectors", "options", "message"),
    [
        ([[0.0], [np.nan]], {}, "The vector of secret 1"),
        ([0.0, 1.0], {"p": 0.5}, "p must be 1 or more"),
        ([0.0, 1.0], {"labels": ["a", "a"]}, "each of 2 secrets once. Got 2, 1 of them different"),
        ([0.0, 1.0], {"labels": ["a"]}, "each of 2 secrets once"),
    ],
)
def test_bad_vectors_are_refused(vectors: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Metric.norm(vectors, unit="bit", **options)


def test_bad_coordinates_and_functions_are_refused() -> None:
    for shape in ((3, 3), (0, 2), (2,)):
        with pytest.raises(ParameterError, match=r"shape \(n, 2\)"):
            Metric.haversine(np.zeros(shape, np.int64))
    with pytest.raises(ParameterError, match="distance must be numbers"):
        Metric.of([1, 2], lambda *_: "far", unit="bit")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="NaN"):
        Metric.of([1, 2], lambda *_: None, unit="bit")  # type: ignore[arg-type]


def test_a_secret_that_is_not_there() -> None:
    metric = Metric.norm([0.0, 1.0], unit="bit", labels=["a", "b"])
    for asked in ("c", 2, -1):
        with pytest.raises(ParameterError, match="not among them"):
            metric.number(asked)


def test_weights_are_multiplied_exactly_and_rounded_down() -> None:
    rng = np.random.default_rng(5)
    distance = rng.integers(0, 10**11, 300)
    for weight in (0, 1, 250_000, 999_999, 10**6, 2_718_281):
        expected = [int(d) * weight // 10**6 for d in distance]
        assert weighted(distance, weight).tolist() == expected
    huge = np.array([10**15, NEVER_MM, 0])
    assert weighted(huge, 10**12).tolist() == [10**15, NEVER_MM, 0]
    assert weighted(huge, NEVER_MM).tolist() == [NEVER_MM, NEVER_MM, 0]
    assert weighted(huge, 0).tolist() == [0, 0, 0]


def test_whole_millionths_are_rounded_down() -> None:
    assert whole_millionths(np.array([-1.0, 0.9, 1.0, 5.5, np.inf])).tolist() == [0, 0, 1, 5, NEVER_MM]
