"""The anchor: its weights, its draw, and the theorem about trips, by enumeration on small frames."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from geoblanket._arrays import Floats
from geoblanket.errors import LatticeViolation, MechanismError, ParameterError
from geoblanket.mechanism.exponential_bounds import ONE_BITS, exp_lower
from geoblanket.mechanism.lattice.anchor import AnchorSpec, _rings, make_anchor, verify_anchor
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.plane import Plane
from tests.mechanism.lattice.frames import small_plane, small_spec


def anchor_on(plane: Plane, epsilon: float = 2.0) -> AnchorSpec:
    anchor = make_anchor(plane, epsilon_micro=round(epsilon * 10**6), period_s=3600)
    verify_anchor(anchor, plane)
    return anchor


def below(generator: np.random.Generator) -> Callable[[int], int]:
    """Return draws of any size below a number, by rejection."""

    def draw(end: int) -> int:
        bits = (end - 1).bit_length()
        while True:
            value: int = int.from_bytes(generator.bytes(bits // 8 + 1), "little") % 2**bits
            if value < end:
                return value

    return draw


def points_of(side: int) -> list[tuple[int, int]]:
    return [(east, north) for east in range(side) for north in range(side)]


def torus_distance(one: tuple[int, int], other: tuple[int, int], side: int) -> float:
    return math.hypot(*(min((a - b) % side, (b - a) % side) for a, b in zip(one, other, strict=True)))


@pytest.mark.parametrize(("cells", "unit_mm", "epsilon"), [(3, 50_000, 2.0), (4, 10_000, 4.0), (2, 500_000, 3.0)])
def test_weights_keep_the_promise_between_all_shifts(cells: int, unit_mm: int, epsilon: float) -> None:
    plane = small_plane(cells, unit_mm=unit_mm, cell_units=4)
    anchor = anchor_on(plane, epsilon)
    side = plane.side
    shifts = points_of(side)
    weights = {shift: anchor.weight(*shift, side) for shift in shifts}
    for shift, other in itertools.product(shifts, shifts):
        millimetres = math.floor(torus_distance(shift, other, side) * unit_mm)
        assert weights[shift] << ONE_BITS <= weights[other] * exp_lower(anchor.epsilon_micro, millimetres)


def test_an_anchor_that_falls_too_fast_is_refused() -> None:
    plane = small_plane(31)
    anchor = anchor_on(plane)
    with pytest.raises(LatticeViolation, match="faster"):
        verify_anchor(replace(anchor, rate=round(anchor.rate * 1.001)), plane)
    with pytest.raises(LatticeViolation, match="faster"):
        verify_anchor(replace(anchor, floor=1), plane)
    for change in ({"rate": 0}, {"period_s": 0}, {"epsilon_micro": 0}, {"floor": 0}, {"period_s": 10**9}):
        with pytest.raises(MechanismError):
            verify_anchor(replace(anchor, **change), plane)
    with pytest.raises(ParameterError, match="31 days"):
        make_anchor(plane, epsilon_micro=10**6, period_s=0)


@pytest.mark.parametrize(("cells", "unit_mm"), [(3, 400_000), (5, 100_000)])
def test_drawn_shifts_have_the_weights(cells: int, unit_mm: int) -> None:
    plane = small_plane(cells, unit_mm=unit_mm, cell_units=4)
    anchor = anchor_on(plane)
    side, generator, count = plane.side, np.random.default_rng(4), 12_000
    seen = np.zeros((side, side))
    for _ in range(count):
        seen[anchor.draw(side, below(generator))] += 1
    weights = np.array([[anchor.weight(east, north, side) for north in range(side)] for east in range(side)], float)
    expected = weights / weights.sum() * count
    degrees = side**2 - 1
    assert ((seen - expected) ** 2 / expected).sum() < degrees + 4 * math.sqrt(2 * degrees)


@pytest.mark.parametrize(("side", "unit_mm", "epsilon"), [(40, 100_000, 2.0), (41, 10_000, 4.0), (60_400, 1000, 2.0)])
def test_no_shift_weighs_more_than_the_bound_of_its_ring(side: int, unit_mm: int, epsilon: float) -> None:
    """Otherwise rejection would cut its probability off."""
    anchor = anchor_on(Plane(south_e7=411_000_000, west_e7=-87_000_000, unit_mm=unit_mm, side=side), epsilon)
    rings, _ = _rings(anchor, side)
    assert rings[0].bound == anchor.weight(0, 0, side)
    for ring in rings:
        ends = range(ring.inner, min(ring.inner + 40, side // 2 + 1))
        for east, north in itertools.product(ends, range(0, ring.inner + 2, max(ring.inner // 20, 1))):
            assert anchor.weight(east, north, side) <= ring.bound


def test_lengths_are_those_of_planar_laplace() -> None:
    plane = Plane(south_e7=411_000_000, west_e7=-87_000_000, unit_mm=1000, side=40_000)
    anchor, generator = anchor_on(plane, 4.0), np.random.default_rng(9)
    shifts = np.array([anchor.draw(plane.side, below(generator)) for _ in range(3000)])
    shifts = np.where(shifts > plane.side // 2, shifts - plane.side, shifts)
    lengths_km = np.hypot(*shifts.T) / 1000
    # Mean 2/ε and deviation √2/ε.
    assert abs(lengths_km.mean() - 0.5) < 4 * math.sqrt(2) / 4 / math.sqrt(3000)


TRIP_UNIT_MM = 200_000


@pytest.fixture(scope="module")
def small_world() -> tuple[Lattice, AnchorSpec, Floats, Floats]:
    spec = small_spec(6, cell_units=1, unit_mm=TRIP_UNIT_MM, epsilon_micro=6_000_000)
    anchor = anchor_on(spec.plane, 4.0)
    lattice = Lattice.verified(spec, anchor)
    side = spec.plane.side
    reports = np.array([[lattice.weights_at(x, y) for y in range(side)] for x in range(side)]) / 2.0**62
    shifts = np.array([[anchor.weight(x, y, side) for y in range(side)] for x in range(side)], float)
    return lattice, anchor, reports, shifts / shifts.sum()


def test_the_theorem_for_all_pairs_of_trips_of_two_reports(
    small_world: tuple[Lattice, AnchorSpec, Floats, Floats],
) -> None:
    """ln P(y | x) − ln P(y | x') ≤ min over s of ε₀·|s| + ε₁·Σ d(x_t + s, x'_t), for all x, x' and y."""
    lattice, anchor, reports, shifts = small_world
    side, km = lattice.spec.plane.side, TRIP_UNIT_MM / 10**6
    points = points_of(side)
    # P(y1, y2 | x1, x2), with x1 all points and x2 all points.
    flat = reports.reshape(side * side, -1)
    moved = [np.array([((x + e) % side) * side + (y + n) % side for x, y in points]) for e, n in points]
    probability = sum(
        shifts[shift] * np.einsum("ik,jl->ijkl", flat[to], flat[to]) for shift, to in zip(points, moved, strict=True)
    )
    logs = np.log(np.asarray(probability)).reshape(side**4, -1)
    distance = np.array([[torus_distance(one, other, side) for other in points] for one in points]) * km
    length = np.array([torus_distance(shift, (0, 0), side) for shift in points]) * km
    tightest = 0.0
    for first in range(0, side**2, 5):  # x1; by symmetry of the torus the others add little
        for second in range(side**2):
            gain = (logs[first * side**2 + second] - logs).max(axis=1)  # over all reports, for each x'
            bound = np.min(
                [
                    anchor.epsilon * length[index]
                    + lattice.epsilon * (distance[to[first]][:, None] + distance[to[second]]).ravel()
                    for index, to in enumerate(moved)
                ],
                axis=0,
            )
            assert (gain <= bound + 1e-12).all()
            apart = bound > 0
            tightest = max(tightest, float((gain[apart] / bound[apart]).max()))
    assert tightest > 0.85  # the bound is near what happens


def test_staying_costs_the_anchor_however_many_reports(
    small_world: tuple[Lattice, AnchorSpec, Floats, Floats],
) -> None:
    lattice, anchor, reports, shifts = small_world
    side, km = lattice.spec.plane.side, TRIP_UNIT_MM / 10**6
    cells = reports.shape[2]
    generator = np.random.default_rng(2)
    flat = reports.reshape(side * side, cells)
    points = points_of(side)
    moved = np.array([[((x + e) % side) * side + (y + n) % side for x, y in points] for e, n in points])
    drawn = generator.choice(cells, 400, p=flat[7])
    log_reports = np.log(flat[:, drawn]).sum(axis=1)
    top = log_reports.max()
    logs = np.log((shifts.ravel()[:, None] * np.exp(log_reports - top)[moved]).sum(axis=0)) + top
    for one, other in itertools.product(range(side**2), repeat=2):
        assert logs[one] - logs[other] <= anchor.epsilon * torus_distance(points[one], points[other], side) * km + 1e-9
    without = log_reports.max() - log_reports.min()
    assert without > 5 * (logs.max() - logs.min())


def test_a_known_anchor_leaves_the_report(small_world: tuple[Lattice, AnchorSpec, Floats, Floats]) -> None:
    lattice, _, _, _ = small_world
    lat, lon = lattice.center(4)
    assert not np.array_equal(lattice.weights(lat, lon), lattice.weights(lat, lon, shift=(1, 0)))
    assert "ε₀ = 4 per km" in lattice.guarantee
