from __future__ import annotations

import dataclasses
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from geoblanket.errors import GuaranteeViolation, MechanismError, MismatchError, ParameterError
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import INFINITE_ETA_MM, Problem
from geoblanket.mechanism.verifier import DENOMINATOR
from tests.mechanism.linear_programs import random_problem


def some_mechanism(eta_km: float = np.inf, seed: int = 0) -> tuple[Mechanism, Problem]:
    problem = random_problem(seed, epsilon=2.0, eta_km=eta_km)
    return Mechanism.from_probabilities(np.exp(-problem.loss), problem), problem


def test_a_mechanism_carries_what_was_verified() -> None:
    mechanism, problem = some_mechanism(eta_km=1.5)
    assert mechanism.epsilon_micro == mechanism.certificate.epsilon_micro == 2_000_000
    assert (mechanism.epsilon, mechanism.eta_km, mechanism.eta_mm) == (2.0, 1.5, 1_500_000)
    assert (mechanism.row_count, mechanism.output_count) == (6, 5)
    assert DENOMINATOR == 2**62
    assert np.array_equal(mechanism.distance_mm, problem.distance_mm)
    assert mechanism.probabilities.sum(axis=1) == pytest.approx(np.ones(6), abs=1e-15)
    assert some_mechanism()[0].eta_km == np.inf
    assert repr(mechanism) == "<Mechanism: 6 rows, 5 outputs, ε = 2 per km, η = 1.5 km, verified exactly>"


def test_there_is_no_way_around_the_verifier() -> None:
    mechanism, problem = some_mechanism()
    with pytest.raises(TypeError, match=r"Mechanism\.verified"):
        Mechanism()
    weights = mechanism.weights.copy()
    weights[0] = np.roll(weights[0], 1)
    with pytest.raises(GuaranteeViolation):
        Mechanism.verified(weights, distance_mm=problem.distance_mm, epsilon_micro=100_000, eta_mm=INFINITE_ETA_MM)


def test_what_is_not_int64_is_refused() -> None:
    mechanism, problem = some_mechanism()
    weights: Any = mechanism.probabilities
    with pytest.raises(MechanismError, match="int64"):
        Mechanism.verified(weights, distance_mm=problem.distance_mm, epsilon_micro=1, eta_mm=1)


def test_a_mechanism_cannot_be_changed() -> None:
    mechanism, problem = some_mechanism()
    weights = mechanism.weights.copy()
    again = Mechanism.verified(
        weights, distance_mm=problem.distance_mm, epsilon_micro=2_000_000, eta_mm=INFINITE_ETA_MM
    )
    weights[:] = 0
    assert np.array_equal(again.weights, mechanism.weights)
    for array in (again.weights, again.distance_mm):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.setflags(write=True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        again.epsilon_micro = 1  # type: ignore[misc]  # what is tested


def test_a_pickled_mechanism_is_verified_again() -> None:
    mechanism, _ = some_mechanism(eta_km=1.0)
    octets = pickle.dumps(mechanism)
    copy = pickle.loads(octets)  # noqa: S301 - our own bytes
    assert copy.certificate == mechanism.certificate
    assert np.array_equal(copy.weights, mechanism.weights)
    weights = mechanism.weights.tobytes()
    planted = np.frombuffer(weights, np.int64).copy()
    planted[0] += 1
    assert weights in octets
    with pytest.raises(GuaranteeViolation, match="Row 0 sums to"):
        pickle.loads(octets.replace(weights, planted.tobytes()))  # noqa: S301 - our own bytes


def test_a_mechanism_opened_for_release_promises_nothing_it_cannot_show() -> None:
    mechanism = some_mechanism()[0]
    known = Mechanism.known(mechanism.weights, epsilon_micro=mechanism.epsilon_micro, eta_mm=mechanism.eta_mm)
    assert 0 <= known.sample(0) < known.output_count
    for read in (lambda: known.certificate, lambda: known.guarantee, lambda: pickle.dumps(known)):
        with pytest.raises(MechanismError, match="load_bundle"):
            read()


def test_the_guarantee_says_what_holds_and_what_does_not() -> None:
    words = some_mechanism()[0].guarantee
    assert "with ε = 2 per km" in words
    assert "Verified exactly, in integers, for all 15 such pairs of 6 rows" in words
    assert "repeated reports, whose ε add up" in words
    assert "snapped" in words
    assert "η" not in words
    assert "parts" not in words


def test_the_guarantee_of_a_limited_mechanism_names_the_limit_and_the_parts() -> None:
    line = np.array([0.0, 1.0, 2.0, 30.0])
    problem = Problem(
        loss=np.abs(line[:, None] - line),
        prior=np.full(4, 0.25),
        distance_km=np.abs(line[:, None] - line),
        epsilon=0.5,
        eta_km=1.25,
    )
    words = Mechanism.from_probabilities(np.eye(4), problem).guarantee
    assert "at distance d (d ≤ η = 1.25 km) by at most a factor of e^(ε·d), with ε = 0.5 per km" in words
    assert "for all 2 such pairs" in words
    assert "the 4 pairs further apart than η" in words
    assert "2 parts, and between two parts nothing is promised" in words


@pytest.mark.parametrize("seed", range(20))
def test_expected_loss_is_an_upper_bound_by_a_hair(seed: int) -> None:
    mechanism, problem = some_mechanism(seed=seed)
    truth = sum(
        Fraction(prior) * Fraction(weight, 2**62) * Fraction(loss)
        for prior, weights, losses in zip(
            problem.prior.tolist(), mechanism.weights.tolist(), problem.loss.tolist(), strict=True
        )
        for weight, loss in zip(weights, losses, strict=True)
    )
    found = Fraction(mechanism.expected_loss(problem))
    assert truth <= found <= truth * (1 + Fraction(2 * (6 + 5 + 8), 2**53))


def test_expected_loss_of_another_shape_is_refused() -> None:
    mechanism, _ = some_mechanism()
    with pytest.raises(MismatchError, match=r"\(6, 5\) .* \(4, 5\)"):
        mechanism.expected_loss(random_problem(0, epsilon=1.0, rows=4))


def test_samples_come_from_the_row_that_was_asked_for() -> None:
    line = np.array([0.0, 50.0, 99.0])
    problem = Problem(
        loss=np.ones((3, 3)), prior=np.full(3, 1 / 3), distance_km=np.abs(line[:, None] - line), epsilon=1.0, eta_km=1.0
    )
    mechanism = Mechanism.from_probabilities(np.eye(3)[[2, 0, 1]], problem)
    # A few parts in a thousand million go to output 0 from every row.
    assert [mechanism.sample(row) for row in (0, 1, 2)] == [2, 0, 1]
    assert mechanism.sample_many([2, 2, 0, 1]).tolist() == [1, 1, 2, 0]
    assert mechanism.sample_many(np.array([1], dtype=np.uint8)).dtype == np.int64
    assert mechanism.sample_many(np.array([], dtype=np.int64)).shape == (0,)


@pytest.mark.parametrize("row", [-1, 6])
def test_rows_that_do_not_exist_are_refused(row: int) -> None:
    mechanism, _ = some_mechanism()
    with pytest.raises(ParameterError, match="There are 6 rows"):
        mechanism.sample(row)
    with pytest.raises(ParameterError, match="There are 6 rows"):
        mechanism.sample_many([0, row])


@pytest.mark.parametrize("rows", [[0.5], [[0]], ["a"]])
def test_rows_that_are_no_row_numbers_are_refused(rows: Any) -> None:
    with pytest.raises(ParameterError, match="whole numbers"):
        some_mechanism()[0].sample_many(rows)
