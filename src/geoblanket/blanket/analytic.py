"""The default test of x ⟂ y | z: products of residuals of smooth features.

For functions g and h, and any weight w, independence given z implies E[w(z) (g(x) - E[g(x)|z]) (h(y) - E[h(y)|z])] = 0.
The test takes for g and h the coordinates of x and y, and Gaussian bumps around a few random rows, with w a bump in z
(analytic features, as in Scetbon, Meunier and Romano, ICML 2022). The conditional means are kernel ridge regressions; a
Wald statistic asks whether all mean products can be zero. The statistics of several draws of the bumps are averaged, so
that no single draw decides; how they hang together is known, so the distribution of their mean is too.

Where conditional means are rough, dimensions many and rows few, regressions leave a bias, and a bias that x and y share
looks like dependence. That, rather than heavy tails, is what costs the level: with the true conditional means of x in
place of fitted ones, it is about right. Five things keep it otherwise:

- Regressions are repeated on what they leave (see `smoother`).
- The bump in z multiplies residuals instead of being part of what is regressed.
- Rows whose z has few neighbours, where a regression cannot know better, count less. Weights that depend on z alone
  change no hypothesis.
- The variance of the mean products is corrected: residuals of rows that took part in a regression are smaller than the
  noise, and correlated.
- Evidence has to be stronger than what the regressions may have missed. They are done again with half the landmarks; if
  x and y are predicted worse by shares a and b of the error, the fine regressions have not converged either, and their
  bias may add up to n a b to the statistic. A part of that is granted. What is significant only without it is
  neither a rejection nor the absence of one: the test refuses to decide ("unresolved").

Steps of vehicles have heavy tails. Every displacement is therefore shortened by a bijection that keeps its direction,
length r to arcsinh(r / 2 median r): given the same z, that changes no hypothesis.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import beta, ncf

from geoblanket._arrays import Floats, Positions
from geoblanket.blanket.independence import CIResult, checked_sample, partial_r_squared
from geoblanket.blanket.smoother import (
    Basis,
    Fit,
    affine_basis,
    fit_ridge,
    kernel_basis,
    leverage,
    median_distance,
    traces,
)
from geoblanket.errors import UntestableError

_BUMPS = 5
"""Bumps in one Wald statistic."""
_DRAWS = 5
"""Wald statistics, each with bumps of its own."""
_POSITION_BANDWIDTH = 0.2
"""Bandwidth of the position in regressions, in median distances. With 0.5, a third of true hypotheses are rejected
where 500 rows meet a rough field and m = 3: no penalty makes a wide kernel follow it. With 0.25, one in eight of order
1 is, where places are junctions, 200 to a zone."""
_STEP_BANDWIDTH = 1.4
"""Bandwidth of the displacements in regressions, in median distances. When it was chosen, 2 left
15 % of true hypotheses unresolved where turns differ from place to place, rather than 10 % (of 60), and 1 found 58 % of
false ones on roads with 300 rows, rather than 69 % (of 80)."""
_SUPPORT_PENALTY = 0.1
"""Penalty of the regression whose leverages tell how lonely a row is."""
_SUPPORT_POWERS = (4.0, 3.0, 2.0, 1.5, 1.0, 0.75, 0.5, 0.25, 0.0)
"""A row with leverage h counts (1 - h) to the first of these powers with which enough rows are left."""
_SUPPORT_SHARE = 0.9
"""The least effective number of rows under the weights, as a share of all rows."""
_NOTHING_LEFT = 1e-18
"""A residual with this share of its target's mean square is rounding."""
_TAIL = 2.0
"""Displacements of up to about this many median lengths are hardly shortened."""
_BIAS_SHARE = 0.4
"""Share of n a b that is granted to the bias. When it was chosen, 0.1 left 7 of 60 true
hypotheses rejected at m = 3 in a city of a few steps' width, and 0.25 left 4."""
_DOUBT = 0.05
"""A p-value up to this counts as evidence, and has to hold against the bias."""
_SMALLEST = float(np.finfo(float).tiny)
"""No p-value is smaller."""
_SINGULAR = 1e-8
"""Eigenvalues of the covariance of products below this share of the largest count as zero."""


def analytic_test(x: Floats, y: Floats, z: Floats, *, seed: int) -> CIResult:
    """Test x ⟂ y | z; see `geoblanket.blanket.independence.IndependenceTest`.

    The result does not depend on the order of the rows, on units, or on the directions of the axes.
    """
    x, y, z = checked_sample(x, y, z)
    # Random choices of rows must not depend on the order in which the rows came.
    order = np.lexsort([*z.T, *y.T, *x.T, (x**2).sum(axis=1)])
    rng = np.random.default_rng(seed)
    basis, coarse, weights = _given(z[order], rng)
    raw = [shortened(x[order]), shortened(y[order])]
    bumps = [_bumps(part, median_distance(part, rng), rng) for part in raw]

    raw_fits = [fit_ridge(basis, part, together=True) for part in raw]
    fits = [fit_ridge(basis, part) for part in bumps]
    x_left, y_left = (_cleaned(fit, part) for fit, part in zip(raw_fits, raw, strict=True))
    x_bumps_left, y_bumps_left = (_cleaned(fit, part) for fit, part in zip(fits, bumps, strict=True))
    pairs = np.array(list(product(range(x_left.shape[1]), range(y_left.shape[1]))))
    raw_products = x_left[:, pairs[:, 0]] * y_left[:, pairs[:, 1]]
    # Components of one vector have the same penalty, so one of them stands for all.
    removed, other_removed = (
        np.column_stack([raw_fit.removed[:, 0], fit.removed]) for raw_fit, fit in zip(raw_fits, fits, strict=True)
    )
    support = _support(basis)
    raw_inflation, *inflation = _inflation(basis, removed, other_removed, support)

    everywhere = np.full(len(pairs), -1)
    x_gain, y_gain = (_gain(coarse, fit, part) for fit, part in zip(raw_fits, raw, strict=True))
    statistic, plain, granted = _mean_wald(
        support[:, None] * np.column_stack([raw_products, weights * x_bumps_left * y_bumps_left]),
        np.append(np.full(len(pairs), raw_inflation), inflation),
        np.append(everywhere, np.arange(_DRAWS).repeat(_BUMPS)),
        bias=_BIAS_SHARE * len(x) * x_gain * y_gain,
    )
    if plain <= _DOUBT < granted:
        raise UntestableError(
            f"What x and y share beyond z (p = {plain:.2g}) may be what regressions on z did not follow "
            f"(p = {granted:.2g} if so). Test more than these {len(x)} rows, or rows from a smaller area.",
            "unresolved",
        )
    return CIResult(
        statistic=statistic,
        p_value=granted if plain <= _DOUBT else plain,
        effect_size=partial_r_squared(x_left, y_left, inflation=float(raw_inflation)),
        n=len(x),
    )


def _gain(coarse: Basis, fit: Fit, targets: Floats) -> float:
    """Return how much larger the error is on a coarser basis, as a share of the error; 0 if it is no larger."""
    if fit.score <= _NOTHING_LEFT * float((targets**2).mean()):
        return 0.0
    return max(fit_ridge(coarse, targets, together=True).score / fit.score - 1, 0.0)


def _support(basis: Basis) -> Floats:
    """Return how much each row counts in mean products: the less, the fewer neighbours it has, shape (n,)."""
    alone = leverage(basis, _SUPPORT_PENALTY)
    for power in _SUPPORT_POWERS:
        support: Floats = (1 - alone) ** power
        if support.sum() ** 2 >= _SUPPORT_SHARE * len(support) * (support**2).sum():
            break
    return support


def _inflation(basis: Basis, removed: Floats, other_removed: Floats, weights: Floats) -> Floats:
    """Return by how much the variance of a sum of weighted products exceeds the sum of their squares."""
    variance, squares = traces(basis, removed, other_removed, weights)
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


def _given(z: Floats, rng: np.random.Generator) -> tuple[Basis, Basis, Floats]:
    """Return the basis of regressions on z, a coarser one, and bumps in z, shape (n, draws × bumps)."""
    blocks = [
        (block / median_distance(block, rng), bandwidth)
        for block, bandwidth in (
            (z[:, :2] - z[:, :2].mean(axis=0), _POSITION_BANDWIDTH),
            (shortened(z[:, 2:]), _STEP_BANDWIDTH),
        )
        if np.ptp(block, axis=0).any()
    ]
    columns, narrow = (
        np.column_stack([np.zeros((len(z), 1)), *parts])
        for parts in ([block for block, _ in blocks], [block / bandwidth for block, bandwidth in blocks])
    )
    return *kernel_basis(affine_basis(columns), narrow, rng), _bumps(columns, 1.0, rng)


def _bumps(points: Floats, bandwidth: float, rng: np.random.Generator) -> Floats:
    """Return Gaussian bumps around random rows, shape (n, draws × bumps)."""
    centres = points[rng.choice(len(points), _DRAWS * _BUMPS, replace=False)]
    return np.exp(cdist(points, centres, "sqeuclidean") / (-2 * bandwidth**2))


def _cleaned(fit: Fit, targets: Floats) -> Floats:
    """Return residuals, with zeros where z says all about a target and only rounding is left."""
    something = (fit.residuals**2).sum(axis=0) > _NOTHING_LEFT * (targets**2).sum(axis=0)
    return np.where(something, fit.residuals, 0.0)


def _mean_wald(
    products: Floats, inflation: Floats, draws: Positions, *, bias: float = 0.0
) -> tuple[float, float, float]:
    """Return the mean over draws of the Wald statistics of mean products that should be zero, and two p-values.

    With one draw and no inflation, statistic / n is the R² of a regression of 1 on the products: a beta variable if
    they are normal. A mean of such statistics is taken for a multiple of one, with the mean and variance of large
    samples (Satterthwaite's approximation). The first p-value takes the mean products for unbiased; the second, never
    smaller, is that of a noncentral statistic.

    Parameters
    ----------
    products
        Shape (n, products).
    inflation
        See `_inflation`, shape (products,).
    draws
        The draw to which each product belongs; -1: to all of them.
    bias
        What biased products add to the statistic on average.
    """
    n = len(products)
    size = np.sqrt((products**2).mean(axis=0))
    products, inflation, draws = products[:, size > 0] / size[size > 0], inflation[size > 0], draws[size > 0]
    if not products.size:
        return 0.0, 1.0, 1.0
    covariance = products.T @ products / n * np.sqrt(np.outer(inflation, inflation))
    metric = np.zeros_like(covariance)
    for draw in range(_DRAWS):
        block = np.ix_(*2 * [np.flatnonzero((draws == draw) | (draws == -1))])
        metric[block] += np.linalg.pinv(covariance[block], rcond=_SINGULAR, hermitian=True) / _DRAWS
    mean = products.mean(axis=0)
    statistic = float(n * mean @ metric @ mean)
    weights = metric @ covariance
    expected, spread = np.trace(weights), (weights * weights.T).sum()
    freedom = expected**2 / spread
    share = min(statistic * expected / spread / n, 1.0)
    halves = freedom / 2, (n - freedom) / 2
    p_value = max(float(beta.sf(share, *halves)), _SMALLEST)
    if not bias or share == 1:
        return statistic, p_value, p_value
    ratio = share / (1 - share) * halves[1] / halves[0]
    return statistic, p_value, max(float(ncf.sf(ratio, *2 * np.array(halves), bias * expected / spread)), p_value)
