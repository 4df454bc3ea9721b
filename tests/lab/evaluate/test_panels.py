from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest

from geoblanket._display import Interval
from geoblanket.lab.evaluate.measures import Value
from geoblanket.lab.evaluate.panels import Relation, decide, main_panels, saved, sweep_panels
from tests.lab.evaluate.made_up import EPSILONS, LOSSES, made_up


def test_the_main_comparison_is_the_one_along_epsilon() -> None:
    several = pl.concat([
        made_up({"lp": 1.0}, epsilons=(2.0,), experiment="sweep", eta_km=1.0),
        made_up(),
        made_up(city="rome"),
        made_up(variant="delay 2"),
        made_up(zone=3),
    ])  # fmt: skip
    panels = main_panels(several)
    assert [(panel.experiment, panel.city) for panel in panels] == [("made up", "porto"), ("made up", "rome")]
    assert panels[0].points == EPSILONS
    assert panels[0].methods == tuple(LOSSES)
    value = panels[0].value("lp", "held_out_loss", 4.0)
    assert value is not None
    assert value.value == pytest.approx(4**-0.25)


@pytest.mark.parametrize(
    ("columns", "along", "points"),
    [
        ([{"history_weight": w} for w in (math.inf, 0.0, 1.0)], "history_weight", (0.0, 1.0, math.inf)),
        ([{"max_places": count} for count in (80, 20)], "max_places", (20, 80)),
        ([{}, {"variant": "delay 4"}], "delay", (1.0, 4.0)),
        ([{}, {"variant": "blanket too short"}], "blanket", ("as told", "too short")),
        ([{"variant": f"{count} rows"} for count in (900, 100)], "rows", (100.0, 900.0)),
        ([{}, {"variant": "T = 20"}], "reports", (10.0, 20.0)),
    ],
)
def test_what_was_varied_is_found(columns: list[dict[str, Any]], along: str, points: tuple[float | str, ...]) -> None:
    results = pl.concat([made_up({"lp": 1.0, "lp_cmdp": 0.9}, epsilons=(2.0,), **one) for one in columns])
    (panel,) = sweep_panels(results, reports=10)
    assert (panel.along, panel.points) == (along, points)
    assert panel.setting["epsilon"] == 2.0


def test_equal_cost_is_compared_along_epsilon() -> None:
    (panel,) = sweep_panels(made_up(variant="equal cost per location"))
    assert (panel.along, panel.points) == ("equal cost", EPSILONS)


def test_experiments_are_never_mixed_and_several_changes_at_once_are_no_sweep() -> None:
    apart = pl.concat([made_up(experiment="one"), made_up(experiment="two", eta_km=1.0)])
    assert sweep_panels(apart) == []
    assert sweep_panels(pl.concat([made_up(), made_up(variant="equal cost per location; delay 4")])) == []


def test_the_paired_interval_goes_before_the_separate_ones() -> None:
    results = made_up(uncertainty=0.15)
    (panel,) = main_panels(results)
    paired = saved(panel, "lp_cmdp", "lp", 2.0)
    assert paired is not None
    assert paired.interval is not None
    assert paired.value == pytest.approx(0.2)
    assert paired.interval.low == pytest.approx(0.05)
    (alone,) = main_panels(results.filter(~pl.col("measure").str.starts_with("gain_over")))
    separate = saved(alone, "lp_cmdp", "lp", 2.0)
    assert separate is not None
    assert separate.interval is not None
    assert separate.value == pytest.approx(0.2)
    assert separate.interval.low == pytest.approx(1 - 0.8 * 1.15 / 0.85)
    assert (decide(paired), decide(separate)) == (Relation.LOWER, Relation.UNDECIDED)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.02, 0.05, Relation.LOWER),
        (-0.05, -0.02, Relation.HIGHER),
        (-0.02, 0.05, Relation.UNDECIDED),
        (0.001, 0.009, Relation.ALIKE),
        (None, None, Relation.UNDECIDED),
    ],
)
def test_an_interval_decides(low: float | None, high: float | None, verdict: Relation) -> None:
    assert decide(Value("saved", 0.01, "", Interval.of(low, high))) is verdict
    assert decide(None) is Relation.UNDECIDED
