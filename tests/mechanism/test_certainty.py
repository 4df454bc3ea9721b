"""How sure anyone can be: exact weights, closed forms, simulated guesses, and dp-accounting (group `bench`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm

from geoblanket import certainty, load_bundle
from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError
from geoblanket.mechanism.bundle.storage import BundledMechanism, save_bundle
from geoblanket.mechanism.certainty import Certainty, LossCurve, compose, excess, loss_grid, rows_curve, times_in_100
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.loss_curve import _largest_sums, lattice_curve
from geoblanket.mechanism.lattice.making import Area, spec_over
from tests.mechanism.bundles import load_zones, save_located, tight


@cache
def lattice_of(epsilon: float, cell_m: float | None = None) -> Lattice:
    return Lattice.verified(spec_over(Area.around(45.0, -30.0, 1 / epsilon), epsilon=epsilon, cell_m=cell_m))


def rows(lattice: Lattice, apart: Sequence[int], at: Sequence[int] = (0, 0)) -> tuple[Floats, Floats]:
    """Return the probabilities of all cells from two points of the frame, so many units apart, near its middle."""
    x, y = (lattice.spec.plane.side // 2 + each for each in at)
    return lattice.weights_at(x, y) / 2**62, lattice.weights_at(x + apart[0], y + apart[1]) / 2**62


def in_frame(lattice: Lattice, apart: float, reports: int) -> Certainty:
    """Return the certainty between points of the frame, without the rounding of coordinates."""
    return compose(lattice_curve(lattice.spec, apart), apart_m=apart, reports=reports)


@pytest.mark.parametrize(("cell_m", "apart"), [(None, 10), (None, 4), (20.0, 30)])
def test_no_pair_of_points_is_above_the_curve_of_a_lattice(cell_m: float | None, apart: int) -> None:
    """By exact weights: pairs of all positions within a cell, in random directions, at and within the distance."""
    lattice = lattice_of(20.0, cell_m)
    curve = lattice_curve(lattice.spec, apart)
    assert len(curve.deltas) == 31
    losses, deltas, rng = loss_grid(curve.largest, 31)[::6], curve.deltas[::6], np.random.default_rng(apart)
    moves = [move for move in itertools.product(range(-apart, apart + 1), repeat=2) if math.hypot(*move) <= apart]
    outer = [move for move in moves if math.hypot(*move) > apart - 1]
    largest = np.zeros(len(losses))
    for at in itertools.product(range(lattice.spec.cell_units), repeat=2):
        for move in (outer[rng.integers(len(outer))], moves[rng.integers(len(moves))]):
            p, q = rows(lattice, move, at)
            np.maximum(largest, np.maximum(p - np.exp(losses)[:, None] * q, 0).sum(axis=1), out=largest)
            assert np.log(p / q).max() <= curve.largest
    assert (largest <= deltas).all()
    assert deltas[0] == pytest.approx(largest[0], rel=0.04)


@pytest.mark.parametrize("position", [(0.0, 0.0), (3.0, 0.0), (3.0, 3.0), (3.0, 1.0)])
def test_corners_beyond_a_mirror_add_nothing(position: tuple[float, float]) -> None:
    """A position beside its mirrors, by a hair, has every corner tried: a quarter turn keeps all else the same."""
    near = np.array(list(itertools.product(range(-70, 71, 7), repeat=2)), np.float64)
    near, bounds = near[np.hypot(*near.T) <= 70], np.linspace(-0.5, 0.5, 5)
    turned = (-position[1] + 1e-12, position[0] - 2e-12)
    found, all_corners = (_largest_sums(near, 0.1, (9.0, 24), np.array([at]), bounds) for at in (position, turned))
    np.testing.assert_allclose(found, all_corners, rtol=1e-9, atol=1e-9)


def test_a_flatter_curve_would_be_found_wrong() -> None:
    """The comparison above can fail: at two thirds of the distance the curve is too low."""
    lattice = lattice_of(20.0)
    curve = lattice_curve(lattice.spec, 10)
    p, q = rows(lattice, (15, 0))
    losses = loss_grid(curve.largest, len(curve.deltas))
    assert (np.maximum(p - np.exp(losses)[:, None] * q, 0).sum(axis=1) > curve.deltas).any()


def planar_laplace(loss: float, reports: int) -> tuple[float, float]:
    """Return bounds of how often the best guess is right, by polar coordinates: losses rounded down and up."""
    radii, angles, steps = 1500, 500, 500
    r = np.linspace(0, 30, radii + 1)
    mass = np.diff(-(1 + r) * np.exp(-r))[:, None] / angles
    r = (r[1:, None] + r[:-1, None]) / 2
    turn = (np.arange(angles) + 0.5) / angles * np.pi
    losses = (np.sqrt(r * r - 2 * r * loss * np.cos(turn) + loss * loss) - r) * (steps / loss)
    found = []
    for rounded in (np.floor(losses), np.ceil(losses)):
        p = np.bincount(rounded.astype(int).ravel() + steps, np.broadcast_to(mass, losses.shape).ravel())
        count = (len(p) - 1) * reports + 1
        size = 1 << count.bit_length()
        summed = np.fft.irfft(np.fft.rfft(p / p.sum(), size) ** reports, size)[:count]
        total = (np.arange(count) - steps * reports) * (loss / steps)
        found.append(0.5 + summed[total > 0] @ -np.expm1(-total[total > 0]) / 2)
    return found[0], found[1]


@pytest.mark.parametrize(
    ("epsilon", "apart", "reports", "right"),
    [
        (4.0, 20, 120, 0.622),
        (4.0, 100, 120, 0.938),
        (4.0, 50, 30, 0.651),
        (4.0, 100, 30, 0.779),
        (4.0, 100, 8, 0.655),
        (4.0, 100, 240, 0.985),
    ],
)
def test_certainty_of_planar_laplace_noise(epsilon: float, apart: int, reports: int, right: float) -> None:
    """A lattice is planar Laplace noise in cells, with a rate of .9965·ε: the bound is within .2 points of it."""
    low, high = planar_laplace(epsilon * apart / 1000, reports)
    assert (low + high) / 2 == pytest.approx(right, abs=0.001)
    assert low < in_frame(lattice_of(epsilon), apart, reports).right < right + 0.002
    # For small losses it tends to a normal distribution.
    assert right == pytest.approx(float(norm.cdf(epsilon * apart / 1000 * math.sqrt(reports / 2) / 2)), abs=0.003)


# By `dp_accounting_bounds`: how often the best guess between two points of a lattice is right, at most and at least.
REFERENCE = [
    (4.0, (50, 0), 1, 0.531535, 0.531559),
    (4.0, (50, 0), 30, 0.649736, 0.650261),
    (4.0, (20, 0), 120, 0.619989, 0.622262),
    (4.0, (60, 80), 120, 0.936675, 0.937054),
]


def dp_accounting_bounds(p: Floats, q: Floats, reports: int) -> tuple[float, float]:
    """Return the same by Google's library of privacy loss distributions."""
    why = "dp-accounting wants attrs < 24: it needs an environment of its own"
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason=why)
    logs = [dict(enumerate(np.log(each).tolist())) for each in (q, p)]
    found = (
        pld.from_two_probability_mass_functions(*logs, pessimistic_estimate=up, value_discretization_interval=1e-4)
        for up in (False, True)
    )
    low, high = ((1 + each.self_compose(reports).get_delta_for_epsilon(0.0)) / 2 for each in found)
    return float(low), float(high)


@pytest.mark.parametrize(("epsilon", "apart", "reports", "low", "high"), REFERENCE)
def test_as_dp_accounting_says(epsilon: float, apart: tuple[int, int], reports: int, low: float, high: float) -> None:
    found = in_frame(lattice_of(epsilon), math.hypot(*apart), reports).right
    assert low < found < high + 0.0015


@pytest.mark.parametrize(("epsilon", "apart", "reports", "low", "high"), REFERENCE)
def test_dp_accounting_still_says_so(
    epsilon: float, apart: tuple[int, int], reports: int, low: float, high: float
) -> None:
    assert dp_accounting_bounds(*rows(lattice_of(epsilon), apart), reports) == pytest.approx((low, high), abs=2e-6)


@pytest.mark.parametrize(("epsilon", "apart", "reports"), [(4.0, (100, 0), 8), (4.0, (30, 40), 30)])
def test_simulated_guesses_are_never_surer(epsilon: float, apart: tuple[int, int], reports: int) -> None:
    """The guess by the likelihood ratio is the best there is: it comes near the bound, and never above it."""
    lattice, rng, guesses = lattice_of(epsilon), np.random.default_rng(8), 20_000
    p, q = rows(lattice, apart)
    losses = np.log(p / q)
    right = 0
    for truth, sign in ((p, 1), (q, -1)):
        cells = np.searchsorted(np.cumsum(truth), rng.random((guesses, reports)))
        right += int(np.count_nonzero(sign * losses[cells].sum(axis=1) > 0))
    deviation = 5 * math.sqrt(0.25 / (2 * guesses))
    bound = in_frame(lattice, math.hypot(*apart), reports).right
    assert bound - 0.005 - deviation < right / (2 * guesses) < bound + deviation


@pytest.mark.parametrize("reports", [1, 2, 7, 40])
def test_randomised_response_is_a_binomial(reports: int) -> None:
    """Two rows with two outputs: the closed form is exact, and so are δ, ε and the trade-off curve."""
    truth = math.exp(0.3) / (1 + math.exp(0.3))
    found = compose(LossCurve(0.3, np.empty(0)), apart_m=1, reports=reports)
    counts = np.arange(reports + 1)
    p, q = binom.pmf(counts, reports, truth), binom.pmf(counts, reports, 1 - truth)
    assert 0 <= found.right - (0.5 + np.abs(p - q).sum() / 4) <= found.error
    for epsilon in (0.1, 0.5, 1.5):
        delta = np.maximum(p - math.exp(epsilon) * q, 0).sum()
        assert 0 <= found.delta(epsilon) - delta <= 2 * found.error
        if delta > 1e-9:
            assert found.epsilon(delta) == pytest.approx(epsilon, abs=1e-6)
    for count in counts:
        alarms = q[count + 1 :].sum()
        assert found.missed(alarms) == pytest.approx(p[: count + 1].sum(), abs=1e-9)
    assert found.error < 1e-10


def test_curves_are_bounded_by_what_a_pair_of_distributions_can_be() -> None:
    """The pair of a curve has the curve's values or less where they bend the wrong way, and is a distribution."""
    losses = loss_grid(1.0, 10)
    bent = norm.cdf(0.1 - losses / 0.2) - np.exp(losses) * norm.cdf(-0.1 - losses / 0.2)  # of Gaussian noise
    bent[5] += 0.1  # above the chord of its neighbours
    step, masses = LossCurve(1.0, bent).pair()
    at = (np.arange(-11, 11, dtype=np.float64) + 0.5) * step
    assert (masses >= 0).all()
    assert masses.sum() == pytest.approx(1)
    assert masses @ np.exp(-at) == pytest.approx(1)
    np.testing.assert_allclose(masses[::-1], masses * np.exp(-at), atol=1e-15)
    found = excess(masses, at, losses)
    assert (found <= bent + 1e-12).all()
    np.testing.assert_allclose(np.delete(found, 5), np.delete(bent, 5), atol=1e-6)


def test_of_very_many_reports_each_has_fewer_losses() -> None:
    curve = lattice_curve(lattice_of(4.0).spec, 0.5)
    fine, coarse = (compose(curve, apart_m=0.5, reports=reports) for reports in (2**16, 2**20))
    assert len(coarse.losses) < 2**22
    assert 0.5 < fine.right < coarse.right < 1
    assert coarse.right >= float(norm.cdf(0.002 * 0.993 * math.sqrt(2**19) / 2))


def test_rounding_of_coordinates_is_added() -> None:
    lattice = lattice_of(4.0)
    added = 2 * lattice.certificate.rounding_mm / 1000
    assert certainty(lattice, apart_m=100, reports=3).right == in_frame(lattice, 100 + added, 3).right
    assert certainty(lattice, apart_m=20_000).right == 1  # beyond all bounds that are worth computing


def test_zones_by_all_pairs_of_rows(tmp_path: Path) -> None:
    """One report: the largest total variation of two rows that histories so near to one another can use."""
    bundle = load_zones(save_located(tmp_path / "a.bundle"))
    assert bundle.snapping_radius_m is not None
    for apart_m in (1.0, 500.0):
        largest = 0.0
        for bundled in bundle.mechanisms:
            p = bundled.mechanism.probabilities
            counted = 1 + sum(bundled.history_weights_micro) / 1e6
            near = bundled.mechanism.distance_mm <= 1000 * (apart_m + 2 * bundle.snapping_radius_m) * counted + 1
            largest = max(largest, *(np.abs(p[i] - p[j]).sum() / 2 for i, j in np.argwhere(near)))
        # The curve has a kink at even odds, which lies between two losses of the grid.
        assert 0.5 + largest / 2 <= certainty(bundle, apart_m=apart_m).right <= 0.5 + largest / 2 + 0.005
    assert bundle.promise.meaning[0] == bundle.promise.certain


def test_zones_whose_past_is_known_have_no_bound(tmp_path: Path) -> None:
    known = BundledMechanism.of(tight(), zone="centre", regime="day", history_weights=[math.inf])
    save_bundle(tmp_path / "a.bundle", [known], version=1, domain="ab" * 32)
    assert certainty(load_bundle(tmp_path / "a.bundle")).right == 1


def test_too_many_pairs_of_rows_have_the_pure_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = tight()
    tightly = rows_curve([(mechanism, 10**6)])
    monkeypatch.setattr("geoblanket.mechanism.certainty._MOST_PAIRS", 1)
    pure = rows_curve([(mechanism, 10**6)])
    assert pure.largest == mechanism.epsilon
    tight_right, right = (compose(curve, apart_m=1, reports=3).right for curve in (tightly, pure))
    assert tight_right < right


def test_words_round_up() -> None:
    assert [times_in_100(right) for right in (0.5, 0.501, 0.65999, 0.66, 0.9901, 1)] == [50, 51, 66, 66, 100, 100]
    assert in_frame(lattice_of(4.0), 50, 30).in_words() == "50 m apart: right 66 times in 100 (50 would be chance)"


@pytest.mark.parametrize("wrong", [{"apart_m": 0}, {"apart_m": math.nan}, {"reports": 0}, {"reports": 2**21}])
def test_what_cannot_be_asked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="must be"):
        certainty(lattice_of(4.0), **wrong)
    with pytest.raises(ParameterError, match="δ must be"):
        in_frame(lattice_of(4.0), 100, 1).epsilon(0)
