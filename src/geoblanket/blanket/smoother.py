"""Kernel ridge regression of many targets on the same rows, and the traces that a test of its residuals needs.

The kernel is Gaussian. Its Gram matrix is replaced by that of a few rows (Nyström landmarks), taken by pivoted Cholesky
decomposition: always the row that those before represent worst, until none is represented badly. An affine part is
fitted without penalty. In the eigenvectors of the Gram matrix a ridge regression keeps a share d of each coordinate, so
that all penalties of all targets together cost one matrix product.

The penalty that predicts best leaves a bias, and where the residuals of two variables share their bias, they look
dependent. Each regression is therefore repeated on what it left, with the same penalty, until (1 - d)³ of a coordinate
is left: for products of residuals that removes most of the bias and costs little noise ("twicing"; Newey, Hsieh and
Robins, Econometrica 2004).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dpstrf
from scipy.spatial.distance import cdist, pdist

from geoblanket._arrays import Floats

_PENALTIES = 10.0 ** np.arange(-7.0, 1.5, 0.5)
"""Ridge penalties to choose from, each times the number of rows."""
_MOST_FREEDOM = 0.7
"""A regression may use at most this share of the rows as degrees of freedom."""
_UNREPRESENTED = 0.01
"""Share of a row's kernel that landmarks may leave unrepresented."""
_ROWS_PER_LANDMARK = 2.5
"""As many landmarks are taken as that needs, but at most one for this many rows. With 3, regressions
do not converge where turns differ from place to place and m = 2; with 2, a test takes half as long again."""
_LANDMARKS_ALLOWED = (300, 700)
"""That limit is never below the first of these, nor above the second."""
_CANDIDATES = 2
"""Landmarks are taken from this many times as many rows, at random."""
_TIMES = 3
"""How often a target is regressed; 1 is plain kernel ridge regression."""
_NEGLIGIBLE = 1e-10  # of the largest singular value or eigenvalue: what is smaller is rounding
_COLUMNS = 64
"""Columns of a kernel that are computed together."""


@dataclass(frozen=True, eq=False)
class Basis:
    """Orthonormal columns in which a kernel ridge regression is diagonal."""

    affine: Floats
    """Basis of the part without penalty, shape (n, p)."""
    vectors: Floats
    """Eigenvectors of the Gram matrix, orthogonal to the affine part, shape (n, k)."""
    values: Floats
    """Their eigenvalues, shape (k,)."""


@dataclass(frozen=True, eq=False)
class Fit:
    """Ridge regressions of some targets, each with the penalty that generalised cross-validation chose."""

    residuals: Floats
    """What is left of each target, shape (n, targets)."""
    removed: Floats
    """Where the residuals of a target t are (I - H) t, the eigenvalues of I - (I - H)², shape (k, targets)."""
    score: float
    """Estimate of the mean square with which all targets together would be mispredicted, with one penalty for all."""


def median_distance(points: Floats, rng: np.random.Generator, *, most_rows: int = 200) -> float:
    """Return the median distance between points that differ (of at most `most_rows` drawn rows); 1 where none do."""
    if len(points) > most_rows:
        points = points[rng.choice(len(points), most_rows, replace=False)]
    distances = pdist(points)
    distances = distances[distances > 0]
    return float(np.median(distances)) if distances.size else 1.0


def affine_basis(columns: Floats) -> Floats:
    """Return an orthonormal basis of the span of the constant and some columns."""
    centred = columns - columns.mean(axis=0)
    scale = np.abs(centred).max(axis=0, initial=0)
    centred = centred[:, scale > 0] / scale[scale > 0]
    vectors, values, _ = np.linalg.svd(centred, full_matrices=False)
    kept = vectors[:, values > _NEGLIGIBLE * values.max(initial=0)]
    return np.column_stack([np.full(len(columns), len(columns) ** -0.5), kept])


def kernel_basis(affine: Floats, points: Floats, rng: np.random.Generator) -> tuple[Basis, Basis]:
    """Return the basis of the kernel exp(-|a - b|² / 2) between points, and a coarser basis with half the landmarks.

    Parameters
    ----------
    affine
        Basis of the part without penalty, from `affine_basis`.
    points
        In units in which the bandwidth is 1, shape (n, d).
    """
    features = _features(points, rng)
    features -= affine @ (affine.T @ features)
    gram = features.T @ features
    half = len(gram) // 2
    return _diagonal(affine, features, gram), _diagonal(affine, features[:, :half], gram[:half, :half])


def _diagonal(affine: Floats, features: Floats, gram: Floats) -> Basis:
    """Return the basis of a kernel whose features have these products with one another."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > _NEGLIGIBLE * max(values.max(initial=0), 1.0)
    return Basis(affine, features @ (vectors[:, kept] / np.sqrt(values[kept])), values[kept])


def _features(points: Floats, rng: np.random.Generator) -> Floats:
    """Return columns whose products between rows are the kernel, but for what landmarks do not represent."""
    every, most = np.arange(len(points)), int(np.clip(len(points) / _ROWS_PER_LANDMARK, *_LANDMARKS_ALLOWED))
    chosen = rng.choice(every, _CANDIDATES * most, replace=False) if _CANDIDATES * most < len(every) else every
    candidates, remaining = points[chosen], np.delete(every, chosen)
    factor, pivots, rank, _ = dpstrf(_half_kernel(candidates), tol=_UNREPRESENTED, lower=1, overwrite_a=1)
    rank, pivots = min(rank, most), pivots - 1
    triangle = np.tril(factor[:rank, :rank])
    features = np.empty((len(points), rank))
    features[chosen[pivots]] = np.concatenate([triangle, factor[rank:, :rank]])
    if remaining.size:
        kernel = _kernel(candidates[pivots[:rank]], points[remaining])
        features[remaining] = scipy.linalg.solve_triangular(triangle, kernel, lower=True, check_finite=False).T
    return features


def _kernel(points: Floats, centres: Floats) -> Floats:
    squared: Floats = cdist(points, centres, "sqeuclidean")
    squared *= -0.5
    return np.exp(squared, out=squared)


def _half_kernel(points: Floats) -> Floats:
    """Return the kernel between points, on and below the diagonal: all that a Cholesky decomposition reads."""
    kernel = np.zeros((len(points), len(points)), order="F")
    for start in range(0, len(points), _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        kernel[start:, columns] = _kernel(points[columns], points[start:]).T
    return kernel


def fit_ridge(basis: Basis, targets: Floats, *, together: bool = False) -> Fit:
    """Regress each target on the rows of a basis, and its residuals once more.

    Parameters
    ----------
    basis
        From `kernel_basis`.
    targets
        Shape (n, targets).
    together
        All targets get the same penalty: they are the components of one vector, in whatever directions.
    """
    left = targets - basis.affine @ (basis.affine.T @ targets)
    coordinates = basis.vectors.T @ left
    kept = basis.values / (basis.values + len(targets) * _PENALTIES[:, None])
    scores = _scores(basis, left, coordinates, kept)
    chosen = np.full(targets.shape[1], scores.sum(axis=1).argmin()) if together else scores.argmin(axis=0)
    share_left = (1 - kept[chosen].T) ** _TIMES
    residuals = left - basis.vectors @ ((1 - share_left) * coordinates)
    return Fit(residuals, 1 - share_left**2, float(scores.sum(axis=1).min()))


def _scores(basis: Basis, left: Floats, coordinates: Floats, kept: Floats) -> Floats:
    """Return the scores of generalised cross-validation, shape (penalties, targets)."""
    n = len(left)
    freedom = basis.affine.shape[1] + kept.sum(axis=1)
    errors = (left**2).sum(axis=0) - (1 - (1 - kept) ** 2) @ coordinates**2
    scores: Floats = n * errors / np.maximum(n - freedom, 1e-9)[:, None] ** 2
    scores[freedom > max(_MOST_FREEDOM * n, freedom.min())] = np.inf
    return scores


def leverage(basis: Basis, penalty: float) -> Floats:
    """Return how much each row decides its own fitted value in a ridge regression, in [0, 1], shape (n,).

    It is near 1 where a row has no neighbours within the bandwidth, and near 0 where it has many.

    Parameters
    ----------
    penalty
        Of the kernel part; the kernel of a row with itself is 1.
    """
    kept: Floats = basis.vectors**2 @ (basis.values / (basis.values + penalty))
    return np.asarray(np.minimum((basis.affine**2).sum(axis=1) + kept, 1.0))


def traces(basis: Basis, removed: Floats, other_removed: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return, for pairs of targets with residuals A u and B v, the traces of W A² W B² and of W² diag(A²) diag(B²).

    If u and v are independent noise of variance 1, the first is the variance of Σ_i w_i (A u)_i (B v)_i and the second
    the mean of Σ_i w_i² (A u)_i² (B v)_i².

    Parameters
    ----------
    basis
        That of both regressions.
    removed, other_removed
        `Fit.removed` of the first and of the second targets, shapes (k, pairs).
    weights
        w, the diagonal of W, shape (n,).
    """
    affine, vectors = basis.affine, basis.vectors
    lengths, squares = (affine**2).sum(axis=1), vectors**2
    # The product of a matrix with itself takes half the time of one with another.
    halfway = np.sqrt(weights)[:, None] * vectors
    # A² is I - F Fᵀ - V diag(removed) Vᵀ, with the affine part F; the trace is that of the products of these terms.
    unfitted = (weights**2 * (1 - 2 * lengths)).sum() + ((affine.T * weights @ affine) ** 2).sum()
    once = weights**2 @ squares - ((affine.T * weights @ vectors) ** 2).sum(axis=0)
    twice = (removed * ((halfway.T @ halfway) ** 2 @ other_removed)).sum(axis=0)
    a_diagonal, b_diagonal = (
        np.maximum((1 - lengths)[:, None] - squares @ part, 0) for part in (removed, other_removed)
    )
    return unfitted - once @ (removed + other_removed) + twice, weights**2 @ (a_diagonal * b_diagonal)
