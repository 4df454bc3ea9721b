from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge

from geoblanket.blanket import smoother
from geoblanket.blanket.smoother import Basis, affine_basis, fit_ridge, kernel_basis, median_distance, traces

RNG = np.random.default_rng(1)
N = 60
Z = RNG.normal(size=(N, 2))
TARGETS = np.column_stack([np.sin(2 * Z[:, 0]), Z[:, 1] ** 2, Z[:, 0]]) + 0.3 * RNG.normal(size=(N, 3))
GRAM = RBF(0.8)(Z)
ALL = np.arange(N)
OUTSIDE = np.eye(N) - affine_basis(Z) @ affine_basis(Z).T


def basis() -> Basis:
    return kernel_basis(affine_basis(Z), GRAM.copy(), ALL)


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
        assert fit.score[target] == pytest.approx(scores[best[target], target], rel=1e-4)


def test_traces_are_those_of_the_dense_matrices() -> None:
    found = basis()
    fit = fit_ridge(found, TARGETS)
    whole, diagonal = traces(found, fit.removed[:, :2], fit.removed[:, 1:])
    outside = np.eye(N) - found.affine @ found.affine.T
    squared = [outside - found.vectors @ np.diag(part) @ found.vectors.T for part in fit.removed.T]
    for pair in range(2):
        assert whole[pair] == pytest.approx(np.trace(squared[pair] @ squared[pair + 1]))
        assert diagonal[pair] == pytest.approx(np.diag(squared[pair]) @ np.diag(squared[pair + 1]))


def test_traces_are_the_variance_and_the_mean_square_of_products_of_noise() -> None:
    found = basis()
    fit = fit_ridge(found, TARGETS[:, :2])
    whole, diagonal = traces(found, fit.removed[:, :1], fit.removed[:, 1:])
    leave = [
        np.eye(N) - found.affine @ found.affine.T - found.vectors @ np.diag(1 - np.sqrt(1 - part)) @ found.vectors.T
        for part in fit.removed.T
    ]
    noise = np.random.default_rng(2).normal(size=(2, N, 20_000))
    products = (leave[0] @ noise[0]) * (leave[1] @ noise[1])
    assert np.var(products.sum(axis=0)) == pytest.approx(whole[0], rel=0.05)
    assert (products**2).sum(axis=0).mean() == pytest.approx(diagonal[0], rel=0.05)


def test_with_few_landmarks_the_gram_matrix_is_that_of_nystroem() -> None:
    found = kernel_basis(affine_basis(Z), GRAM[:, :20].copy(), ALL[:20])
    approximate = Nystroem(kernel="rbf", gamma=1 / (2 * 0.8**2), n_components=20).fit(Z[:20]).transform(Z)
    expected = OUTSIDE @ approximate @ approximate.T @ OUTSIDE
    # What is added to the diagonal (1e-8) counts where eigenvalues are as small as here (5e-6).
    assert np.allclose(found.vectors @ np.diag(found.values) @ found.vectors.T, expected, atol=2e-4)
    assert np.allclose(found.vectors.T @ found.vectors, np.eye(len(found.values)), atol=1e-6)


def test_an_affine_basis_leaves_out_what_adds_nothing() -> None:
    columns = np.column_stack([Z, Z[:, 0] * 1e6 + 3, np.full(N, 5.0), Z.sum(axis=1)])
    found = affine_basis(columns)
    assert found.shape == (N, 3)
    assert np.allclose(found.T @ found, np.eye(3))
    assert np.allclose(found @ (found.T @ columns), columns)
    assert affine_basis(np.empty((N, 0))).shape == (N, 1)


def test_a_kernel_of_equal_rows_adds_nothing_to_the_constant() -> None:
    found = kernel_basis(affine_basis(np.zeros((N, 2))), np.ones((N, 1)), np.array([0]))
    assert found.values.size == 0
    fit = fit_ridge(found, TARGETS)
    assert np.allclose(fit.residuals, TARGETS - TARGETS.mean(axis=0))


def test_the_median_is_of_points_that_differ() -> None:
    rng = np.random.default_rng(0)
    assert median_distance(np.zeros((20, 2)), rng) == 1
    points = np.repeat([[0.0, 0.0], [3.0, 4.0]], [50, 2], axis=0)
    assert median_distance(points, rng) == 5
    many = np.random.default_rng(1).normal(size=(900, 2))
    assert median_distance(many, rng) == pytest.approx(np.median(cdist(many, many)), rel=0.05)
