"""The default test of x ⟂ y | z: products of residuals of smooth features.

For functions g and h, and any weight w, independence given z implies E[w(z) (g(x) - E[g(x)|z]) (h(y) - E[h(y)|z])] = 0.
The test takes for g and h the coordinates of x and y, and Gaussian bumps around a few random rows, with w a bump in z
(analytic features, as in Scetbon, Meunier and Romano, ICML 2022). The conditional means are kernel ridge regressions; a
Wald statistic asks whether all mean products can be zero. Several draws of the bumps are combined by the Cauchy rule
(Liu and Xie, JASA 2020), so that no single draw decides.

Three things keep its level where conditional means are rough, dimensions many and rows few. Regressions are repeated on
what they leave (see `smoother`). The bump in z multiplies residuals instead of being part of what is regressed. And the
variance of the mean products is corrected: residuals of rows that took part in a regression are smaller than the noise,
and correlated.

Steps of vehicles have heavy tails. Every displacement is therefore shortened by a bijection that keeps its direction,
length r to arcsinh(r / 2 median r): given the same z, that changes no hypothesis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist
from scipy.stats import beta, cauchy

from geoblanket._geodesy import Floats
from geoblanket.blanket.independence import CIResult, checked_sample, partial_r_squared
from geoblanket.blanket.smoother import (
    Basis,
    Fit,
    affine_basis,
    fit_ridge,
    kernel_basis,
    median_distance,
    traces,
)

__all__ = ["analytic_test", "shortened"]

_BUMPS = 5
"""Bumps in one Wald statistic."""
_DRAWS = 5
"""Wald statistics, each with bumps of its own."""
_LANDMARKS = (250, 500)
"""Landmarks (or all rows, if fewer) where z is a position, and where it has displacements too. With fewer, what they
cannot follow looks like dependence as soon as there are rows enough to see it."""
_LANDMARKS_TO_CHOOSE = 64
"""Landmarks with which bandwidths are compared; enough to tell which is best, and much quicker."""
_POSITION_SCALES = (0.2, 0.4, 0.8)
"""Bandwidths of the position to choose from, in median distances."""
_STEP_SCALES = (1.0, 3.0)
"""Bandwidths of the displacements to choose from, in median distances."""
_NOTHING_LEFT = 1e-18
"""A residual with this share of its target's mean square is rounding."""
_TAIL = 2.0
"""Displacements of up to about this many median lengths are hardly shortened."""
_SINGULAR = 1e-8
"""Eigenvalues of the covariance of products below this share of the largest count as zero."""
_LARGEST_P = 0.999
"""By the Cauchy rule a single p-value of 1 would overrule all others."""


def analytic_test(x: Floats, y: Floats, z: Floats, *, seed: int) -> CIResult:
    """Test x ⟂ y | z; see `geoblanket.blanket.independence.IndependenceTest`.

    The result does not depend on the order of the rows, on units, or on the directions of the axes.
    """
    x, y, z = checked_sample(x, y, z)
    # Random choices of rows must not depend on the order in which the rows came.
    order = np.lexsort([*z.T, *y.T, *x.T, (x**2).sum(axis=1)])
    rng = np.random.default_rng(seed)
    given = _Given.of(z[order], rng)
    raw = [shortened(x[order]), shortened(y[order])]
    bumps = [_bumps(part, median_distance(part, rng), rng) for part in raw]
    basis = given.best_basis(raw)

    raw_fits = [fit_ridge(basis, part, together=True) for part in raw]
    x_left, y_left = (_cleaned(fit, part) for fit, part in zip(raw_fits, raw, strict=True))
    pairs = np.array(list(product(range(x_left.shape[1]), range(y_left.shape[1]))))
    raw_products = x_left[:, pairs[:, 0]] * y_left[:, pairs[:, 1]]
    raw_inflation = _inflation(basis, [fit.removed[:, :1] for fit in raw_fits]).repeat(len(pairs))

    fits = [fit_ridge(basis, part) for part in bumps]
    one, other = (_cleaned(fit, part) for fit, part in zip(fits, bumps, strict=True))
    products = given.weights * one * other
    inflation = _inflation(basis, [fit.removed for fit in fits])

    walds = []
    for draw in range(_DRAWS):
        some = slice(draw * _BUMPS, (draw + 1) * _BUMPS)
        walds.append(
            _wald(np.column_stack([raw_products, products[:, some]]), np.append(raw_inflation, inflation[some]))
        )
    statistics, p_values = np.array(walds).T
    return CIResult(
        statistic=float(statistics.mean()),
        p_value=_cauchy_rule(p_values),
        effect_size=partial_r_squared(x_left, y_left, inflation=raw_inflation[0]),
        n=len(x),
    )


def _inflation(basis: Basis, removed: Sequence[Floats]) -> Floats:
    """Return by how much the variance of a sum of products exceeds the sum of their squares."""
    variance, squares = traces(basis, *removed)
    return np.maximum(np.divide(variance, squares, out=np.ones_like(squares), where=squares > 0), 1.0)


def shortened(steps: Floats) -> Floats:
    """Return displacements (two columns each, east and north) with lengths r replaced by arcsinh(r / 2 median r)."""
    result = np.empty_like(steps)
    for first in range(0, steps.shape[1], 2):
        pair = steps[:, first : first + 2] - steps[:, first : first + 2].mean(axis=0)
        length = np.linalg.norm(pair, axis=1, keepdims=True)
        unit = _TAIL * np.median(length[length > 0]) if length.any() else 1.0
        ratio = np.divide(np.arcsinh(length / unit), length, out=np.zeros_like(length), where=length > 0)
        result[:, first : first + 2] = pair * ratio
    return result


@dataclass(frozen=True, eq=False)
class _Given:
    """What the regressions on z need, computed once."""

    affine: Floats
    squared: list[Floats]
    """For each block of z, squared distances of all rows to the landmarks in median distances, shape (n, D)."""
    landmarks: npt.NDArray[np.intp]
    scales: list[tuple[float, ...]]
    """For each choice of bandwidths, the bandwidth of each block in median distances."""
    weights: Floats
    """Bumps in z, shape (n, draws × bumps)."""

    @classmethod
    def of(cls, z: Floats, rng: np.random.Generator) -> _Given:
        n = len(z)
        blocks = [
            (block / median_distance(block, rng), scales)
            for block, scales in (
                (z[:, :2] - z[:, :2].mean(axis=0), _POSITION_SCALES),
                (shortened(z[:, 2:]), _STEP_SCALES),
            )
            if np.ptp(block, axis=0).any()
        ]
        columns = np.column_stack([np.empty((n, 0)), *(block for block, _ in blocks)])
        _, distinct = np.unique(columns, axis=0, return_index=True)
        distinct.sort()
        most = _LANDMARKS[columns.shape[1] > 2]
        landmarks = rng.choice(distinct, min(most, len(distinct)), replace=False)
        return cls(
            affine_basis(columns),
            [cdist(block, block[landmarks], "sqeuclidean") for block, _ in blocks],
            landmarks,
            list(product(*(scales for _, scales in blocks))),
            _bumps(columns, 1.0, rng),
        )

    def basis(self, scales: tuple[float, ...], landmarks: int) -> Basis:
        """Return the basis of the kernel with these bandwidths and the first `landmarks` landmarks."""
        exponent = np.zeros((len(self.affine), landmarks))
        for squared, scale in zip(self.squared, scales, strict=True):
            exponent -= squared[:, :landmarks] / (2 * scale**2)
        return kernel_basis(self.affine, np.exp(exponent, out=exponent), self.landmarks[:landmarks])

    def best_basis(self, targets: Sequence[Floats]) -> Basis:
        """Return the basis of the bandwidths that suit some targets (n, d) best, all in all."""
        few, every = min(len(self.landmarks), _LANDMARKS_TO_CHOOSE), len(self.landmarks)
        scores = []
        for scales in self.scales:
            basis = self.basis(scales, few)
            scores.append(sum(np.log(fit_ridge(basis, target, together=True).score.sum()) for target in targets))
        return self.basis(self.scales[int(np.argmin(scores))], every)


def _bumps(points: Floats, bandwidth: float, rng: np.random.Generator) -> Floats:
    """Return Gaussian bumps around random rows, shape (n, draws × bumps)."""
    centres = points[rng.choice(len(points), _DRAWS * _BUMPS, replace=False)]
    return np.exp(cdist(points, centres, "sqeuclidean") / (-2 * bandwidth**2))


def _cleaned(fit: Fit, targets: Floats) -> Floats:
    """Return residuals, with zeros where z says all about a target and only rounding is left."""
    something = (fit.residuals**2).sum(axis=0) > _NOTHING_LEFT * (targets**2).sum(axis=0)
    return np.where(something, fit.residuals, 0.0)


def _wald(products: Floats, inflation: Floats) -> tuple[float, float]:
    """Return the Wald statistic of mean products that should be zero, and its p-value.

    Without inflation, statistic / n is the R² of a regression of 1 on the products: a beta variable if they are normal.
    """
    n = len(products)
    size = np.sqrt((products**2).mean(axis=0))
    products, inflation = products[:, size > 0] / size[size > 0], inflation[size > 0]
    if not products.size:
        return 0.0, 1.0
    covariance = products.T @ products / n * np.sqrt(np.outer(inflation, inflation))
    values, vectors = np.linalg.eigh(covariance)
    kept = values > _SINGULAR * values[-1]
    statistic = n * float((((vectors.T @ products.mean(axis=0)) ** 2)[kept] / values[kept]).sum())
    rank = int(kept.sum())
    return statistic, float(beta.sf(min(statistic / n, 1.0), rank / 2, (n - rank) / 2))


def _cauchy_rule(p_values: Floats) -> float:
    p_values = np.clip(p_values, np.finfo(float).tiny, _LARGEST_P)
    return float(cauchy.sf((1 / np.tan(np.pi * p_values)).mean()))
