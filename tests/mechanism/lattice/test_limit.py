"""The limit of all mechanisms: by linear programs on small tori, by exact filters, and from a lattice's weights."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from geoblanket._arrays import Floats
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.limit import limit_km, mean_error_km, tracking_limit_km
from geoblanket.mechanism.lattice.making import Area, spec_over
from tests.mechanism.lattice.frames import small_spec
from tests.mechanism.linear_programs import make_problem, solve


def torus_distances(side: int, spacing: float) -> Floats:
    """Return the distances of all points of a square grid whose opposite edges are joined."""
    points = np.array(list(itertools.product(range(side), repeat=2)))
    away = np.abs(points[:, None] - points)
    distances: Floats = np.hypot(*np.moveaxis(np.minimum(away, side - away), -1, 0)) * spacing
    return distances


@pytest.mark.parametrize(("side", "spacing"), [(4, 0.8), (5, 0.5), (5, 1.0)])
def test_no_mechanism_on_a_torus_beats_planar_laplace(side: int, spacing: float) -> None:
    """The whole linear program, in which nothing is assumed to be invariant, finds the noise of the theorem."""
    distances = torus_distances(side, spacing)
    count = side**2
    problem = make_problem(
        loss=distances, prior=np.full(count, 1 / count), distance_km=distances, epsilon=1.0, eta_km=np.inf
    )
    best, status = solve(problem, method="ipm")
    assert status == "Optimal"
    noise = np.exp(-distances)
    laplace = float((noise / noise.sum(axis=1, keepdims=True) * distances).sum() / count)
    assert 0.98 * laplace < float((best * distances).sum() / count) <= laplace * (1 + 1e-6)


def test_mean_error_from_all_weights() -> None:
    """Every cell of a small frame, from every position within a cell, over the joined edges."""
    spec = small_spec(31)
    lattice, n, side = Lattice.verified(spec), spec.cell_units, spec.plane.side
    centres = np.arange(spec.cells_across) * n + n // 2
    total = 0.0
    for x, y in itertools.product(range(n), repeat=2):
        for at_x, at_y in ((15 * n + x, 15 * n + y), (x, 15 * n + y)):
            east, north = np.abs(centres - at_x), np.abs(centres - at_y)
            away = np.hypot(np.minimum(east, side - east), np.minimum(north, side - north)[:, None])
            total += float((lattice.weights_at(at_x, at_y) * away.ravel()).sum()) / 2**62
    assert mean_error_km(spec) == pytest.approx(total / (2 * n * n) * spec.plane.unit_mm / 1e6, rel=1e-5)


@pytest.mark.parametrize("epsilon", [4.0, 20.0])
def test_lattices_are_near_the_limit(epsilon: float) -> None:
    spec = spec_over(Area.around(45.0, -30.0, 5 / epsilon), epsilon=epsilon)
    assert 1 < mean_error_km(spec) / limit_km(epsilon) < 1.005
    assert limit_km(epsilon) == 2 / epsilon


@pytest.mark.parametrize("step", [0.4, 0.7, 1.2])
def test_no_tracker_beats_the_bound_of_van_trees(step: float) -> None:
    """The exact filter of a random walk on a grid, with planar Laplace noise and ε = 1: near the bound, and above."""
    rng, size, spacing, steps = np.random.default_rng(3), 96, 0.2, 2000
    axis = np.fft.fftfreq(size, 1 / size) * spacing
    away = np.hypot(axis, axis[:, None])
    # A step by an axis has the variance step²/2; over both axes the root mean square length is the step.
    moves = np.exp(-(away**2) / step**2)
    spectrum = np.fft.rfft2(moves / moves.sum())
    noise, waves = np.exp(-away), np.exp(2j * np.pi * np.fft.fftfreq(size))
    belief, truth, errors = np.full((size, size), 1 / size**2), np.zeros(2), []
    cumulated = np.cumsum(noise.ravel() / noise.sum())
    for time in range(steps):
        truth = (truth + rng.normal(0, step / math.sqrt(2) / spacing, 2)) % size
        report = (np.rint(truth) + np.unravel_index(np.searchsorted(cumulated, rng.random()), away.shape)) % size
        belief = np.fft.irfft2(np.fft.rfft2(belief) * spectrum, (size, size))
        belief = np.maximum(belief, 0) * np.roll(noise, report.astype(int), (0, 1))
        belief /= belief.sum()
        # The mean of a belief that is narrow on a torus is the direction of its first wave, nearly.
        middle = np.array([np.angle(belief.sum(axis=1 - k) @ waves) for k in (0, 1)]) * size / 2 / np.pi
        if time >= 20:
            errors.append(((middle - truth + size / 2) % size - size / 2) * spacing)
    rms = math.sqrt(float((np.array(errors) ** 2).sum(axis=1).mean()))
    assert 0.85 < tracking_limit_km(1.0, step) / rms < 1


def test_the_bound_of_van_trees_in_its_limits() -> None:
    """Far steps leave one report, short steps the average of many; in between the recursion tends to it."""
    assert tracking_limit_km(2.0, 1e4) == pytest.approx(2 / 2.0)
    assert tracking_limit_km(1.0, 1e-4) == pytest.approx((4 * 1e-4**2 / 1) ** 0.25, rel=1e-3)
    variance = 1.0
    for _ in range(200):
        variance = 1 / (1 / (variance + 0.3**2 / 2) + 2.0**2 / 2)
    assert tracking_limit_km(2.0, 0.3) == pytest.approx(math.sqrt(2 * variance))
