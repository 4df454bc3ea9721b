from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from geoblanket import ContextProblem, ContextVariable, Metric, Problem, contextual_problem, optimise
from geoblanket._arrays import Floats
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism.history_table import HistoryTable
from geoblanket.mechanism.problem import NEVER_MM
from geoblanket.mechanism.row_distances import row_distances
from tests.mechanism.brute_force import violations

TWO = Metric.matrix([[0, 1], [1, 0]], unit="bit", labels=["no", "yes"])


def domain(seed: int, sizes: tuple[int, ...]) -> list[Metric]:
    rng = np.random.default_rng(seed)
    return [Metric.norm(rng.normal(size=(size, 2)), unit="unit") for size in sizes]


def some_problem(
    seed: int, weights: tuple[float, ...], *, sizes: tuple[int, ...] = (4, 3, 5), **options: Any
) -> ContextProblem:
    """Random distances, a prior with holes, and a loss that depends on everything."""
    rng = np.random.default_rng(seed)
    secrets, *others = domain(seed, sizes)
    prior = rng.random(sizes) * (rng.random(sizes) < 0.5)
    prior[1] = 0  # a secret that never occurs
    prior[0, 0, 0] += 0.1
    context = [
        ContextVariable(f"v{number}", metric, weight)
        for number, (metric, weight) in enumerate(zip(others, weights, strict=True), start=1)
    ]
    return contextual_problem(
        secrets, context, prior=prior / prior.sum(), loss=rng.random((*sizes, 3)), epsilon=1.5, **options
    )


def between_histories(asked: ContextProblem) -> tuple[np.ndarray, np.ndarray]:
    """All histories of a domain, and the distances of all pairs, the slow and obvious way; −1 for infinitely far."""
    metrics = [asked.secrets, *(variable.metric for variable in asked.blanket)]
    every = np.array(list(itertools.product(*(range(len(metric)) for metric in metrics))))
    total = np.zeros((len(every), len(every)), object)
    never = np.zeros(total.shape, bool)
    for lag, metric in enumerate(metrics):
        apart = metric.whole[every[:, lag][:, None], every[:, lag]]
        weight = 1.0 if lag == 0 else asked.blanket[lag - 1].weight
        if weight == np.inf:
            never |= apart > 0
        else:
            total += apart.astype(object) * int(weight * 1e6) // 10**6
    total[never] = NEVER_MM
    return every, total.astype(np.int64)


@pytest.mark.parametrize("weights", [(1.0, 0.5), (0.25, np.inf), (0.0, 1.0), (0.1, 0.0)])
@pytest.mark.parametrize("seed", range(3))
def test_row_distances_are_the_smallest_between_all_histories(seed: int, weights: tuple[float, ...]) -> None:
    asked = some_problem(seed, weights)
    every, apart = between_histories(asked)
    row = asked.rows_of(every)
    expected = np.full((asked.problem.row_count,) * 2, NEVER_MM)
    for one, other in itertools.product(range(len(every)), repeat=2):
        expected[row[one], row[other]] = min(expected[row[one], row[other]], apart[one, other])
    assert np.array_equal(asked.problem.distance_mm, expected)
    assert len(asked.histories) < len(every)  # some share a row


@pytest.mark.parametrize("weights", [(1.0, 0.5), (0.25, np.inf)])
def test_the_promise_holds_between_all_histories_whether_the_prior_gives_them_a_chance_or_not(
    weights: tuple[float, ...],
) -> None:
    asked = some_problem(7, weights, sizes=(3, 2, 3))
    mechanism = optimise(asked.problem).mechanism
    every, apart = between_histories(asked)
    whole = Problem.in_millimetres(
        loss=np.zeros((len(every), 3)), prior=np.full(len(every), 1 / len(every)), distance_mm=apart, epsilon=1.5
    )
    assert violations(mechanism.weights[asked.rows_of(every)], whole) == []


def unreduced_optimum(
    metrics: list[Metric], weights: list[float], prior: Floats, loss: Floats, epsilon: float
) -> float:
    """The optimum of the unreduced C-mDP problem: a variable for each secret, context and output, by SciPy."""
    every = np.array(list(itertools.product(*(range(len(metric)) for metric in metrics))))
    apart = sum(
        weight * metric.whole[every[:, lag][:, None], every[:, lag]] / 1e6
        for lag, (metric, weight) in enumerate(zip(metrics, [1.0, *weights], strict=True))
    )
    outputs = loss.shape[-1]
    count = len(every) * outputs
    above = []
    for one, other in itertools.permutations(range(len(every)), 2):
        for output in range(outputs):
            line = np.zeros(count)
            line[one * outputs + output] = 1
            line[other * outputs + output] = -np.exp(epsilon * np.asarray(apart)[one, other])
            above.append(line)
    equal = np.kron(np.eye(len(every)), np.ones(outputs))
    cost = (prior[..., None] * loss).reshape(-1)
    found = linprog(cost, np.array(above), np.zeros(len(above)), equal, np.ones(len(every)), method="highs")
    assert found.fun is not None
    return float(found.fun)


def test_the_reduced_problem_has_the_optimum_of_the_unreduced_one() -> None:
    """V_2 is noise, so V_1 is a blanket, and leaving V_2 out costs nothing (the paper's CD policy)."""
    rng = np.random.default_rng(3)
    metrics = domain(3, (3, 2, 2))
    joint = rng.random((3, 2))
    prior = (joint / joint.sum())[:, :, None] * np.array([0.4, 0.6])
    loss = np.broadcast_to(rng.random((3, 2, 1, 3)), (3, 2, 2, 3))
    context = [ContextVariable("v1", metrics[1], 0.5), ContextVariable("v2", metrics[2], 0.5)]
    asked = contextual_problem(metrics[0], context, prior=prior, loss=loss, epsilon=1.0, blanket=["v1"])
    assert asked.problem.row_count == 6
    expected = unreduced_optimum(metrics, [0.5, 0.5], prior, loss, 1.0)
    result = optimise(asked.problem, gap=1e-6)
    assert result.lower_bound <= expected * (1 + 1e-4)
    assert result.loss == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_two_secrets_have_the_optimum_of_randomised_response(epsilon: float) -> None:
    asked = contextual_problem(TWO, prior=[0.5, 0.5], loss=1 - np.eye(2), epsilon=epsilon)
    assert optimise(asked.problem, gap=1e-7).loss == pytest.approx(1 / (1 + np.exp(epsilon)), rel=1e-5)


def test_a_known_context_gives_the_optimum_of_each_context_and_one_without_weight_gives_none() -> None:
    """Of two secrets with the chances p and 1 − p, the best loss is the least of p, 1 − p and 1 / (1 + e^ε)."""
    prior = np.array([[0.45, 0.1], [0.05, 0.4]])
    lie = 1 / (1 + np.exp(1.0))

    def best(weight: float) -> float:
        context = [ContextVariable("hint", TWO, weight)]
        return optimise(contextual_problem(TWO, context, prior=prior, loss=1 - np.eye(2), epsilon=1.0).problem).loss

    assert best(np.inf) == pytest.approx(min(0.05, 0.5 * lie) + min(0.1, 0.5 * lie), rel=2e-3)
    assert best(0.0) == pytest.approx(min(0.45, lie), rel=2e-3)
    assert best(np.inf) < best(1.0) < best(0.0)


def test_functions_say_the_same_as_arrays() -> None:
    season = ContextVariable("season", Metric.norm([0.0, 3.0], unit="month"), 0.5)
    prior = np.array([[0.1, 0.3], [0.4, 0.2]])
    loss = np.random.default_rng(1).random((2, 2, 3))
    by_array = contextual_problem(TWO, [season], prior=prior, loss=loss, epsilon=1.0)
    by_function = contextual_problem(
        TWO,
        [season],
        prior=lambda secret, month: prior[["no", "yes"].index(secret), month],
        loss=lambda secret, month: loss[["no", "yes"].index(secret), month],
        epsilon=1.0,
    )
    assert np.array_equal(by_array.problem.loss, by_function.problem.loss)
    assert np.array_equal(by_array.problem.prior, by_function.problem.prior)
    assert np.array_equal(by_array.problem.distance_mm, by_function.problem.distance_mm)


def test_a_smaller_blanket_sums_the_prior_and_averages_the_loss() -> None:
    rng = np.random.default_rng(2)
    prior = rng.random((2, 2, 3))
    prior /= prior.sum()
    loss = rng.random((2, 2, 3, 4))
    context = [ContextVariable("a", TWO), ContextVariable("b", Metric.norm([0.0, 1.0, 2.0], unit="unit"))]
    asked = contextual_problem(TWO, context, prior=prior, loss=loss, epsilon=1.0, blanket=["b"])
    np.testing.assert_allclose(asked.problem.prior.reshape(2, 3), prior.sum(axis=1))
    expected = (prior[..., None] * loss).sum(axis=1) / prior.sum(axis=1)[..., None]
    np.testing.assert_allclose(asked.problem.loss.reshape(2, 3, 4), expected)
    assert repr(asked) == "<ContextProblem: 2 secrets, blanket: b, 6 rows>"


def test_vehicles_have_the_distances_of_their_contextual_problem() -> None:
    """A row for each history of five places: the rule of bundles and the rule of any domain agree."""
    places = np.array([[411_500_000 + 7_000 * n, -86_200_000 + (n * n * 3_000)] for n in range(5)], np.int32)
    metric = Metric.haversine(places)
    histories = np.array(list(itertools.product(range(5), repeat=3)), np.int32)
    table = HistoryTable(places, histories, np.arange(125, dtype=np.int32))
    context = [ContextVariable("before", metric, 1.0), ContextVariable("earlier", metric, 0.5)]
    asked = contextual_problem(metric, context, prior=np.full((5, 5, 5), 1 / 125), loss=np.eye(5), epsilon=1.0)
    assert np.array_equal(asked.histories, histories)
    assert np.array_equal(asked.problem.distance_mm, row_distances(table, [metric] * 3, [10**6, 500_000]))
    assert asked.problem.unit == "km"


def test_the_promise_is_in_the_words_and_the_unit_of_the_domain() -> None:
    context = [ContextVariable("hint", TWO, 0.5), ContextVariable("place", TWO, np.inf)]
    asked = contextual_problem(TWO, context, prior=np.full((2, 2, 2), 1 / 8), loss=1 - np.eye(2), epsilon=2.0, eta=3)
    mechanism = optimise(asked.problem).mechanism
    words = asked.promise(mechanism)
    assert "is d = d(secret) + 0.5·d(hint)." in words
    assert "two secrets with their contexts at distance d (d ≤ η = 3 bit) by at most a factor of e^(ε·d)" in words
    assert "ε = 2 per bit" in words
    assert "Taken as known, and not protected: place." in words
    assert " km" not in words
    for shown in (mechanism, asked.problem, mechanism.certificate, pickle.loads(pickle.dumps(mechanism))):  # noqa: S301
        assert "per bit" in repr(shown)
    other = contextual_problem(TWO, prior=[0.5, 0.5], loss=1 - np.eye(2), epsilon=2.0)
    with pytest.raises(MismatchError, match="another problem"):
        other.promise(mechanism)


def asked_for(**changed: Any) -> ContextProblem:
    arguments: dict[str, Any] = {
        "secrets": TWO,
        "context": [ContextVariable("hint", TWO)],
        "prior": np.full((2, 2), 0.25),
        "loss": 1 - np.eye(2),
        "epsilon": 1.0,
    }
    return contextual_problem(**(arguments | changed))


LARGE = Metric.norm(np.arange(300.0), unit="unit")
MORE = [ContextVariable("a", LARGE), ContextVariable("b", LARGE)]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"prior": np.full((2, 2), 0.3)}, "prior must sum to 1, got 1.2"),
        ({"prior": np.array([[1.5, -0.5], [0, 0]])}, "1 negative"),
        ({"prior": np.array([[np.nan, 1], [0, 0]])}, "NaN"),
        ({"prior": [0.5, 0.5]}, r"shape \(2, 2\).*Got \(2,\)"),
        ({"loss": np.eye(3)}, r"\(2, outputs\) or \(2, 2, outputs\). Got \(3, 3\)"),
        ({"loss": np.full((2, 2), np.nan)}, "loss has 8 value"),
        ({"loss": -np.eye(2)}, "negative"),
        ({"loss": lambda _, hint: [1.0] * (2 if hint == "yes" else 3)}, "loss must return as many numbers"),
        ({"loss": lambda *_: "dear"}, "loss must be numbers"),
        ({"prior": lambda *_: "rare"}, "prior must be numbers"),
        ({"epsilon": 0.0}, "epsilon must be from"),
        ({"eta": -1.0}, "must be from 0"),
        ({"blanket": ["hunch"]}, "some of the context variables: hint. Got 'hunch' too"),
        ({"context": [ContextVariable("hint", TWO)] * 2}, "different names"),
        ({"secrets": Metric.norm([0.0], unit="bit"), "prior": [[0.5, 0.5]]}, "two secrets or more"),
        ({"secrets": LARGE, "context": MORE}, "27,000,000 secrets with contexts, and a prior of 0.2 GB"),
        (
            {"secrets": LARGE, "context": MORE[:1], "prior": np.full((300, 300), 1 / 90_000), "loss": np.eye(300)},
            "90,000 rows, and 324 GB",
        ),
        ({"secrets": "words"}, "secrets"),
    ],
)
def test_bad_input_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        asked_for(**changed)


def test_bad_weights_are_refused() -> None:
    for weight in (-1.0, np.nan):
        with pytest.raises(ParameterError, match="0 or more"):
            ContextVariable("hint", TWO, weight)


def test_bad_histories_are_refused() -> None:
    asked = asked_for()
    with pytest.raises(ParameterError, match=r"2 values: the secret, hint\. Got 1"):
        asked.row_of("yes")
    with pytest.raises(ParameterError, match="not among them"):
        asked.row_of("yes", "perhaps")
    with pytest.raises(ParameterError, match=r"shape \(n, 2\)"):
        asked.rows_of([[0, 1, 1]])
    with pytest.raises(ParameterError, match="not in their domain"):
        asked.rows_of([[0, 2]])


def test_a_context_that_never_occurs_uses_the_row_of_the_nearest_that_does() -> None:
    days = ContextVariable("day", Metric.norm([0.0, 1.0, 5.0, 6.0], unit="day"))
    prior = np.array([[0.2, 0.0, 0.0, 0.3], [0.0, 0.0, 0.5, 0.0]])
    asked = asked_for(context=[days], prior=prior)
    assert [asked.row_of("no", day) for day in range(4)] == [0, 0, 1, 1]
    assert {asked.row_of("yes", day) for day in range(4)} == {2}
    # Both secrets can be asked about on every day.
    assert asked.problem.distance_mm[0, 2] == asked.problem.distance_mm[1, 2] == 10**6
