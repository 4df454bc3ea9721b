"""From counts back to the chain that they were counted on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoblanket._arrays import Floats
from geoblanket.learning.chain_cells import ChainCells
from geoblanket.learning.estimating import NoisyCounts, estimated, summed
from geoblanket.learning.unit_counts import kinds_of, split_budget
from geoblanket.tracking.motion_model import MotionModel
from tests.learning.fleets import ORDERS, by_place, cell_runs, cells_of, off, truth_of, usually

TOTAL = 1e6


def exact_counts(cells: ChainCells, truth: MotionModel) -> dict[str, Floats]:
    """Shares of all kinds of numbers, as infinitely many steps of the true chain have them."""
    often = usually(truth)
    numbers = {name: {run: number for number, run in enumerate(runs)} for name, runs in cell_runs(cells).items()}
    shares: dict[str, Floats] = {name: np.zeros(len(runs)) for name, runs in numbers.items()}
    shares["places"], shares["units"] = by_place(truth, often), np.ones(1)
    for state in range(len(truth)):
        past = [int(place) for place in truth.states[state] if place >= 0][::-1]
        for move in range(int(truth.offsets[state]), int(truth.offsets[state + 1])):
            run = (*past, int(truth.states[truth.targets[move], 0]))
            for length, name in ((2, "moves"), (3, "runs"), (4, "long runs")):
                if len(run) >= length and run[-length:] in numbers[name]:
                    shares[name][numbers[name][run[-length:]]] += often[state] * truth.chances[move]
    shares["starts"] = by_place(truth, truth.start)
    shares["hours"], shares["lengths"] = truth.hours.astype(np.float64), truth.lengths.astype(np.float64)
    return {
        name: shares[kind.source] if kind.group is None else summed(shares[kind.source], kind.group, kind.cells)
        for name, kind in kinds_of(cells)
    }


@pytest.mark.parametrize("order", ORDERS)
def test_exact_counts_give_the_chain_back(order: int) -> None:
    cells, truth = cells_of(order), truth_of(order)
    told = {name: NoisyCounts(TOTAL * shares, 1e-3) for name, shares in exact_counts(cells, truth).items()}
    model = estimated(cells, told)
    assert off(model, truth) < 0.002
    assert off(cells.road, truth) > 0.1
    for name in ("hours", "lengths"):
        assert getattr(model, name) == pytest.approx(getattr(truth, name), abs=2e-3)
    starts, expected = (by_place(part, part.start) for part in (model, truth))
    assert starts == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("order", ORDERS)
def test_more_noise_tells_less_and_never_misleads(order: int) -> None:
    cells, truth = cells_of(order), truth_of(order)
    exact, rng, errors = exact_counts(cells, truth), np.random.default_rng(9), []
    for sigma in (1.0, 100.0, 1e4, 1e8):
        told = {
            name: NoisyCounts(TOTAL * shares + sigma * rng.normal(size=len(shares)), sigma)
            for name, shares in exact.items()
        }
        errors.append(off(estimated(cells, told), truth))
    road = off(cells.road, truth)
    assert errors[0] < errors[1] < errors[2] <= 1.02 * road
    assert errors[3] == pytest.approx(road, rel=0.02)


@pytest.mark.parametrize("order", ORDERS)
def test_few_parts_are_enough_for_a_model(order: int) -> None:
    """A small fleet counts neither moves nor runs: places and turns alone still bring the model nearer."""
    cells, truth = cells_of(order), truth_of(order)
    carried = split_budget(1e-4, 10, dict(kinds_of(cells)))
    assert not {"moves", "runs", "long runs"} & set(carried)
    exact = exact_counts(cells, truth)
    model = estimated(cells, {name: NoisyCounts(TOTAL * exact[name], 1e-3) for name in carried})
    assert off(model, truth) < off(cells.road, truth)
    visits, before = by_place(model, usually(model)), by_place(model, usually(cells.road))
    assert np.abs(visits - exact["places"]).sum() < 0.6 * np.abs(before - exact["places"]).sum()


@pytest.mark.parametrize("order", ORDERS)
def test_counts_that_are_all_negative_leave_the_model_of_the_roads(order: int) -> None:
    cells = cells_of(order)
    model = estimated(cells, {name: NoisyCounts(np.full(kind.cells, -1e6), 10.0) for name, kind in kinds_of(cells)})
    assert off(model, cells.road) < 0.01
    assert model.hours == pytest.approx(np.full(24, 1 / 24), abs=1e-3)


@settings(max_examples=20)
@given(st.sampled_from(ORDERS), st.integers(0, 10**6), st.floats(-9, 9), st.floats(-9, 9))
def test_any_counts_give_a_model(order: int, seed: int, size: float, noise: float) -> None:
    """`MotionModel` refuses probabilities below 0 or that do not sum to 1; nothing may be missing either."""
    cells, rng = cells_of(order), np.random.default_rng(seed)
    told = {name: NoisyCounts(10**size * rng.standard_cauchy(kind.cells), 10**noise) for name, kind in kinds_of(cells)}
    model = estimated(cells, told)
    for part in (model.chances, model.start, model.hours, model.lengths):
        assert np.isfinite(part).all()
    assert (model.targets == cells.road.targets).all()


@given(st.floats(1e-9, 100), st.integers(2, 10**8), st.sampled_from(ORDERS))
def test_parts_share_the_budget_and_no_more(rho: float, units: int, order: int) -> None:
    kinds = dict(kinds_of(cells_of(order)))
    shares = split_budget(rho, units, kinds)
    assert set(shares) <= set(kinds)
    assert {"hours", "lengths", "turns", "places", "starts"} <= set(shares)
    assert min(shares.values()) > 0
    assert 0.999 * rho < sum(shares.values()) <= rho
    fleet = units * np.sqrt(2 * rho)
    assert ("runs" in shares) == (fleet > 50 and order > 1)
    more = split_budget(rho, 10 * units, kinds)
    assert set(shares) <= set(more)
