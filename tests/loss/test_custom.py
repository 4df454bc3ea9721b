from __future__ import annotations

import numpy as np
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.loss.place_loss import FunctionLoss, LossTable, PlaceLoss, TableLoss
from geoblanket.loss.standard import StraightLine, TravelCost
from geoblanket.loss.tasks import TaskPrior
from geoblanket.roads.places import choose_places
from tests.loss.roads import ONE_WAY_RING, roads
from tests.roads.graphs import grid_graph


def test_straight_line_is_the_great_circle_in_km() -> None:
    places = choose_places(grid_graph(3, 4))
    found = StraightLine(places)([0, 5], [5, 11, 2]).values
    for i, true in enumerate([0, 5]):
        for j, reported in enumerate([5, 11, 2]):
            metres = haversine_m(places.lat[true], places.lon[true], places.lat[reported], places.lon[reported])
            assert found[i, j] == pytest.approx(float(metres) / 1000, rel=1e-12)
    assert found[1, 0] == 0


def test_a_table_gives_its_rows_and_columns() -> None:
    values = np.arange(16.0).reshape(4, 4)
    loss = TableLoss(values, unit="minutes")
    np.testing.assert_array_equal(loss([3, 0], [1, 1, 2]).values, values[[3, 0]][:, [1, 1, 2]])
    values[:] = -1  # the loss has its own copy
    assert loss([0], [1]).values == 1


def test_a_function_is_asked_for_what_is_needed() -> None:
    loss = FunctionLoss(lambda true, reported: np.abs(true[:, None] - 2 * reported[None, :]), 10, unit="€")
    np.testing.assert_array_equal(loss([1, 2, 9], [0, 5]).values, [[1, 9], [2, 8], [9, 1]])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([[0.0, np.nan], [1.0, np.nan]], r"2 values that are not numbers, 0 infinite and 0 negative ones of 4"),
        ([[0.0, 1.0], [np.inf, 1.0]], r"1 infinite.*row 1 and column 0"),
        ([[0.0, -1e-300], [1.0, 1.0]], r"1 negative"),
        ([[0.0], [1.0]], r"returned \(2, 1\)"),
        ([0.0, 1.0], r"shape \(2,\)"),
        ([["a", "b"], ["c", "d"]], "numbers"),
        (None, "shape|numbers"),
    ],
)
def test_a_function_that_returns_no_losses_is_refused(returned: object, message: str) -> None:
    loss = FunctionLoss(lambda true, reported: returned, 5, unit="km")  # type: ignore[arg-type, return-value]  # noqa: ARG005
    with pytest.raises(ParameterError, match=message):
        loss([0, 1], [2, 3])


@pytest.mark.parametrize("values", [np.zeros((2, 3)), np.full((2, 2), np.nan), np.full((2, 2), -1.0), np.zeros(4)])
def test_what_is_not_a_table_is_refused(values: np.ndarray) -> None:
    with pytest.raises(ParameterError):
        TableLoss(values, unit="km")


def test_places_out_of_range_are_refused() -> None:
    with pytest.raises(ParameterError, match="true places must be indices of places from 0 to 2"):
        TableLoss(np.zeros((3, 3)), unit="km")([3], [0])
    with pytest.raises(ParameterError, match="reported places"):
        FunctionLoss(lambda true, reported: np.zeros((len(true), len(reported))), 3, unit="km")([0], [-1])
    with pytest.raises(ParameterError, match="reported places"):
        StraightLine(choose_places(roads(ONE_WAY_RING)))([0], [3])


def test_standard_errors_must_fit() -> None:
    with pytest.raises(ParameterError, match="one shape"):
        LossTable(np.zeros((2, 2)), np.zeros((2, 1)))
    with pytest.raises(ParameterError, match="standard error"):
        LossTable(np.zeros((1, 1)), np.full((1, 1), np.nan))


def test_all_losses_have_one_interface() -> None:
    graph = roads(ONE_WAY_RING)
    places = choose_places(graph)
    losses: list[PlaceLoss] = [
        StraightLine(places),
        TableLoss(np.ones((3, 3)), unit="km"),
        FunctionLoss(lambda true, reported: np.ones((len(true), len(reported))), 3, unit="km"),
        TravelCost(graph, places, TaskPrior.uniform(graph)),
    ]
    for loss in losses:
        assert loss.name
        assert loss.unit == "km"
        table = loss([0, 1], [0, 1, 2])
        assert table.values.shape == (2, 3)
        assert not table.values.flags.writeable
