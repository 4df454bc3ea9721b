from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.errors import ParameterError
from geoblanket.lab.evaluate.leakage import place_channel, posterior_leakage, same_past
from geoblanket.mechanism import Mechanism
from tests.lab.evaluate.walking import present, random_channel, rows_of
from tests.mechanism.problems import random_problem


def test_randomised_response_between_two_places_leaks_epsilon_always() -> None:
    epsilon, apart = 1.5, 0.8
    truth = math.exp(epsilon * apart) / (1 + math.exp(epsilon * apart))
    q = np.array([[truth, 1 - truth], [1 - truth, truth]])
    for prior in ([0.5, 0.5], [0.9, 0.1]):
        found = posterior_leakage(q, prior, [[0, apart], [apart, 0]])
        assert found.maximum == pytest.approx(epsilon)
        assert found.expected == pytest.approx(epsilon)
        assert found.pairs == 1


def test_against_bayes_rule_in_a_loop() -> None:
    rng = np.random.default_rng(5)
    q, prior = random_channel(6, 5, seed=5), rng.dirichlet(np.ones(6))
    points = rng.random((6, 2))
    distance = np.linalg.norm(points[:, None] - points, axis=2)
    eta = 0.6
    largest, total, mass = 0.0, 0.0, 0.0
    posterior = q * prior[:, None] / (prior @ q)
    for i in range(6):
        for j in range(6):
            if 0 < distance[i, j] <= eta:
                change = np.abs(np.log((posterior[i] / posterior[j]) / (prior[i] / prior[j]))) / distance[i, j]
                largest = max(largest, change.max())
                total += prior[i] * prior[j] * (q[i] @ change)
                mass += prior[i] * prior[j]
    found = posterior_leakage(q, prior, distance, eta_km=eta)
    assert found.maximum == pytest.approx(largest)
    assert found.expected == pytest.approx(total / mass)


@given(st.integers(0, 10_000))
def test_a_verified_mechanism_leaks_no_more_than_epsilon(seed: int) -> None:
    problem = random_problem(seed)
    table = np.random.default_rng(seed).dirichlet(np.full(problem.output_count, 0.5), problem.row_count)
    mechanism = Mechanism.from_probabilities(table, problem)
    found = posterior_leakage(
        mechanism.probabilities, problem.prior, mechanism.distance_mm / 1e6, eta_km=mechanism.eta_km
    )
    # Logarithms of weights, down to −43, lose 1e-14 each, which is more of ε the nearer two rows are.
    nearest = mechanism.distance_mm[mechanism.distance_mm > 0].min(initial=10**6) / 1e6
    assert found.expected <= found.maximum + 1e-15 <= mechanism.epsilon * (1 + 1e-12) + 4e-14 / nearest


def test_reports_possible_from_one_place_only_leak_infinitely_and_impossible_ones_nothing() -> None:
    distance = [[0, 1], [1, 0]]
    found = posterior_leakage([[1.0, 0.0], [0.5, 0.5]], [0.5, 0.5], distance)
    assert found.maximum == found.expected == math.inf
    found = posterior_leakage([[0.4, 0.6, 0.0], [0.5, 0.5, 0.0]], [1.0, 0.0], distance)
    assert found.maximum == pytest.approx(math.log(0.5 / 0.4))
    assert found.expected == 0.0


def test_a_constant_mechanism_leaks_nothing_and_no_neighbours_nothing_either() -> None:
    q = np.tile([0.2, 0.8], (3, 1))
    apart = 1.0 - np.eye(3)
    assert posterior_leakage(q, np.full(3, 1 / 3), apart).maximum == 0.0
    assert posterior_leakage(np.eye(3), np.full(3, 1 / 3), apart, eta_km=0.5).pairs == 0


def test_present_places_are_the_mean_of_their_rows() -> None:
    rows = rows_of("order:1")
    q = random_channel(len(rows), 6, seed=1)
    channel, prior = place_channel(q, rows.prior, present(rows), 6)
    for place in range(6):
        own = present(rows) == place
        assert prior[place] == pytest.approx(rows.prior[own].sum())
        assert channel[place] == pytest.approx(rows.prior[own] @ q[own] / rows.prior[own].sum())


def test_a_place_that_never_is_reports_as_all_do() -> None:
    channel, prior = place_channel([[0.3, 0.7]], [1.0], [0], 2)
    assert prior.tolist() == [1.0, 0.0]
    assert channel.tolist() == [[0.3, 0.7], [0.3, 0.7]]


def test_the_past_may_be_known() -> None:
    anchors = np.array([[1, 5], [2, 5], [1, 6], [3, -1]])
    expected = np.eye(4, dtype=bool)
    expected[0, 1] = expected[1, 0] = True
    assert np.array_equal(same_past(anchors), expected)
    assert same_past(anchors[:, :1]).all()
    q = random_channel(4, 3, seed=2)
    apart = 1.0 - np.eye(4)
    found = posterior_leakage(q, np.full(4, 0.25), apart, pairs=same_past(anchors))
    assert found.pairs == 1
    assert found.maximum == pytest.approx(np.abs(np.log(q[0] / q[1])).max())


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ParameterError, match="shapes"):
        posterior_leakage(np.eye(2), [0.5, 0.5], np.zeros((3, 3)))
