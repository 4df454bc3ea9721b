"""The promise of the lattice, by the general verifier over small frames, and faults that both verifiers refuse."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from geoblanket._arrays import Floats, Ints
from geoblanket.errors import GuaranteeViolation, LatticeViolation, MechanismError
from geoblanket.mechanism.lattice.kernel import rate_for
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.spec import LatticeSpec
from geoblanket.mechanism.lattice.verifier import verify_lattice
from tests.mechanism.lattice.frames import EPSILON_MICRO, check_pairs, slow_weights, small_spec

SPEC = small_spec()
LATTICE = Lattice.verified(SPEC)


def fine_sample(spec: LatticeSpec) -> tuple[Ints, Ints]:
    """Return points all over the frame: a whole cell, its borders, the corners, and some far away."""
    n, side = spec.cell_units, spec.plane.side
    east, north = (part.ravel() for part in np.meshgrid(np.arange(n + 2), np.arange(n + 2)))
    edges = np.array([0, 1, side // 2, side - 2, side - 1])
    corners = [part.ravel() for part in np.meshgrid(edges, edges)]
    rng = np.random.default_rng(1)
    far = rng.integers(0, side, (2, 40))
    x, y = np.concatenate([east, corners[0], far[0]]), np.concatenate([north, corners[1], far[1]])
    points = np.unique(np.stack([x, y]), axis=1)
    return points[0], points[1]


def weights_of(spec: LatticeSpec) -> tuple[Ints, Floats, Floats]:
    x, y = fine_sample(spec)
    lattice = Lattice._of(spec, 0, LATTICE.certificate, LATTICE._drawing)
    lat, lon = spec.plane.degrees(x, y)
    return np.stack([lattice.weights_at(int(one), int(other)) for one, other in zip(x, y, strict=True)]), lat, lon


def test_general_verifier_accepts_every_pair_of_a_fine_sample() -> None:
    weights, lat, lon = weights_of(SPEC)
    certificate = check_pairs(weights, lat, lon, epsilon_micro=EPSILON_MICRO, add_mm=2)
    assert certificate.pairs == len(lat) * (len(lat) - 1) // 2
    assert 0.97 * 2 < certificate.epsilon_effective <= 2


@pytest.mark.parametrize(("cells", "cell_units", "unit_mm", "epsilon"), [
    (11, 7, 5_000, 4.0), (12, 10, 10_000, 2.0), (40, 5, 20_000, 3.0), (9, 12, 1_000, 20.0), (16, 16, 1_000, 12.0),
])  # fmt: skip
def test_other_frames(cells: int, cell_units: int, unit_mm: int, epsilon: float) -> None:
    spec = small_spec(cells, cell_units=cell_units, unit_mm=unit_mm, epsilon_micro=round(epsilon * 10**6))
    verify_lattice(spec)
    weights, lat, lon = weights_of(spec)
    assert (weights.sum(axis=1) == 2**62).all()
    check_pairs(weights, lat, lon, epsilon_micro=spec.epsilon_micro, add_mm=2)


@pytest.mark.parametrize("cells", [11, 12, 31])
def test_weights_are_those_of_the_definition(cells: int) -> None:
    spec = small_spec(cells)
    lattice = Lattice.verified(spec)
    rng = np.random.default_rng(cells)
    side = spec.plane.side
    points = [(0, 0), (side - 1, 3), (side // 2, side - 1), *rng.integers(0, side, (4, 2)).tolist()]
    for x, y in points:
        np.testing.assert_array_equal(lattice.weights_at(x, y), slow_weights(spec, x, y))


def test_row_of_a_sum_of_weights() -> None:
    lat, lon = LATTICE.center(500)
    weights = LATTICE.weights(lat, lon)
    assert weights.dtype == np.int64
    assert int(weights.sum()) == 2**62
    assert int(weights.argmax()) == 500
    assert weights.min() >= SPEC.floor


def general_refuses(spec: LatticeSpec, **changes: Ints) -> None:
    weights, lat, lon = weights_of(spec)
    with pytest.raises((GuaranteeViolation, MechanismError)):
        check_pairs(changes.get("weights", weights), lat, lon, epsilon_micro=EPSILON_MICRO, add_mm=2)


def remade(**changes: object) -> LatticeSpec:
    """Return the lattice with other numbers, its multipliers made to sum up again."""
    from geoblanket.mechanism.lattice.making import _multipliers

    spec = replace(SPEC, **changes)  # type: ignore[arg-type]
    return replace(spec, multipliers=_multipliers(spec, int(SPEC.multipliers[0])))


def test_the_whole_epsilon_in_the_kernel_is_refused_by_both() -> None:
    from fractions import Fraction

    spec = remade(rate=rate_for(Fraction(EPSILON_MICRO * SPEC.plane.unit_mm, 10**12)))
    with pytest.raises(LatticeViolation, match=r"kernel|multipliers"):
        verify_lattice(spec)
    general_refuses(spec)


def test_a_floor_removed_is_refused_by_both() -> None:
    # Without a floor the far cells of a large frame weigh 0 from some coordinates, and not from others.
    wide = small_spec(300, epsilon_micro=9_000_000, cell_units=2, unit_mm=10_000)
    verify_lattice(wide)
    spec = replace(wide, floor=1)
    with pytest.raises(MechanismError):
        verify_lattice(spec)
    weights, lat, lon = weights_of(spec)
    with pytest.raises(GuaranteeViolation):
        check_pairs(weights, lat, lon, epsilon_micro=9_000_000, add_mm=2)


def test_a_frame_that_does_not_wrap_is_refused_by_both() -> None:
    spec = replace(SPEC, plane=replace(SPEC.plane, side=SPEC.plane.side + 3))
    with pytest.raises(MechanismError, match="whole number of cells"):
        verify_lattice(spec)
    weights, lat, lon = weights_of(SPEC)
    # A cut frame: near the border, what would have wrapped round is given to the others.
    x, y = fine_sample(SPEC)
    n, across = SPEC.cell_units, SPEC.cells_across
    row, column = np.divmod(np.arange(across**2), across)
    wraps = (np.abs(column * n + n // 2 - x[:, None]) > SPEC.plane.side // 2) | (
        np.abs(row * n + n // 2 - y[:, None]) > SPEC.plane.side // 2
    )
    cut = np.where(wraps, SPEC.floor, weights)
    cut = (cut * (2.0**62 / cut.sum(axis=1, keepdims=True))).astype(np.int64)
    cut[:, 0] += 2**62 - cut.sum(axis=1)
    with pytest.raises(GuaranteeViolation):
        check_pairs(cut, lat, lon, epsilon_micro=EPSILON_MICRO, add_mm=2)


def test_cells_too_coarse_are_refused_by_both() -> None:
    unit = SPEC.plane.unit_mm * 5
    coarse = small_spec(31, unit_mm=unit, epsilon_micro=EPSILON_MICRO)
    verify_lattice(coarse)
    from fractions import Fraction

    from geoblanket.mechanism.lattice.making import _multipliers

    spec = replace(coarse, rate=rate_for(Fraction(EPSILON_MICRO * unit, 10**12) * Fraction(99, 100)))
    spec = replace(spec, multipliers=_multipliers(spec, int(coarse.multipliers[0])))
    with pytest.raises(LatticeViolation, match="coarse"):
        verify_lattice(spec)
    general_refuses(spec)


def test_a_verdict_is_for_the_same_numbers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[LatticeSpec] = []

    def asking(spec: LatticeSpec) -> object:
        asked.append(spec)
        return verify_lattice(spec)

    Lattice.verified(SPEC)
    monkeypatch.setattr("geoblanket.mechanism.lattice.lattice.verify_lattice", asking)
    same = replace(SPEC, multipliers=SPEC.multipliers.copy())
    assert Lattice.verified(same).certificate == LATTICE.certificate
    assert asked == []
    multipliers = SPEC.multipliers.copy()
    multipliers[7] += 1
    plane = replace(SPEC.plane, south_e7=SPEC.plane.south_e7 + 1)
    for other in (replace(SPEC, multipliers=multipliers), replace(SPEC, rate=SPEC.rate + 10**6)):
        for _ in range(2):  # a refusal is not kept
            with pytest.raises(LatticeViolation):
                Lattice.verified(other)
    Lattice.verified(replace(SPEC, plane=plane))
    assert len(asked) == 5


@pytest.mark.parametrize("index", [0, 7, 20])
def test_a_multiplier_plus_one_is_refused_by_both(index: int) -> None:
    multipliers = SPEC.multipliers.copy()
    multipliers[index] += 1
    with pytest.raises(LatticeViolation, match="sink"):
        verify_lattice(replace(SPEC, multipliers=multipliers))
    weights, lat, lon = weights_of(SPEC)
    weights[index, 5] += 1
    with pytest.raises(MechanismError):
        check_pairs(weights, lat, lon, epsilon_micro=EPSILON_MICRO, add_mm=2)


def test_a_stretched_projection_is_refused() -> None:
    # Coordinates whose distance on the sphere is 2 % less than in the plane.
    weights, lat, lon = weights_of(SPEC)
    with pytest.raises(GuaranteeViolation):
        check_pairs(
            weights,
            lat[0] + (lat - lat[0]) * 0.98,
            lon[0] + (lon - lon[0]) * 0.98,
            epsilon_micro=EPSILON_MICRO,
            add_mm=2,
        )


@pytest.mark.parametrize("change", [
    {"rate": 0}, {"rate": 2**50}, {"shift": -1}, {"shift": 63}, {"floor": 0}, {"floor": 2**60}, {"half_window": 0},
    {"half_window": 5}, {"cell_units": 0}, {"cell_units": 7}, {"epsilon_micro": 0}, {"epsilon_micro": 1_900_000},
    {"shift": SPEC.shift + 1}, {"shift": SPEC.shift - 1}, {"multipliers": SPEC.multipliers[:-1]},
    {"multipliers": SPEC.multipliers.astype(np.int64)}, {"multipliers": -SPEC.multipliers},
])  # fmt: skip
def test_edited_numbers_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(MechanismError):
        verify_lattice(replace(SPEC, **change))  # type: ignore[arg-type]


def test_a_lattice_has_no_other_way() -> None:
    with pytest.raises(TypeError, match="verified"):
        Lattice()


def test_nothing_changes_a_lattice_after_it_was_verified() -> None:
    spec = replace(SPEC, multipliers=SPEC.multipliers.copy())
    lattice = Lattice.verified(spec)
    before = lattice.weights_at(5, 7)
    spec.multipliers[:] = 1
    np.testing.assert_array_equal(lattice.weights_at(5, 7), before)
    with pytest.raises(ValueError, match=r"read-only"):
        lattice.spec.multipliers[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        lattice.spec.multipliers.setflags(write=True)


def test_a_copy_that_was_pickled_is_verified_again() -> None:
    make, numbers = LATTICE.__reduce__()
    assert make == Lattice.verified
    np.testing.assert_array_equal(copy.copy(LATTICE).weights_at(1, 2), LATTICE.weights_at(1, 2))
    edited = Lattice._of(replace(SPEC, rate=SPEC.rate * 2), 0, LATTICE.certificate, LATTICE._drawing)
    with pytest.raises(MechanismError):
        copy.copy(edited)  # by way of the same `__reduce__`
    assert numbers == (LATTICE.spec, 0)


def test_guarantee_says_what_holds() -> None:
    assert "e^(ε·(d + 14.2 m))" in str(LATTICE.promise)
    assert "a parked car is found" in str(LATTICE.promise)
    assert LATTICE.certificate.epsilon_effective <= 2
