from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.errors import ParameterError
from geoblanket.mechanism.problem import INFINITE_ETA_MM, NEVER_MM, Problem
from tests.mechanism.linear_programs import make_problem, random_problem


def arguments(**changes: Any) -> dict[str, Any]:
    line = np.array([0.0, 1.0, 3.0])
    good: dict[str, Any] = {
        "loss": np.ones((3, 2)),
        "prior": np.array([0.5, 0.25, 0.25]),
        "distance_km": np.abs(line[:, None] - line),
        "epsilon": 2.0,
        "eta_km": 5.0,
    }
    return good | changes


def changed(name: str, index: Any, value: float) -> dict[str, Any]:
    result = arguments()
    array = result[name].copy()
    array[index] = value
    return result | {name: array}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (changed("loss", (1, 1), np.nan), "loss has 1 value.* NaN or infinite, the first at row 1, output 1"),
        (changed("loss", (2, 0), np.inf), "loss has 1 value.* NaN or infinite, the first at row 2, output 0"),
        (changed("loss", (0, 1), -1), "loss has 1 negative value.* row 0, output 1"),
        (changed("prior", 0, 0.6), "prior must sum to 1, got 1.1"),
        (changed("prior", 0, -0.5), "prior has 1 negative"),
        (changed("prior", 0, np.nan), "prior has 1 value.* NaN"),
        (changed("distance_km", (0, 1), 1.1), "symmetric, 1 pair.* rows 0 and 1"),
        (changed("distance_km", (0, 2), np.inf), "symmetric, 1 pair.* rows 0 and 2"),
        (changed("distance_km", (1, 1), 0.1), "0 on its diagonal, 1 value"),
        (changed("distance_km", (1, 2), -2), "1 negative"),
        (changed("distance_km", (1, 2), np.nan), "NaN"),
        (changed("distance_km", (1, 2), 1e10), "above 1e.09"),
        (arguments(distance_km=np.zeros((3, 2))), "square"),
        (arguments(distance_km=np.zeros((2, 2))), "as many rows, got 3, 3 and 2"),
        (arguments(prior=np.array([0.5, 0.5])), "as many rows, got 3, 2 and 3"),
        (arguments(loss=np.ones(3)), "loss must be .* 2 dimension"),
        (arguments(loss=np.ones((3, 0))), "loss must be a non-empty"),
        (arguments(loss=[["a"]]), "loss.* must be an array of numbers"),
        (arguments(epsilon=0.0), "epsilon must be from 1e-06 to 1000, got 0"),
        (arguments(epsilon=-1.0), "epsilon must be"),
        (arguments(epsilon=math.nan), "epsilon must be"),
        (arguments(epsilon=1e18), "epsilon must be"),
        (arguments(epsilon="much"), "epsilon.* must be a number"),
        (arguments(eta_km=-1.0), "eta_km must be"),
        (arguments(eta_km=math.nan), "eta_km must be"),
    ],
)
def test_bad_input_is_named(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Problem(**bad)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ParameterError) as caught:
        make_problem(loss=[[-1.0]], prior=[0.5], distance_km=[[1.0]], epsilon=0, eta_km=-1)
    for name in ("loss", "prior", "distance_km", "epsilon", "eta_km"):
        assert name in str(caught.value)


def test_whole_numbers_are_rounded_to_the_safe_side() -> None:
    problem = make_problem(
        loss=np.ones((2, 1)),
        prior=[0.5, 0.5],
        distance_km=[[0, 0.0000019], [0.0000019, 0]],
        epsilon=0.1234567,
        eta_km=0.0000011,
    )
    assert problem.epsilon_micro == 123_456
    assert problem.distance_mm.tolist() == [[0, 1], [1, 0]]
    assert problem.eta_mm == 2
    assert problem.constrained.tolist() == [[False, True], [True, False]]


@given(st.integers(1, 1_000_000_000))
def test_an_epsilon_written_in_millionths_is_kept(micro: int) -> None:
    problem = make_problem(loss=[[1.0]], prior=[1.0], distance_km=[[0.0]], epsilon=float(f"{micro}e-6"))
    assert problem.epsilon_micro == micro


@given(st.integers(0, 10**12))
def test_a_distance_written_in_millimetres_is_kept_within_one(millimetres: int) -> None:
    kilometres = float(f"{millimetres}e-6")
    problem = make_problem(
        loss=np.ones((2, 1)), prior=[0.5, 0.5], distance_km=[[0, kilometres], [kilometres, 0]], epsilon=1.0
    )
    assert millimetres - 1 <= problem.distance_mm[0, 1] <= millimetres


@given(st.integers(0, 10**12))
def test_millimetres_are_kept_as_they_are(millimetres: int) -> None:
    given_mm = np.array([[0, millimetres, NEVER_MM], [millimetres, 0, NEVER_MM], [NEVER_MM, NEVER_MM, 0]])
    problem = Problem.in_millimetres(loss=np.ones((3, 1)), prior=np.full(3, 1 / 3), distance_mm=given_mm, epsilon=1.0)
    assert (problem.distance_mm == given_mm).all()
    assert (
        problem.merged().distance_mm == given_mm[-problem.merged().row_count :, -problem.merged().row_count :]
    ).all()
    assert problem.distance_km[0].tolist() == [0.0, millimetres / 1e6, math.inf]
    with pytest.raises(ValueError, match="read-only"):
        problem.distance_mm[0] = 0


@pytest.mark.parametrize(
    ("distance_mm", "message"),
    [
        (np.array([[0.0, 1.0], [1.0, 0.0]]), "whole numbers"),
        (np.array([[0, 1], [2, 0]]), "symmetric, 1 pair"),
        (np.array([[0, -1], [-1, 0]]), "2 negative"),
        (np.array([[1, 1], [1, 0]]), "0 on its diagonal"),
        (np.array([[0, 10**16], [10**16, 0]]), "above 1e.09"),
    ],
)
def test_millimetres_that_are_no_distances_are_refused(distance_mm: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Problem.in_millimetres(loss=np.ones((2, 1)), prior=np.full(2, 0.5), distance_mm=distance_mm, epsilon=1.0)


def test_infinite_distance_is_never_constrained_and_infinite_eta_constrains_all_others() -> None:
    distance = np.array([[0, 1e9, np.inf], [1e9, 0, np.inf], [np.inf, np.inf, 0]])
    problem = Problem(**arguments(distance_km=distance, eta_km=math.inf))
    assert problem.eta_mm == INFINITE_ETA_MM
    assert problem.distance_mm[0, 2] == NEVER_MM
    assert problem.constrained.tolist() == [[False, True, False], [True, False, False], [False, False, False]]
    assert problem.component.tolist() == [0, 0, 1]
    assert problem.log_bound[0].tolist() == [0.0, 2e9, math.inf]


def test_slight_asymmetry_takes_the_smaller_distance() -> None:
    problem = Problem(**changed("distance_km", (0, 1), 1.0 - 5e-10))
    assert problem.distance_mm[0, 1] == problem.distance_mm[1, 0] == 999_999


def test_prior_is_normalised_within_the_tolerance_only() -> None:
    problem = Problem(**changed("prior", 0, 0.5 + 5e-10))
    assert abs(problem.prior.sum() - 1) < 1e-15


def test_arrays_are_copies_and_read_only() -> None:
    given_arguments = arguments()
    problem = Problem(**given_arguments)
    given_arguments["loss"][0, 0] = 9
    assert problem.loss[0, 0] == 1
    for array in (problem.loss, problem.prior, problem.distance_km, problem.distance_mm, problem.constrained):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.epsilon = 3.0  # type: ignore[misc]  # what is tested


def test_rows_at_distance_zero_are_merged_transitively() -> None:
    # Rows 0, 2 and 3 are a chain of zeros although 0 and 3 are 0.6 mm apart; the rest is far away.
    line = np.array([0.0, 5e-3, 0.6e-6, 1.2e-6, 9.0005e-3])
    problem = make_problem(
        loss=np.arange(10.0).reshape(5, 2),
        prior=[0.1, 0.3, 0.2, 0.1, 0.3],
        distance_km=np.abs(line[:, None] - line),
        epsilon=1.0,
    )
    assert problem.row_class.tolist() == [0, 1, 0, 0, 2]
    merged = problem.merged()
    assert merged.prior == pytest.approx([0.4, 0.3, 0.3])
    assert merged.loss[0] == pytest.approx(
        (0.1 * problem.loss[0] + 0.2 * problem.loss[2] + 0.1 * problem.loss[3]) / 0.4
    )
    assert merged.distance_mm.tolist() == [[0, 4998, 8999], [4998, 0, 4000], [8999, 4000, 0]]
    table = np.random.default_rng(0).random((3, 2))
    assert merged.prior @ (table * merged.loss).sum(1) == pytest.approx(
        problem.prior @ (table[problem.row_class] * problem.loss).sum(1)
    )


def test_merging_with_no_prior_takes_the_plain_mean() -> None:
    problem = make_problem(
        loss=[[1.0], [3.0], [7.0]], prior=[0, 0, 1], distance_km=[[0, 0, 1], [0, 0, 1], [1, 1, 0]], epsilon=1.0
    )
    assert problem.merged().loss.tolist() == [[2.0], [7.0]]


def test_nothing_to_merge_returns_itself() -> None:
    problem = random_problem(0, epsilon=1.0)
    assert problem.merged() is problem


def test_one_row_is_a_problem() -> None:
    problem = make_problem(loss=[[1.0, 2.0]], prior=[1.0], distance_km=[[0.0]], epsilon=1.0)
    assert problem.merged() is problem
    assert not problem.constrained.any()
