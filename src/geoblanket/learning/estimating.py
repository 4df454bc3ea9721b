"""From noisy counts of a chain's cells to its probabilities; `private` lists the counts.

Noisy counts say much about frequent cells and nothing about rare ones. So every count is modelled as its expectation,
from roads and from coarser counts, times a factor. The distribution of the factors is learned from all counts together
(a nonparametric maximum-likelihood mixture, by expectation–maximisation), and each count becomes its posterior mean.
All of this is post-processing of noisy counts: it costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from geoblanket._arrays import Floats, Ints, Singles
from geoblanket.learning.chain_cells import ChainCells, regions
from geoblanket.learning.unit_counts import RUNS, in_squares
from geoblanket.tracking.motion_model import MotionModel, TripShape

_FACTORS: Final = np.exp(np.linspace(-np.log(64), np.log(64), 33))
_USUAL_FACTORS: Final = (
    np.exp(-((np.log(_FACTORS) / 0.5) ** 2) / 2) / np.exp(-((np.log(_FACTORS) / 0.5) ** 2) / 2).sum()
)
"""Prior of the factors: their logarithms have a standard deviation of a half."""
_STEP: Final = float(_FACTORS[1] / _FACTORS[0])
_WIDTH: Final = (_STEP - 1) / 4
"""Relative standard deviation of the component around each factor: a quarter of the way to the next, so that the
components overlap."""
_REACH: Final = _STEP**3
_USUAL_COUNTS: Final = 20.0
"""Weight of the prior, in counts, so that few or noisy counts are not overfitted."""
_LEAST_SIGNAL: Final = 3.0
_ROUNDS: Final = 60
_FEWEST_FITTED: Final = 200
_CELLS_AT_ONCE: Final = 1 << 16
_TINY: Final = 1e-12
_RAKING_ROUNDS: Final = 100
_RAKING_STEP: Final = 0.35
"""Damping of the raking. A half would suit moves with two different ends; less avoids oscillation where vehicles
stay."""
_UNSEEN: Final = 0.01
"""Share that is spread evenly over all places: no place is impossible because the simulated trips missed it."""
_ENOUGH: Final = 1e6
"""Weight of the prior, in trips. Large, so that shares are not smoothed twice."""


def shrunk(noisy: Floats, expected: Floats, sigma: float) -> Floats:
    """Return shares, which sum to 1, from noisy counts and expected shares.

    Parameters
    ----------
    noisy
        Noisy counts, in any unit, shape (n,).
    expected
        Expected shares, positive, shape (n,).
    sigma
        Standard deviation of the noise, in the unit of the counts.
    """
    # The total that fits best: the projection of the counts on the expected shares.
    expected = expected / expected.sum()
    length = float(np.sqrt(expected @ expected))
    total = float(noisy @ expected) / length**2
    if not total * length > _LEAST_SIGNAL * sigma:
        return expected  # all counts together hardly rise above the noise
    mean = total * expected
    # Only cells whose count could rise above the noise, by a large factor, tell something about the factors.
    fitted = np.argsort(-mean, kind="stable")[: max(_FEWEST_FITTED, int((mean * _FACTORS[-1] > sigma / 2).sum()))]
    fit = _Likelihood(noisy[fitted], mean[fitted], sigma)
    weights = _USUAL_FACTORS
    for _ in range(_ROUNDS):
        weights = fit.improved(weights)
    # Fitted cells get the posterior mean of their factor, the others the mean of all factors.
    factor = np.full(len(noisy), float(weights @ _FACTORS))
    factor[fitted] = fit.posterior_means(weights)
    posterior = mean * factor
    shares: Floats = posterior / posterior.sum()
    return shares


class _Likelihood:
    """The likelihood of each count for factors around each of `_FACTORS`, up to a constant for each count."""

    def __init__(self, noisy: Floats, mean: Floats, sigma: float) -> None:
        self._noisy, self._mean, self._sigma = noisy, mean, sigma
        self._parts = []
        for some in self._pieces():
            variance = sigma**2 + (mean[some, None] * _FACTORS * _WIDTH) ** 2
            fit = -((noisy[some, None] - mean[some, None] * _FACTORS) ** 2) / variance - np.log(variance)
            self._parts.append(np.exp((fit - fit.max(axis=1, keepdims=True)) / 2).astype(np.float32))

    def _pieces(self) -> list[slice]:
        return [slice(start, start + _CELLS_AT_ONCE) for start in range(0, len(self._noisy), _CELLS_AT_ONCE)]

    def improved(self, weights: Floats) -> Floats:
        """Return the weights of the factors after one round of expectation–maximisation."""
        total = _USUAL_COUNTS * _USUAL_FACTORS
        for part in self._parts:
            each = part * weights
            total += (each / each.sum(axis=1, keepdims=True)).sum(axis=0)
        result: Floats = total / total.sum()
        return result

    def posterior_means(self, weights: Floats) -> Floats:
        """Return the posterior mean of each count's factor, shape (n,)."""
        means = []
        for some, part in zip(self._pieces(), self._parts, strict=True):
            spread = (self._mean[some, None] * _FACTORS * _WIDTH) ** 2
            nearer = spread / (spread + self._sigma**2) * (self._noisy[some] / self._mean[some])[:, None]
            nearer += self._sigma**2 / (spread + self._sigma**2) * _FACTORS
            # Positive, and within reach of the component: factors beyond belong to other components.
            factors = np.clip(nearer, _FACTORS / _REACH, _FACTORS * _REACH)
            means.append((part * weights * factors).sum(axis=1) / (part @ weights))
        return np.concatenate(means)


def raked(flow: Floats, source: Ints, target: Ints, visits: Floats) -> Floats:
    """Scale moves by a factor for each place, so that the visits of places have the given shares (raking).

    Parameters
    ----------
    flow
        Frequency of each move, shape (n,).
    source, target
        Places that each move goes from and to, shape (n,).
    visits
        Share of each place, shape (P,).
    """
    factor = np.ones(len(visits))
    wanted = 2 * visits / visits.sum()
    for _ in range(_RAKING_ROUNDS):
        scaled = flow * factor[source] * factor[target]
        scaled /= scaled.sum()
        ends = np.bincount(source, scaled, len(visits)) + np.bincount(target, scaled, len(visits))
        factor *= np.where(ends > 0, (wanted + _TINY) / (ends + _TINY), 1.0) ** _RAKING_STEP
    scaled = flow * factor[source] * factor[target]
    shares: Floats = scaled / scaled.sum()
    return shares


def summed(weights: Floats, group: Ints, groups: int) -> Floats:
    """Return the sum of weights in each group."""
    return np.bincount(group, weights, groups).astype(np.float64)


def normalised(weights: Floats, group: Ints, groups: int) -> Floats:
    """Return weights divided by the sum of their group; equal shares in a group without weight."""
    total = np.bincount(group, weights, groups)
    size = np.bincount(group, minlength=groups)
    result: Floats = np.where(total[group] > 0, weights / np.maximum(total, 1e-300)[group], 1 / size[group])
    return result


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Noisy counts, and the standard deviation of their noise."""

    counts: Floats
    sigma: float


def estimated(cells: ChainCells, noisy_counts: dict[str, NoisyCounts]) -> MotionModel:
    """Return the model of the roads, corrected by noisy counts."""
    # Places: from large squares to single places.
    road = cells.road
    on_road = summed(cells.flow, cells.target, cells.places)
    visits = _by_places(cells, noisy_counts, "places", on_road)
    # Where vehicles are more frequent than expected from the roads, more trips start, too.
    starts = summed(road.start.astype(np.float64), road.present, cells.places) * visits / np.maximum(on_road, _TINY)
    # Moves: scaled to the places, then corrected by their own counts, where the budget has any.
    flow = raked(cells.flow, cells.source, cells.target, visits)
    if not cells.runs:
        flow = _by_group(flow, cells.turn, noisy_counts["turns"])
    flow = _shrunk(flow, noisy_counts.get("moves"))
    # For each run of places: its expected count, and by the roads the probability of its last place given the others.
    expected_counts, road_probabilities = flow, normalised(cells.flow, cells.source, cells.places)
    chances = normalised(flow, cells.source, cells.places) if not cells.runs else np.empty(len(road.chances))
    for name, runs in zip(RUNS, cells.runs, strict=False):
        own = road.chances[runs.first : runs.last].astype(np.float64)
        # The roads give the effect of one more place in the past; the counts so far give the frequency of what follows.
        next_place = expected_counts[runs.suffix] * own / np.maximum(road_probabilities[runs.suffix], _TINY)
        expected = expected_counts[runs.prefix] * normalised(next_place, runs.state, len(road))
        if name == "runs":
            expected = _by_group(expected, cells.turn, noisy_counts["turns"])
        expected_counts, road_probabilities = _shrunk(expected, noisy_counts.get(name)), own
        chances[runs.first : runs.last] = normalised(expected_counts, runs.state, len(road))
    shape = TripShape.of_counts(
        *(
            _ENOUGH * _shrunk(np.ones(len(noisy_counts[name].counts)), noisy_counts[name])
            for name in ("hours", "lengths")
        )
    )
    return replace(
        road,
        chances=chances.astype(np.float32),
        start=_start(cells, flow, _by_places(cells, noisy_counts, "starts", starts)),
        hours=shape.hours,
        lengths=shape.lengths,
    )


def _shrunk(expected: Floats, noisy_counts: NoisyCounts | None) -> Floats:
    return expected if noisy_counts is None else shrunk(noisy_counts.counts, expected, noisy_counts.sigma)


def _by_group(expected: Floats, group: Ints, noisy_counts: NoisyCounts) -> Floats:
    """Return the expected shares, corrected by noisy counts of groups of cells."""
    together = summed(expected, group, len(noisy_counts.counts))
    factor = shrunk(noisy_counts.counts, together, noisy_counts.sigma) / np.maximum(together, _TINY)
    result: Floats = expected * factor[group]
    return result


def _by_places(cells: ChainCells, noisy_counts: dict[str, NoisyCounts], name: str, expected: Floats) -> Floats:
    """Return the share of each place, corrected by counts of squares, from large to small, and of single places."""
    shares: Floats = (expected + _UNSEEN * expected.mean()) / (expected.sum() * (1 + _UNSEEN))
    for squares, region in regions(cells.road.xy_m).items():
        shares = _by_group(shares, region, noisy_counts[in_squares(name, squares)])
    return _shrunk(shares, noisy_counts[name])


def _start(cells: ChainCells, flow: Floats, starts: Floats) -> Singles:
    """Return the belief over states at the start of a trip; the place before is taken as usual."""
    road = cells.road
    if not cells.runs:
        belief = starts[road.present]
    else:
        into = summed(flow, cells.target, cells.places)
        belief = np.zeros(len(road))
        belief[: cells.move_count] = flow / np.maximum(into, _TINY)[cells.target] * starts[cells.target]
    result: Singles = (belief / belief.sum()).astype(np.float32)
    return result
