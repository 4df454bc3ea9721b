"""Vehicles that leave the map: the cells around it, the filter over them, and circles on synthetic walks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from geoblanket import make_lattice
from geoblanket._arrays import Floats, Ints
from geoblanket.loss import StraightLine
from geoblanket.mechanism.bundle.storage import LatticeBundle
from geoblanket.tracking.estimate import Estimator
from geoblanket.tracking.filtering import BeliefFilter, Sequences, follow
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.observation import LaplaceObservations, LatticeObservations, Reports
from geoblanket.tracking.surroundings import surrounded
from geoblanket.tracking.tracker import Tracker
from tests.release.worlds import PLACES

SLOT = 57_326_400
SPREAD_M = 100.0
INTERVAL_S = 30.0


def town(across: int = 5) -> MotionModel:
    """Places 250 m apart, in a square; a vehicle moves to near places."""
    steps = np.arange(across) * 22_500
    places_e7 = np.array([[411_000_000 + north, -86_000_000 + east * 4 // 3] for north in steps for east in steps])
    by_distance = MotionModel.by_distance(places_e7.astype(np.int32), interval_s=INTERVAL_S)
    return replace(by_distance, places_identity="a town", spread_m=SPREAD_M)


def lattice_over(model: MotionModel, path: Path, *, epsilon: float) -> LatticeBundle:
    corners = (model.lat.min(), model.lon.min(), model.lat.max(), model.lon.max())
    return make_lattice(corners, path, epsilon=epsilon, interval_s=INTERVAL_S, hold_m=0)


def by_hand(model: MotionModel, cell_xy: Floats, side_m: float) -> Floats:
    """The moves of the surrounded model, move by move, from the coordinates of places and cells alone."""
    places, cells = len(model.xy_m), len(cell_xy)
    crossing = min(2 / 3, 10.0 * INTERVAL_S / side_m)
    along = {-1: crossing / 2, 0: 1 - crossing, 1: crossing / 2}
    square = np.round((np.concatenate([model.xy_m, cell_xy]) - cell_xy[0]) / side_m).astype(int)
    result = np.zeros((places + cells, places + cells))
    for one in range(places + cells):
        for other in range(places + cells):
            east, north = (square[other] - square[one]).tolist()
            if (one < places and other < places) or max(abs(east), abs(north)) > 1:
                continue
            result[one, other] = along[east] * along[north]
            if one < places:
                result[one, other] *= 0.4
            elif other < places:
                result[one, other] /= (square[:places] == square[other]).all(axis=1).sum()
    roads = model.moves.toarray().astype(float)
    result[:places, :places] = roads * (1 - result[:places].sum(axis=1, keepdims=True))
    moves: Floats = result / result.sum(axis=1, keepdims=True)
    return moves


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_moves_are_those_made_by_hand(epsilon: float) -> None:
    model = town(3)
    found = surrounded(model, epsilon=epsilon)
    assert found.map_places == 9
    assert found.cell_m == pytest.approx(max(2000 / epsilon, 600.0), rel=0.01)
    np.testing.assert_allclose(found.moves.toarray(), by_hand(model, found.xy_m[9:], found.cell_m), atol=1e-5)
    np.testing.assert_allclose(found.start[9:].sum(), 0.1, rtol=1e-5)
    assert found.spreads_m[0] == SPREAD_M
    assert found.spreads_m[-1] == pytest.approx(found.cell_m / 6**0.5)


def test_beliefs_are_those_of_all_paths(tmp_path: Path) -> None:
    """Three reports, and every path of three states, one after the other, with its probability."""
    model = town(2)
    bundle = lattice_over(model, tmp_path / "a.bundle", epsilon=1.0)
    tracker = Tracker(bundle, model)
    across = bundle.lattice.spec.cells_across
    outputs = across * (across // 2) + across // 2 + np.array([4, 9, 13])
    for number, output in enumerate(outputs.tolist()):
        tracker.see("car", SLOT + number, output)
    around = tracker.model
    none = np.zeros(3, np.int64)
    seen = LatticeObservations(bundle.lattice, around, interval_s=INTERVAL_S).likelihood(Reports(outputs, none, none))
    once = around.moves.toarray().astype(float)
    moves = (once + once @ once) / 2
    # `paths[i, j, k]` is the probability of the path i, j, k and the three reports.
    first = around.start * seen[:, 0]
    paths = first[:, None, None] * (moves * seen[:, 1])[:, :, None] * (moves * seen[:, 2])[None]
    exact = paths.sum(axis=(0, 1)) / paths.sum()
    assert 0.01 < exact[4:].sum() < 0.99
    np.testing.assert_allclose(tracker.places("car")[:, 0], exact, atol=2e-5)


def test_a_loss_chooses_among_the_places_of_the_map(tmp_path: Path) -> None:
    """A loss knows no cells: of a vehicle far in the east, it chooses a place at the eastern border."""
    model = replace(
        MotionModel.by_distance(PLACES.coordinates_e7, interval_s=INTERVAL_S), places_identity=PLACES.identity
    )
    bundle = lattice_over(model, tmp_path / "a.bundle", epsilon=1.0)
    spec, tracker = bundle.lattice.spec, Tracker(bundle, model)
    x, y = (int(axis) // spec.cell_units for axis in spec.plane.units(model.lat.mean(), model.lon.max() + 0.06))
    for number in range(6):
        tracker.see("car", SLOT + number, y * spec.cells_across + x)
    assert tracker.estimate("car").lon[0] > model.lon.max() + 0.01
    assert tracker.estimate("car", loss=StraightLine(PLACES)).lon[0] == pytest.approx(model.lon.max(), abs=1e-6)


def drawn_cells(bundle: LatticeBundle, xy_m: Floats, model: MotionModel, rng: np.random.Generator) -> Ints:
    """The lattice's cells that planar Laplace noise leads to, from a seed."""
    spec = bundle.lattice.spec
    angle, radius = rng.uniform(0, 2 * np.pi, len(xy_m)), rng.gamma(2.0, 1e9 / spec.epsilon_micro, len(xy_m))
    lat, lon = model.to_degrees(xy_m + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1))
    x, y = spec.plane.units(lat, lon)
    cells: Ints = (y // spec.cell_units) * spec.cells_across + x // spec.cell_units
    return cells


def test_a_vehicle_that_leaves_the_map_is_followed_there_and_back(tmp_path: Path) -> None:
    """It drives 4 km to the east, rests there, and comes back: beyond the frame, too, which ends after 2.5 km."""
    model = town()
    bundle = lattice_over(model, tmp_path / "a.bundle", epsilon=4.0)
    east = np.concatenate([np.zeros(10), np.arange(0, 2000, 250), np.full(10, 2000), np.arange(2000, 0, -250),
                           np.zeros(10)])  # fmt: skip
    way = np.stack([east, np.zeros(len(east))], axis=-1)
    rng = np.random.default_rng(3)
    outside = east > 1000
    errors = {}
    for name in ("surrounded", "map alone"):
        filtering = (
            BeliefFilter.of(bundle, model)
            if name == "surrounded"
            else BeliefFilter(model, LatticeObservations(bundle.lattice, model, interval_s=INTERVAL_S))
        )
        estimator, error_m, on_map = Estimator(filtering.model), np.empty((20, len(way))), np.empty((20, len(way)))
        for again in range(20):
            cells = drawn_cells(bundle, way, model, rng)

            def note(
                at: Ints,
                belief: np.ndarray,
                off: Floats = error_m[again],
                on: Floats = on_map[again],
                filtering: BeliefFilter = filtering,
                estimator: Estimator = estimator,
            ) -> None:
                places = filtering.places(belief)
                off[at] = np.hypot(*(estimator.points(places) - way[at]).T)
                on[at] = places[: model.place_count].sum(axis=0)

            follow(filtering, Sequences(np.arange(len(way)), cells, np.zeros(1, np.int64)), note)
        errors[name] = error_m[:, outside].mean()
        if name == "surrounded":
            assert on_map[:, -1].mean() > 0.9
            assert on_map[:, outside].mean() < 0.3
    assert errors["surrounded"] < 500  # what one report is off by on average
    assert errors["map alone"] > 1000


def covered(model: MotionModel, xy_m: Floats, starts: Ints, *, epsilon: float, keeps_direction: bool = False) -> float:
    """How often circles hold vehicles at these points, by reports of a fixed seed."""
    rng = np.random.default_rng(5)
    angle, radius = rng.uniform(0, 2 * np.pi, len(xy_m)), rng.gamma(2.0, 1000 / epsilon, len(xy_m))
    lat, lon = model.to_degrees(xy_m + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1))
    observations = LaplaceObservations(lat, lon, model, epsilon=epsilon, interval_s=INTERVAL_S)
    filtering = BeliefFilter(model, observations, keeps_direction=keeps_direction)
    estimator, held = Estimator(model), np.zeros(len(xy_m), bool)

    def note(at: Ints, belief: np.ndarray) -> None:
        found = estimator.estimates(filtering.places(belief))
        held[at] = np.hypot(*(model.to_plane(found.lat, found.lon) - xy_m[at]).T) <= found.radius_m

    follow(filtering, Sequences(np.arange(len(xy_m)), np.arange(len(xy_m)), starts), note)
    return float(held.mean())


@pytest.mark.parametrize("epsilon", [2.0, 4.0])
def test_circles_hold_nine_of_ten_vehicles_that_move_as_the_model_says(epsilon: float) -> None:
    """Walks drawn from the chain with its cells, each point around its place: the posterior is then exact."""
    model = surrounded(town(8), epsilon=epsilon)
    rng = np.random.default_rng(2)
    walks, steps = 400, 15
    ends = np.cumsum(model.moves.toarray().astype(float), axis=1)
    state = np.searchsorted(np.cumsum(model.start), rng.random(walks)).clip(max=len(model) - 1)
    states = [state]
    for _ in range(steps - 1):
        state = np.array([np.searchsorted(ends[one], rng.random()) for one in state]).clip(max=len(model) - 1)
        states.append(state)
    place = np.stack(states, axis=1).ravel()
    in_cell, near = rng.uniform(-0.5, 0.5, (len(place), 2)), rng.normal(size=(len(place), 2))
    outside = place[:, None] >= model.map_places
    points = model.xy_m[place] + np.where(outside, in_cell * model.cell_m, near * SPREAD_M / 2**0.5)
    assert 0.05 < outside.mean() < 0.6
    assert 0.88 < covered(model, points, np.arange(0, len(place), steps), epsilon=epsilon) < 0.93


def test_circles_of_order_1_hold_vehicles_that_keep_their_direction() -> None:
    """Vehicles that drive straight on for minutes: a chain without memory is too sure of them, unless it is told."""
    model = town(24)
    rng = np.random.default_rng(4)
    walks, steps = 200, 20
    heading = rng.uniform(0, 2 * np.pi, walks)
    speed = rng.uniform(0, 300, walks)
    start = rng.uniform(-800, 800, (walks, 2))
    along = (np.arange(steps) - steps / 2)[None, :, None] * (speed[:, None] * _unit(heading))[:, None]
    points = (start[:, None] + along).reshape(-1, 2)
    points = np.clip(points, model.xy_m.min(axis=0), model.xy_m.max(axis=0))
    starts = np.arange(0, len(points), steps)
    without, told = (covered(model, points, starts, epsilon=1.0, keeps_direction=keeps) for keeps in (False, True))
    assert without + 0.02 < told
    assert 0.89 < told < 0.93


def _unit(angle: Floats) -> Floats:
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)
