"""What every test must do with samples that are odd, degenerate or wrong."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.processes import simulate_windows
from geoblanket._arrays import Floats
from geoblanket.blanket.independence import TESTS, CIResult, find_test, lagged, partial_r_squared
from geoblanket.errors import ParameterError, UntestableError

Sample = tuple[Floats, Floats, Floats]


def sample(n: int = 120, m: int = 2, order: int = 2, **options: float) -> Sample:
    return lagged(simulate_windows(order, n, spacing_m=options.get("spacing_m", 0.0), seed=1), m)


def check(result: CIResult, n: int) -> None:
    assert 0 <= result.p_value <= 1
    assert np.isfinite([result.statistic, result.effect_size]).all()
    assert result.statistic >= 0
    assert result.effect_size <= 1
    assert result.n == n


def grid_with_stops() -> Sample:
    return lagged(simulate_windows(2, 300, spacing_m=400, stops=0.38, seed=2), 2)


def almost_always_still() -> Sample:
    return lagged(simulate_windows(2, 300, stops=0.99, seed=3), 2)


def two_places() -> Sample:
    windows = 500.0 * np.random.default_rng(4).integers(0, 2, (200, 4, 1)) * np.array([1.0, 0.0])
    return lagged(windows, 2)


def duplicated_rows() -> Sample:
    x, y, z = sample(60)
    return np.repeat(x, 5, axis=0), np.repeat(y, 5, axis=0), np.repeat(z, 5, axis=0)


def constant_z() -> Sample:
    x, y, z = sample()
    return x, y, np.full_like(z, 7.0)


def constant_position() -> Sample:
    x, y, z = sample()
    z[:, :2] = 7.0
    return x, y, z


def one_row_of_x_differs() -> Sample:
    x, y, z = sample()
    x[:] = 0
    x[5, 1] = 300
    return x, y, z


def x_is_said_by_z() -> Sample:
    _, y, z = sample()
    return 2 * z[:, :2] - z[:, 2:4], y, z


def x_is_y() -> Sample:
    x, _, z = sample()
    return x, x.copy(), z


def equal_columns_of_z() -> Sample:
    x, y, z = sample()
    return x, y, np.column_stack([z, z])


def one_column_each() -> Sample:
    x, y, z = sample()
    return x[:, :1], y[:, 1:], z[:, :1]


def a_wide_y() -> Sample:
    return lagged(simulate_windows(2, 300, length=7, seed=5), 1, block=True)


def far_from_the_origin() -> Sample:
    x, y, z = sample()
    return x, y, z + 1e8


ODD = [
    grid_with_stops,
    almost_always_still,
    two_places,
    duplicated_rows,
    constant_z,
    constant_position,
    one_row_of_x_differs,
    x_is_said_by_z,
    x_is_y,
    equal_columns_of_z,
    one_column_each,
    a_wide_y,
    far_from_the_origin,
]


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__)
def test_odd_samples_have_a_p_value(name: str, make: Callable[[], Sample]) -> None:
    x, y, z = make()
    copies = [part.copy() for part in (x, y, z)]
    if name == "analytic" and make is duplicated_rows:
        # Rows that are not independent look like a field that no regression can follow.
        with pytest.raises(UntestableError, match="may be what regressions on z did not follow") as caught:
            find_test(name)(x, y, z, seed=0)
        assert caught.value.reason == "unresolved"
    else:
        check(find_test(name)(x, y, z, seed=0), len(x))
    for part, copy in zip((x, y, z), copies, strict=True):
        assert np.array_equal(part, copy)


@pytest.mark.parametrize("name", TESTS)
def test_the_plainest_dependence_is_found_and_none_where_z_says_all(name: str) -> None:
    test = find_test(name)
    same, said = test(*x_is_y(), seed=0), test(*x_is_said_by_z(), seed=0)
    assert same.p_value < 1e-3
    assert same.effect_size > 0.9
    assert said.p_value > 0.05


@pytest.mark.parametrize("name", TESTS)
def test_the_same_rows_and_seed_give_the_same_result(name: str) -> None:
    test = find_test(name)
    assert test(*sample(), seed=3) == test(*sample(), seed=3)


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", [0, 1, 2])
def test_numbers_must_be_finite(name: str, value: float, part: int) -> None:
    parts = [array.copy() for array in sample()]
    parts[part][17, 0] = value
    with pytest.raises(ParameterError, match=f"{'xyz'[part]} holds a number that is missing or infinite"):
        find_test(name)(*parts, seed=0)


@pytest.mark.parametrize("name", TESTS)
def test_shapes_must_agree(name: str) -> None:
    x, y, z = sample()
    for wrong in ((x[:-1], y, z), (x, y[:, 0], z), (x, y, z[:, :0])):
        with pytest.raises(ParameterError, match="same number of rows"):
            find_test(name)(*wrong, seed=0)


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("rows", [0, 1, 49])
def test_too_few_rows_are_told(name: str, rows: int) -> None:
    x, y, z = (part[:rows] for part in sample())
    with pytest.raises(UntestableError, match=f"needs 50 rows or more. Got {rows} instead") as caught:
        find_test(name)(x, y, z, seed=0)
    assert caught.value.reason == "too few"


def test_more_columns_need_more_rows() -> None:
    x, y, z = sample(60, m=4)
    with pytest.raises(UntestableError, match="needs 80 rows or more"):
        find_test("analytic")(x, y, np.column_stack([z, z[:, :4]]), seed=0)


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("part", [0, 1])
def test_a_constant_is_told_without_its_value(name: str, part: int) -> None:
    parts = [array.copy() for array in sample()]
    parts[part][:] = 1234.5
    with pytest.raises(UntestableError, match=f"{'xy'[part]} is the same in all 120 rows") as caught:
        find_test(name)(*parts, seed=0)
    assert caught.value.reason == "constant"
    assert "1234" not in str(caught.value)


def test_the_error_survives_a_worker_process() -> None:
    error = pickle.loads(pickle.dumps(UntestableError("Too few.", "too few")))  # noqa: S301
    assert isinstance(error, UntestableError)
    assert (str(error), error.reason) == ("Too few.", "too few")


def test_an_unknown_test_is_told() -> None:
    with pytest.raises(ParameterError, match=r"one of analytic, scetbon\. Got 'guess' instead"):
        find_test("guess")


def test_the_partial_r_squared_is_right_on_average() -> None:
    rng = np.random.default_rng(6)
    truth = 0.2
    found = []
    for _ in range(400):
        y = rng.normal(size=(100, 4))
        x = np.sqrt(truth) * y[:, :2] + np.sqrt(1 - truth) * rng.normal(size=(100, 2))
        found.append((partial_r_squared(x, y), partial_r_squared(x, rng.normal(size=(100, 4)))))
    error = 4 * np.std(found, axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(np.mean(found, axis=0) - (truth, 0)) < error)
