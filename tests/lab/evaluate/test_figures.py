from __future__ import annotations

import numpy as np

from geoblanket.lab.evaluate.figures import look_of, measure_figure
from geoblanket.lab.evaluate.measures import Measure
from geoblanket.lab.evaluate.methods import METHODS
from geoblanket.lab.evaluate.panels import main_panels
from tests.lab.evaluate.made_up import made_up


def test_every_method_has_its_own_look() -> None:
    looks = [look_of(method) for method in METHODS]
    assert len({(look.colour, look.marker, look.dashes) for look in looks}) == len(METHODS)


def test_lines_are_named_and_axes_have_units() -> None:
    methods = ["lp_cmdp", "lp"]
    figure = measure_figure(main_panels(made_up()), [Measure.HELD_OUT_LOSS], methods=methods)
    (axes,) = figure.axes
    assert [text.get_text() for text in figure.legends[0].texts] == ["LP+C-mDP", "LP"]
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


def test_no_name_in_the_legend_is_cut_off() -> None:
    methods = ["lp_cmdp", "lp_markov1", "lp", "planar_laplace", "planar_laplace_remap", "tight"]
    figure = measure_figure(main_panels(made_up()), [Measure.HELD_OUT_LOSS], methods=methods)
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= legend.x0 < legend.x1 <= figure.bbox.x1
