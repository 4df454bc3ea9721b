"""The two stages of a zone, against what is known of it: the optimum over fine rows, as HiGHS finds it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from geoblanket.build.rows import make_problem, make_rows
from geoblanket.lab.refinement import refine, split_rows
from geoblanket.loss.standard import StraightLine
from geoblanket.mechanism import Mechanism, Problem, optimise
from geoblanket.mechanism.bundle.storage import BundledMechanism, save_bundle
from tests.build.worlds import counted, grid, straight_on
from tests.mechanism.bundles import load_zones

PLACES = grid(3, 2)
COUNTS = counted(straight_on(PLACES, 4000))


@pytest.mark.parametrize("exponent", [0.1, 1.0, 3.0])
def test_two_parts_that_want_opposite_reports(exponent: float) -> None:
    """One row, two places, each right for one of two equally probable parts: the optimum is known, and keeps means."""
    apart = np.array([[0.0, 1.0], [1.0, 0.0]])
    fine = Problem(apart, np.full(2, 0.5), apart, epsilon=exponent)
    first = Mechanism.from_probabilities(
        [[0.5, 0.5]], Problem(np.ones((1, 2)), np.ones(1), np.zeros((1, 1)), epsilon=exponent)
    )
    refined = refine(first, fine, np.zeros(2, np.int32))
    assert refined.expected_loss(fine) == pytest.approx(1 / (1 + math.exp(exponent)), rel=1e-4)


@pytest.mark.parametrize(("context", "weights"), [("none", (1.0,)), ("order:1", (1.0, 0.5)), ("none", (math.inf,))])
@pytest.mark.parametrize("epsilon", [2.0, 8.0])
def test_refined_rows_lie_between_the_optimum_and_the_first_stage(
    context: str, weights: tuple[float, ...], epsilon: float, tmp_path: Path
) -> None:
    coarse = make_rows(PLACES, range(6), COUNTS, reach_m=500.0, context=context, history_weights=weights, max_rows=15)
    fine = split_rows(coarse, PLACES, COUNTS, reach_m=500.0, history_weights=weights)
    loss = StraightLine(PLACES)
    reduced, problem = (make_problem(rows, loss, epsilon=epsilon, eta_km=2.0) for rows in (coarse, fine))
    first = optimise(reduced, gap=1e-4).mechanism
    unreduced = optimise(problem, gap=1e-6, method="highs")
    part_of = coarse.row_of(fine.histories)
    mechanism = refine(first, problem, part_of, time_limit_s=60.0)
    copied = Mechanism.from_weights(first.weights[part_of], problem)
    assert unreduced.lower_bound <= mechanism.expected_loss(problem) < copied.expected_loss(problem)
    for row in range(len(coarse)):
        inside = part_of == row
        mean = fine.prior[inside] @ mechanism.probabilities[inside] / fine.prior[inside].sum()
        assert mean == pytest.approx(first.probabilities[row], abs=2e-6)
    # By the verifier of bundles, which recomputes all distances from the coordinates.
    bundled = BundledMechanism.of(
        mechanism, zone="z", regime="all day", history_weights=fine.history_weights, histories=fine.histories,
        output_places=fine.zone,
    )  # fmt: skip
    save_bundle(tmp_path / "z.bundle", [bundled], version=1, snapping_radius_mm=1000, places_e7=fine.places_e7)
    loaded = load_zones(tmp_path / "z.bundle").get("z", "all day").mechanism
    assert (loaded.probabilities == mechanism.probabilities[:, mechanism.weights.any(axis=0)]).all()


def test_places_that_tell_nothing_gain_nothing() -> None:
    """Places that do not tell more than the row itself: a weight of 0 hides them."""
    coarse = make_rows(PLACES, range(6), COUNTS, reach_m=500.0, context="none", history_weights=(0.0,))
    fine = split_rows(coarse, PLACES, COUNTS, reach_m=500.0, history_weights=(0.0,))
    loss = StraightLine(PLACES)
    reduced, problem = (make_problem(rows, loss, epsilon=4.0) for rows in (coarse, fine))
    first, part_of = optimise(reduced, gap=1e-4).mechanism, coarse.row_of(fine.histories)
    refined, copied = refine(first, problem, part_of), Mechanism.from_weights(first.weights[part_of], problem)
    assert len(fine) > len(coarse)
    assert refined.expected_loss(problem) == pytest.approx(copied.expected_loss(problem), rel=1e-5)
