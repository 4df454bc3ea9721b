from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.evaluate.measures.catalogue import Measure, Value
from geoblanket.evaluate.methods import METHODS
from geoblanket.evaluate.report.figures import apart, look_of, measure_figure, pareto_front
from geoblanket.evaluate.report.panels import Panel, main_panels
from tests.evaluate.made_up import made_up


@given(
    heights=st.lists(st.floats(-10, 10), min_size=1, max_size=12),
    least=st.floats(0.01, 2),
)
def test_labels_are_moved_apart_in_their_order_and_not_further_than_needed(heights: list[float], least: float) -> None:
    given_heights = np.array(heights)
    placed = apart(given_heights, least)
    order = np.argsort(given_heights, kind="stable")
    assert all(above - below >= least * (1 - 1e-6) for below, above in pairwise(placed[order]))
    assert placed.mean() == pytest.approx(given_heights.mean(), abs=1e-6)
    wide = all(above - below > least for below, above in pairwise(given_heights[order]))
    if wide:
        np.testing.assert_allclose(placed, given_heights)


def test_every_method_has_its_own_look() -> None:
    looks = [look_of(method) for method in METHODS]
    assert len({(look.colour, look.marker, look.dashes) for look in looks}) == len(METHODS)


def test_lines_are_labelled_and_axes_have_units() -> None:
    methods = ["lp_cmdp", "lp"]
    figure = measure_figure(main_panels(made_up()), [Measure.HELD_OUT_LOSS], methods=methods)
    (axes,) = figure.axes
    assert {"LP+C-mDP", "LP"} <= {text.get_text() for text in axes.texts}
    assert axes.get_ylabel() == "loss, km\n(less is better)"
    assert "per km" in axes.get_xlabel()
    np.testing.assert_allclose(np.asarray(axes.lines[1].get_ydata()), [1.0, 2**-0.25, 4**-0.25])


def test_no_line_is_cut_where_cities_differ() -> None:
    import polars as pl

    losses = {"lp": 1.0}
    results = pl.concat([made_up(losses), made_up({"lp": 3.0}, city="rome")])
    figure = measure_figure(main_panels(results), [Measure.HELD_OUT_LOSS], methods=["lp"])
    assert figure.axes[0].get_ylim()[1] > 3.0
    assert figure.axes[0].get_ylim()[0] == 0.0


points = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=15)


@given(points=points)
def test_the_front_is_what_no_other_point_beats(points: list[tuple[float, float]]) -> None:
    values: dict[tuple[str, float | str, str], Value] = {}
    for epsilon, (error, loss) in enumerate(points):
        values["lp", float(epsilon), "tracking_error"] = Value("tracking_error", error, "km")
        values["lp", float(epsilon), "held_out_loss"] = Value("held_out_loss", loss, "km")
    panel = Panel("", "", "", "epsilon", {}, values)
    front = {(error, loss) for error, loss, _, _ in pareto_front(panel, "tracking_error", ["lp"])}
    beaten = {
        (error, loss)
        for error, loss in points
        if any(e >= error and other <= loss and (e, other) != (error, loss) for e, other in points)
    }
    assert front == set(points) - beaten
