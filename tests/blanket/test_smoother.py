from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge

from geoblanket._arrays import Floats
from geoblanket.blanket import smoother
from geoblanket.blanket.smoother import Basis, affine_basis, fit_ridge, kernel_basis, leverage, median_distance, traces

RNG = np.random.default_rng(1)
N = 60
Z = RNG.normal(size=(N, 2))
TARGETS = np.column_stack([np.sin(2 * Z[:, 0]), Z[:, 1] ** 2, Z[:, 0]]) + 0.3 * RNG.normal(size=(N, 3))
GRAM = RBF(0.8)(Z)
OUTSIDE = np.eye(N) - affine_basis(Z) @ affine_basis(Z).T


def kernel(points: Floats) -> Basis:
    return kernel_basis(affine_basis(points), points / 0.8, np.random.default_rng(0))[0]


def gram(basis: Basis) -> Floats:
    return np.asarray(basis.vectors @ np.diag(basis.values) @ basis.vectors.T)


def basis() -> Basis:
    """Return a basis of the whole kernel."""
    with mock.patch.object(smoother, "_UNREPRESENTED", 1e-9):
        return kernel(Z)


def oracle(target: int, penalty: float) -> tuple[float, np.ndarray]:
    """The cross-validation score and residual matrix of one regression, by scikit-learn and dense matrices."""
    ridge = KernelRidge(alpha=N * penalty, kernel="precomputed")
    gram = OUTSIDE @ GRAM @ OUTSIDE
    leave = OUTSIDE - ridge.fit(gram, OUTSIDE).predict(gram)
    left = leave @ TARGETS[:, target]
    return float(N * (left @ left) / np.trace(leave) ** 2), leave


@pytest.mark.parametrize("together", [False, True])
def test_regressions_are_those_of_kernel_ridge(together: bool) -> None:
    fit = fit_ridge(basis(), TARGETS, together=together)
    scores = np.array([[oracle(target, penalty)[0] for target in range(3)] for penalty in smoother._PENALTIES])
    freedom = [N - np.trace(oracle(0, penalty)[1]) for penalty in smoother._PENALTIES]
    scores[np.array(freedom) > 0.7 * N] = np.inf
    best = np.full(3, scores.sum(axis=1).argmin()) if together else scores.argmin(axis=0)
    for target, penalty in enumerate(smoother._PENALTIES[best]):
        _, leave = oracle(target, penalty)
        expected = np.linalg.matrix_power(leave, smoother._TIMES) @ TARGETS[:, target]
        assert np.allclose(fit.residuals[:, target], expected, atol=1e-5)


def test_traces_are_those_of_the_dense_matrices() -> None:
    found = basis()
    fit = fit_ridge(found, TARGETS)
    weights = np.random.default_rng(5).uniform(0, 1, N)
    whole, diagonal = traces(found, fit.removed[:, :2], fit.removed[:, 1:], weights)
    outside = np.eye(N) - found.affine @ found.affine.T
    squared = [outside - found.vectors @ np.diag(part) @ found.vectors.T for part in fit.removed.T]
    for pair in range(2):
        one, other = (weights[:, None] * squared[at] for at in (pair, pair + 1))
        assert whole[pair] == pytest.approx(np.trace(one @ other))
        assert diagonal[pair] == pytest.approx(np.diag(one) @ np.diag(other))


def test_traces_are_the_variance_and_the_mean_square_of_products_of_noise() -> None:
    found = basis()
    fit = fit_ridge(found, TARGETS[:, :2])
    weights = np.random.default_rng(5).uniform(0, 1, N)
    whole, diagonal = traces(found, fit.removed[:, :1], fit.removed[:, 1:], weights)
    leave = [
        np.eye(N) - found.affine @ found.affine.T - found.vectors @ np.diag(1 - np.sqrt(1 - part)) @ found.vectors.T
        for part in fit.removed.T
    ]
    noise = np.random.default_rng(2).normal(size=(2, N, 20_000))
    products = weights[:, None] * (leave[0] @ noise[0]) * (leave[1] @ noise[1])
    assert np.var(products.sum(axis=0)) == pytest.approx(whole[0], rel=0.05)
    assert (products**2).sum(axis=0).mean() == pytest.approx(diagonal[0], rel=0.05)


def test_leverages_are_the_diagonal_of_the_dense_regression() -> None:
    found = basis()
    inside = np.eye(N) - OUTSIDE
    fitted = inside + gram(found) @ np.linalg.inv(gram(found) + 0.1 * np.eye(N))
    assert np.allclose(leverage(found, 0.1), np.diag(fitted))


def test_a_lonely_row_decides_its_own_fit() -> None:
    crowd = np.random.default_rng(6).normal(size=(100, 2)) * 0.1
    found = leverage(kernel(np.vstack([crowd, [[3.0, 0.0]], [[0.0, 3.0]], [[-3.0, -3.0]]])), 0.1)
    assert found[:100].max() < 0.5
    assert found[100:].min() > 0.9


def test_a_coarser_basis_predicts_a_rough_function_worse_and_a_smooth_one_alike() -> None:
    points = np.random.default_rng(7).uniform(-2, 2, (300, 2))
    fine, coarse = kernel_basis(affine_basis(points), points / 0.3, np.random.default_rng(0))
    assert coarse.vectors.shape[1] == fine.vectors.shape[1] // 2
    noise = 0.1 * np.random.default_rng(8).normal(size=(300, 1))
    for function, low, high in ((np.sin(6 * points[:, :1]), 0.3, 10), (points[:, :1], -0.05, 0.05)):
        scores = [fit_ridge(part, function + noise).score for part in (fine, coarse)]
        assert low < scores[1] / scores[0] - 1 < high


def test_landmarks_represent_every_row_or_are_as_many_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = OUTSIDE @ GRAM @ OUTSIDE
    assert np.allclose(gram(basis()), exact, atol=1e-6)
    found = kernel(Z)
    assert len(found.values) < len(basis().values)
    assert 1e-4 < np.diag(exact - gram(found)).max() < 0.05
    assert np.allclose(found.vectors.T @ found.vectors, np.eye(len(found.values)), atol=1e-6)
    monkeypatch.setattr(smoother, "_LANDMARKS_ALLOWED", (1, 1000))
    assert len(kernel(Z).values) == N * 2 // 5
    monkeypatch.setattr(smoother, "_LANDMARKS_ALLOWED", (1, 12))
    monkeypatch.setattr(smoother, "_CANDIDATES", N)
    few = kernel(Z)
    assert len(few.values) == 12
    # No row is represented as badly as the worst is by landmarks taken at random.
    nystroem = Nystroem(kernel="rbf", gamma=1 / (2 * 0.8**2), n_components=12).fit(Z[:12]).transform(Z)
    at_random = OUTSIDE @ nystroem @ nystroem.T @ OUTSIDE
    assert 0.05 < np.diag(exact - gram(few)).max() < 0.6 * np.diag(exact - at_random).max()


def test_landmarks_of_some_rows_represent_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    many = np.random.default_rng(3).uniform(-1, 1, (600, 2))
    whole = gram(kernel(many))
    monkeypatch.setattr(smoother, "_LANDMARKS_ALLOWED", (100, 100))
    some = kernel(many)
    assert some.vectors.shape[0] == 600
    assert not np.array_equal(gram(some), whole)
    assert np.allclose(gram(some), whole, atol=0.05)


def test_near_points_far_from_the_rest_are_as_alike_as_elsewhere() -> None:
    points = np.random.default_rng(4).normal(size=(200, 2))
    away = np.vstack([points, points[:2] + 1e9])
    assert np.allclose(np.tril(smoother._half_kernel(away)), np.tril(RBF(1.0)(away)))
    assert np.diag(smoother._half_kernel(away)).tolist() == [1.0] * 202


def test_an_affine_basis_leaves_out_what_adds_nothing() -> None:
    columns = np.column_stack([Z, Z[:, 0] * 1e6 + 3, np.full(N, 5.0), Z.sum(axis=1)])
    found = affine_basis(columns)
    assert found.shape == (N, 3)
    assert np.allclose(found.T @ found, np.eye(3))
    assert np.allclose(found @ (found.T @ columns), columns)
    assert affine_basis(np.empty((N, 0))).shape == (N, 1)


def test_a_kernel_of_equal_rows_adds_nothing_to_the_constant() -> None:
    found = kernel(np.zeros((N, 2)))
    assert found.values.size == 0
    fit = fit_ridge(found, TARGETS)
    assert np.allclose(fit.residuals, TARGETS - TARGETS.mean(axis=0))


def test_the_median_is_of_points_that_differ() -> None:
    rng = np.random.default_rng(0)
    assert median_distance(np.zeros((20, 2)), rng) == 1
    points = np.repeat([[0.0, 0.0], [3.0, 4.0]], [50, 2], axis=0)
    assert median_distance(points, rng) == 5
    many = np.random.default_rng(1).normal(size=(900, 2))
    assert median_distance(many, rng) == pytest.approx(np.median(cdist(many, many)), rel=0.1)
