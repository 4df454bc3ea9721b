"""The paper's test of x ⟂ y | z, from its published mathematics.

M. Scetbon, L. Meunier and Y. Romano, "An asymptotic test for conditional independence using analytic kernel
embeddings", ICML 2022. At J locations t, the features k(x, t^x) k(z, t^z) and k(y, t^y) are regressed on z by kernel
ridge; n times the mean product of residuals, squared in the metric of its covariance, is chi-squared with J degrees of
freedom under independence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.stats import chi2

from geoblanket._arguments import checked
from geoblanket._arrays import Floats
from geoblanket.blanket.independence import CIResult, checked_sample, partial_r_squared
from geoblanket.blanket.smoother import median_distance
from geoblanket.errors import ParameterError

_LOCATIONS = 5  # J: where the analytic kernels are compared
_COVARIANCE_RIDGE = 1e-10  # added to the diagonal, so that the matrix can be inverted
_ROWS_FOR_MEDIAN = 1000
_ROWS_FOR_LIKELIHOOD = 200
_FLATTENING = 0.9
"""Power to which the eigenvalues of the covariance are raised that locations are drawn with."""
_GRAM_JITTER = 1e-10  # likewise, of the Gram matrix
_LOG_BOUNDS = (float(np.log(1e-5)), float(np.log(1e5)))
"""Bounds of the logarithms of the ridge's length and noise, when they are optimised."""


@dataclass(frozen=True)
class ScetbonStatistic:
    """The statistic of the paper's test, and its p-value."""

    statistic: float
    p_value: float


@checked
def scetbon_statistic(
    x: Floats,
    y: Floats,
    z: Floats,
    *,
    locations: Floats,
    widths_squared: Floats,
    ridge_length: float | Floats,
    ridge_noise: float | Floats,
) -> ScetbonStatistic:
    """Return the paper's statistic with explicit hyper-parameters: no choice is left open, so nothing is random.

    Parameters
    ----------
    x, y, z
        Samples, one a row: shapes (n, dx), (n, dy) and (n, dz), in units in which their spread is about 1.
    locations
        t^x, t^y and t^z side by side, shape (J, dx + dy + dz).
    widths_squared
        Squared bandwidths of the features in x, y and z.
    ridge_length, ridge_noise
        Bandwidth of the ridge's Gaussian kernel on z, and what is added to the diagonal of its Gram matrix: one number,
        or one for each of the 2 J regressions (those of k(x, ·) k(z, ·) first).
    """
    x, y, z = checked_sample(x, y, z)
    locations = np.asarray(locations, np.float64)
    columns = x.shape[1] + y.shape[1] + z.shape[1]
    if locations.ndim != 2 or locations.shape[1] != columns or not len(locations):
        raise ParameterError(f"The locations must have the shape (J, {columns}). Got {locations.shape} instead.")
    features = _features(x, y, z, locations, np.asarray(widths_squared, np.float64))
    shape = (features.shape[1],)
    residuals = _residuals(z, features, np.broadcast_to(ridge_length, shape), np.broadcast_to(ridge_noise, shape))
    return _wald(residuals)


def scetbon_test(x: Floats, y: Floats, z: Floats, *, seed: int, optimise: bool = True) -> CIResult:
    """Test x ⟂ y | z; see `geoblanket.blanket.independence.IndependenceTest`.

    Columns are standardised first. Five locations are drawn from Gaussians fitted to x, y and z, bandwidths are median
    distances.

    Parameters
    ----------
    x, y, z, seed
        As there; the locations follow from the seed.
    optimise
        Choose length and noise of each regression by the marginal likelihood of a Gaussian process on at most 200 rows.
        Otherwise they are the median distance of z, and n^(-2/3).
    """
    x, y, z = (_standardised(part) for part in checked_sample(x, y, z))
    n = len(x)
    rng = np.random.default_rng(seed)
    widths_squared = np.array([median_distance(part, rng, most_rows=_ROWS_FOR_MEDIAN) ** 2 for part in (x, y, z)])
    locations = np.column_stack([_drawn_locations(part, rng) for part in (x, y, z)])
    length, noise = np.sqrt(widths_squared[2]), n ** (-2 / 3)
    features = _features(x, y, z, locations, widths_squared)
    lengths, noises = np.full((2, 2 * _LOCATIONS + x.shape[1] + y.shape[1]), [[length], [noise]])
    if optimise:
        rows = rng.choice(n, min(n, _ROWS_FOR_LIKELIHOOD), replace=False)
        best = _optimised_ridges(z[rows], features[rows], length, noise)
        lengths[: 2 * _LOCATIONS], noises[: 2 * _LOCATIONS] = best
    residuals = _residuals(z, np.column_stack([features, x, y]), lengths, noises)
    test = _wald(residuals[:, : 2 * _LOCATIONS])
    x_left, y_left = np.split(residuals[:, 2 * _LOCATIONS :], [x.shape[1]], axis=1)
    return CIResult(test.statistic, test.p_value, partial_r_squared(x_left, y_left), n)


def _features(x: Floats, y: Floats, z: Floats, locations: Floats, widths_squared: Floats) -> Floats:
    """Return k(x, t^x) k(z, t^z) and then k(y, t^y) at each location, shape (n, 2 J)."""
    at = np.split(locations, [x.shape[1], x.shape[1] + y.shape[1]], axis=1)
    bumps = [
        np.exp(-cdist(part, where, "sqeuclidean") / (2 * width))
        for part, where, width in zip((x, y, z), at, widths_squared, strict=True)
    ]
    return np.column_stack([bumps[0] * bumps[2], bumps[1]])


def _residuals(z: Floats, targets: Floats, lengths: Floats, noises: Floats) -> Floats:
    """Return what kernel ridge regressions on z leave of each target, one factorisation for equal hyper-parameters."""
    squared = cdist(z, z, "sqeuclidean")
    residuals = np.empty_like(targets)
    for length, noise in set(zip(lengths.tolist(), noises.tolist(), strict=True)):
        same = (lengths == length) & (noises == noise)
        diagonal = noise + _GRAM_JITTER
        gram = np.exp(squared / (-2 * length**2))
        gram[np.diag_indices_from(gram)] += diagonal
        # With K for the Gram matrix, the residual a - K (K + vI)⁻¹ a is v (K + vI)⁻¹ a.
        residuals[:, same] = diagonal * scipy.linalg.solve(gram, targets[:, same], assume_a="pos", check_finite=False)
    return residuals


def _wald(residuals: Floats) -> ScetbonStatistic:
    n, number = len(residuals), residuals.shape[1] // 2
    products = residuals[:, :number] * residuals[:, number:]
    mean = products.mean(axis=0)
    covariance = products.T @ products / n + _COVARIANCE_RIDGE * np.eye(number)
    statistic = n * float(mean @ scipy.linalg.solve(covariance, mean, assume_a="pos"))
    return ScetbonStatistic(statistic, float(chi2.sf(statistic, number)))


def _standardised(columns: Floats) -> Floats:
    """Return columns of mean 0 and variance 1, without constant ones (all-constant: one column of zeros)."""
    centred = columns - columns.mean(axis=0)
    kept = np.ptp(columns, axis=0) > 0
    if not kept.any():
        return np.zeros((len(columns), 1))
    result: Floats = centred[:, kept] / centred[:, kept].std(axis=0)
    return result


def _drawn_locations(points: Floats, rng: np.random.Generator) -> Floats:
    """Return locations from a Gaussian with the points' mean and a slightly flattened covariance."""
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(points, rowvar=False)))
    spread = np.sqrt(np.maximum(values, 0) ** _FLATTENING)
    drawn = rng.standard_normal((_LOCATIONS, points.shape[1]))
    return np.asarray(points.mean(axis=0) + drawn @ (vectors * spread) @ vectors.T)


def _optimised_ridges(z: Floats, features: Floats, length: float, noise: float) -> tuple[Floats, Floats]:
    """Return the most likely lengths and noises of the regressions of features on z, searched from the given ones."""
    squared = cdist(z, z, "sqeuclidean")
    best = [_optimised(squared, feature, length, noise) for feature in features.T]
    lengths, noises = np.array(best).T
    return lengths, noises


def _optimised(squared: Floats, target: Floats, length: float, noise: float) -> tuple[float, float]:
    """Return the length and noise of the Gaussian process (of variance 1) that makes a target most likely."""

    def objective(logarithms: Floats) -> tuple[float, Floats]:
        return _negative_log_likelihood(squared, target, logarithms)

    optimum = minimize(objective, np.log([length, noise]), jac=True, method="L-BFGS-B", bounds=[_LOG_BOUNDS] * 2)
    best_length, best_noise = np.exp(optimum.x)
    return float(best_length), float(best_noise)


def _negative_log_likelihood(squared: Floats, target: Floats, logarithms: Floats) -> tuple[float, Floats]:
    """Return minus the log marginal likelihood (but for a constant) and its gradient in log length and log noise."""
    length, noise = np.exp(logarithms)
    scaled = squared / length**2
    kernel = np.exp(scaled / -2)
    inverse = np.linalg.inv(kernel + noise * np.eye(len(target)))
    weights = inverse @ target
    _, log_determinant = np.linalg.slogdet(inverse)
    by_length, by_noise = kernel * scaled, noise
    gradient = np.array(
        [
            (inverse * by_length).sum() - weights @ by_length @ weights,
            by_noise * (np.trace(inverse) - weights @ weights),
        ]
    )
    return 0.5 * float(target @ weights - log_determinant), 0.5 * gradient
