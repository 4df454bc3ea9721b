"""What a report says of vehicles that are tracked: mechanisms as they are used, and as an attacker uses them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from geoblanket._arrays import Floats
from geoblanket._display import number, percent
from geoblanket.evaluate.measures.catalogue import Measure
from geoblanket.evaluate.report.panels import WIDE_GAP, HourPanel, Panel, saved
from geoblanket.evaluate.report.tables import Table, cell, gain_cell, loss_cell
from geoblanket.evaluate.report.wording import label_of

__all__ = ["at_equal_error", "hour_table", "tracked_table", "whole_city_answers"]

_BESIDE = ("lp_cmdp", "lp_true_mb", "lp_markov1", "lp")
"""Methods in zones that are told of beside those without."""


def tracked_table(panel: Panel, *, equal_cost: bool = False) -> Table:
    """Return losses of single reports and of tracked ones, and how far off the tracker is, at every ε."""
    unit = panel.unit(Measure.TRACKED_LOSS)
    rows = [
        (
            f"{label_of(method)}{_unfinished(panel, method, point)}",
            number(point),
            cell(panel.value(method, Measure.EPSILON_PER_LOCATION, point), Measure.EPSILON_PER_LOCATION),
            loss_cell(panel.value(method, Measure.HELD_OUT_LOSS, point)),
            loss_cell(panel.value(method, Measure.TRACKED_LOSS, point)),
            gain_cell(None if method == "lp" else saved(panel, method, "lp", point, Measure.TRACKED_LOSS)),
            loss_cell(panel.value(method, Measure.SINGLE_ERROR, point)),
            loss_cell(panel.value(method, Measure.TRACKED_ERROR, point)),
        )
        for point in panel.points
        for method in panel.methods
        if panel.value(method, Measure.TRACKED_ERROR, point) is not None
    ]
    where = (
        f"zones of at most {panel.setting['max_places']:g} places, the zone disclosed"
        if "max_places" in panel.setting
        else "the whole city, no zone disclosed"
    )
    same = "the same cost per location" if equal_cost else "the same ε for each report"
    return Table(
        (
            "", "cost per location" if equal_cost else "ε per km", "a location costs", f"single loss, {unit}",
            f"tracked loss, {unit}", "below LP by", "one report: error, km", "tracked: error, km",
        ),
        rows,
        f"{panel.city.title()}, {where}, {same}{_blind(panel)}.",
    )  # fmt: skip


def _unfinished(panel: Panel, method: str, point: float | str) -> str:
    """Return what is to be said of a linear program that was stopped far from its optimum."""
    gap = panel.number(method, Measure.GAP, point)
    return "" if gap is None or gap <= WIDE_GAP else f" (search stopped at a gap of {percent(gap)})"


def _blind(panel: Panel) -> str:
    """Return how far off the tracker is without reports, if known."""
    known = "the zones alone" if "max_places" in panel.setting else "no report at all"
    values = panel.first_series(panel.methods, Measure.TRACKED_ERROR_PRIOR)
    return f"; by {known}, the tracker is {values[0][1].value:.3f} km off" if values else ""


def hour_table(panel: HourPanel) -> Table:
    """Return how far off the tracker is where an hour costs the same, by fewer reports that tell more."""
    where = "no zone disclosed" if panel.whole_city else "the zone disclosed"
    return Table(
        ("an hour costs", "", "report every", "a location costs", "tracked: error, km"),
        [
            (
                number(float(f"{way.per_hour:.3g}")),
                label_of(way.method),
                f"{way.seconds:g} s",
                number(float(f"{way.per_location:.3g}")),
                loss_cell(way.error),
            )
            for way in panel.ways
        ],
        f"{panel.city.title()}, {where}: the same budget for an hour. Errors are of all steps of {panel.interval_s:g} "
        "s, with a report or without.",
    )


def at_equal_error(panels: Sequence[Panel | None], method: str, other: str) -> str | None:
    """Say what a location costs with one method, compared with another, where the tracker is as far off."""
    ours, theirs = (_curve(panels, key) for key in (method, other))
    if len(theirs) < 2:
        return None
    errors, costs = theirs.T
    ratios = [
        float(cost / np.exp(np.interp(error, errors, np.log(costs))))
        for error, cost in ours
        if errors[0] <= error <= errors[-1]
    ]
    if not ratios:
        return None
    low, high = (f"{ratio:.2f}" for ratio in (min(ratios), max(ratios)))
    times = low if low == high else f"{low} to {high}"
    return (
        f"At equal error of the tracker, instead of equal ε, a location costs {times} times as much with "
        f"{label_of(method)} as with {label_of(other)} (interpolated between values of ε; no intervals)."
    )


def _curve(panels: Sequence[Panel | None], method: str) -> Floats:
    """Return the tracker's error and the cost per location at all points of a method, by the error, shape (n, 2)."""
    points = {
        (error, cost)
        for panel in panels
        if panel is not None
        for point in panel.points
        if (error := panel.number(method, Measure.TRACKED_ERROR, point)) is not None
        and (cost := panel.number(method, Measure.EPSILON_PER_LOCATION, point)) is not None
    }
    return np.array(sorted(points), np.float64).reshape(-1, 2)


def whole_city_answers(whole: Panel, zones: Panel | None, equal_cost: Panel | None) -> Iterator[str]:
    """Yield how far off the tracker is without zones, and beside that, with them."""
    for point in whole.points:
        without = _errors(whole, whole.methods, point)
        if not without:
            continue
        told = f"Tracked over the whole city at ε = {number(point)}, no zone disclosed: {without} off."
        for panel, words in (
            (zones, f"In zones, which are disclosed, at ε = {number(point)} for each report"),
            (equal_cost, f"In zones, with a cost of {number(point)} per location"),
        ):
            beside = "" if panel is None else _errors(panel, _BESIDE, point)
            told += f" {words}: {beside}." if beside else ""
        yield told


def _errors(panel: Panel, methods: Sequence[str], point: float | str) -> str:
    values = {
        key: panel.value(key, Measure.TRACKED_ERROR, point) for key in methods if not _unfinished(panel, key, point)
    }
    return ", ".join(f"{label_of(key)} {loss_cell(value)} km" for key, value in values.items() if value is not None)
