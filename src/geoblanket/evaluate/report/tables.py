"""The tables of a comparison's report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from geoblanket._display import UNKNOWN, number, percent, text
from geoblanket._page import Page
from geoblanket.evaluate.measures.catalogue import ATTACKS, TRACKING, Measure, Value
from geoblanket.evaluate.methods import METHODS
from geoblanket.evaluate.report.comparison import label_of, reference_epsilon, worth_left
from geoblanket.evaluate.report.panels import WIDE_GAP, HourPanel, Panel, Relation, decide, saved
from geoblanket.evaluate.results import ALL_ZONES, SETTING_COLUMNS

__all__ = [
    "Table",
    "add_second_stages",
    "efficiency_table",
    "gain_cell",
    "gain_table",
    "hour_table",
    "loss_cell",
    "loss_table",
    "privacy_table",
    "second_stage_tables",
    "sweep_table",
    "tracked_table",
    "tracking_table",
    "whole_city_table",
    "zones_table",
]


@dataclass(frozen=True)
class Table:
    """A table of texts; the first column holds words."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str

    def add_to(self, page: Page) -> None:
        """Add it to a page."""
        page.table(self.header, self.rows, caption=self.caption)


def loss_table(panel: Panel) -> Table:
    """Return the held-out losses of all methods at every ε, with half their intervals."""
    return Table(
        ("", *(f"ε = {number(point)}" for point in panel.points)),
        [
            (
                label_of(method),
                *(loss_cell(panel.value(method, Measure.HELD_OUT_LOSS, point)) for point in panel.points),
            )
            for method in panel.methods
        ],
        f"{panel.city.title()}: loss on held-out walks, {panel.unit(Measure.HELD_OUT_LOSS)}, with 95 % intervals"
        f"{_sample(panel)}.",
    )


def gain_table(panel: Panel, method: str, others: Sequence[str]) -> Table:
    """Return by how much a method's loss is below others', a row for each ε."""
    return Table(
        ("ε per km", *(f"below {label_of(other)} by" for other in others)),
        [
            (number(point), *(gain_cell(saved(panel, method, other, point)) for other in others))
            for point in panel.points
        ],
        f"{panel.city.title()}: what {label_of(method)} saves on held-out walks, with 95 % intervals of the difference "
        "on the same vehicles. A question mark: it cannot be decided which is lower.",
    )


def privacy_table(panel: Panel) -> Table:
    """Return leakage and attacks of all methods at one ε."""
    attacks = (measure for attack in ATTACKS for measure in (attack.error, attack.success))
    header, rows = _at_one_epsilon(
        panel, (Measure.EPSILON_EFFECTIVE, Measure.LEAKAGE_MAX, Measure.LEAKAGE_EXPECTED, *attacks)
    )
    return Table(
        header,
        rows,
        f"{panel.city.title()} at {header[0]}: leakage per km, and attackers on one report, on one report whose place "
        "before they know, and on reports in a row.",
    )


def efficiency_table(panel: Panel) -> Table:
    """Return what mechanisms cost to make, ship and use, at one ε."""
    measures = (
        Measure.ROWS,
        Measure.OUTPUTS,
        Measure.BUILD_SECONDS,
        Measure.PEAK_MEMORY_MB,
        Measure.BUNDLE_BYTES,
        Measure.RELEASE_US,
        Measure.GAP,
    )
    header, rows = _at_one_epsilon(panel, measures)
    point = reference_epsilon(panel)
    left = (worth_left(panel, method, point) for method in panel.methods)
    return Table(
        (*header, "worth of reports left"),
        [(*row, UNKNOWN if share is None else percent(share)) for row, share in zip(rows, left, strict=True)],
        f"{panel.city.title()} at {header[0]}. Rows, seconds and bytes of all zones together; outputs: mean number of "
        "places that are reported in more than one of a thousand cases. Of what exact reports are worth, always the "
        "same place leaves 0, and what is worse than that leaves less.",
    )


def tracking_table(panel: Panel, methods: Sequence[str], *, reports: int | None) -> Table:
    """Return what several reports cost by composition, beside what a tracking attacker makes of them."""
    shown = (Measure.COMPOSED_EPSILON, TRACKING.success)
    names = (name for method in methods for name in (f"{label_of(method)}: bound, per km", "right guesses"))
    rows = []
    for point in panel.points:
        cells = (cell(panel.value(method, measure, point), measure) for method in methods for measure in shown)
        blind = next((value for key in methods if (value := panel.value(key, TRACKING.blind_success, point))), None)
        rows.append((number(point), *cells, cell(blind, TRACKING.blind_success)))
    return Table(
        ("ε per km", *names, "without reports"),
        rows,
        f"{panel.city.title()}: what {'several' if reports is None else reports} reports in a row cost by composition, "
        "for a way that is moved all along, and how often the tracking attacker names the right place.",
    )


_OF_ONE_REPORT = (
    Measure.DISPLACEMENT, Measure.INFERENCE_ERROR, Measure.CONTEXT_INFERENCE_ERROR, Measure.INFERENCE_ERROR_PRIOR,
    Measure.EPSILON_EFFECTIVE, Measure.BUILD_SECONDS, Measure.BUNDLE_BYTES,
)  # fmt: skip


def whole_city_table(panel: Panel) -> Table:
    """Return what methods without zones promise, how far off one report is, and what an attacker makes of it."""
    header, rows = _at_every_epsilon(panel, _OF_ONE_REPORT)
    return Table(
        header,
        rows,
        f"{panel.city.title()}, the whole city, no zone disclosed: any two places are protected from each other, by "
        "the lattice any two coordinates. Errors are straight lines. Off: the best place for a report, as the receiver "
        "knows it, from the true one. Error of a guess: an attacker who sees one report, as it was sent.",
    )


def zones_table(panel: Panel) -> Table:
    """Return the same for methods in zones, and what the zones give away by themselves."""
    header, rows = _at_every_epsilon(panel, (*_OF_ONE_REPORT, Measure.CROSSING_ERROR, Measure.CROSSING_SHARE))
    return Table(
        header,
        rows,
        f"{panel.city.title()}, zones of at most {panel.setting['max_places']:g} places, the zone of the true place "
        "disclosed: only places of one zone are protected from each other. Without the report, an attacker still knows "
        "the zone; at a crossing, the zone before too. Means over zones, by their steps.",
    )


def _at_every_epsilon(panel: Panel, measures: Sequence[Measure]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the header and a row for each method and ε, of those measures that were taken."""
    shown = [measure for measure in measures if panel.has(measure)]
    rows = [
        (label_of(method), number(point), _between(method), *cells)
        for point in panel.points
        for method in panel.methods
        if (cells := [cell(panel.value(method, measure, point), measure) for measure in shown])
    ]
    return ("", "ε per km", "promise between", *(measure.column for measure in shown)), rows


def _between(method: str) -> str:
    return "coordinates" if method == "lattice" else "places"


def _at_one_epsilon(panel: Panel, measures: Sequence[Measure]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the header and a row for each method, of those measures that were taken."""
    point = reference_epsilon(panel)
    shown = [measure for measure in measures if panel.has(measure)]
    rows = [
        (label_of(method), *(cell(panel.value(method, measure, point), measure) for measure in shown))
        for method in panel.methods
    ]
    return (f"ε = {number(point)} per km", *(measure.column for measure in shown)), rows


def _sample(panel: Panel) -> str:
    """Return how many held-out vehicles and steps losses are of, if known."""
    for method in panel.methods:
        for point in panel.points:
            vehicles, steps = (
                panel.number(method, name, point) for name in (Measure.HELD_OUT_VEHICLES, Measure.HELD_OUT_STEPS)
            )
            if vehicles is not None and steps is not None:
                return f"; {vehicles:,.0f} vehicles, {steps:,.0f} steps"
    return ""


def loss_cell(value: Value | None) -> str:
    """Return a loss or an error with half its interval."""
    if value is None or value.interval is None:
        return UNKNOWN if value is None else f"{value.value:.3f}"
    return f"{value.value:.3f} ±{value.interval.half:.3f}"


def gain_cell(difference: Value | None) -> str:
    """Return a share saved with half its interval, and whether it is in doubt."""
    if difference is None:
        return UNKNOWN
    sure = f" ±{100 * difference.interval.half:.1f}" if difference.interval is not None else ""
    return f"{text(difference.value, '.1%')}{sure}{' ?' if decide(difference) is Relation.UNDECIDED else ''}"


def cell(value: Value | None, measure: Measure) -> str:
    """Return a value as its measure is written."""
    return UNKNOWN if value is None else measure.text(value.value)


def sweep_table(panel: Panel, name: str, pair: tuple[str, str]) -> Table:
    """Return the losses of two methods along what was varied, and by how much the first is below the second."""
    method, other = pair
    return Table(
        (name, label_of(method), label_of(other), f"below {label_of(other)} by"),
        [
            (
                number(point),
                *(loss_cell(panel.value(key, Measure.HELD_OUT_LOSS, point)) for key in pair),
                gain_cell(saved(panel, method, other, point)),
            )
            for point in panel.points
        ],
        f"{panel.city.title()}, ε = {panel.setting['epsilon']:g} per km: loss on held-out walks, "
        f"{panel.unit(Measure.HELD_OUT_LOSS)}, with 95 % intervals. A question mark: it cannot be decided which is "
        "lower.",
    )


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


_STAGES_HEADER = (
    "", "ε", "first stage", "refined", "gain", "direct", "gain", "bound", "held out: first stage", "refined", "direct",
)  # fmt: skip
_Losses = Mapping[tuple[str, str], float]
"""By method and measure."""


def add_second_stages(page: Page, results: pl.DataFrame) -> None:
    """Add a table for each city and kind of loss that has methods of two stages."""
    tables = list(second_stage_tables(results))
    if not tables:
        return
    page.heading("What a second stage gains")
    page.paragraph(
        "The first stage finds mechanisms over coarse rows. The second splits these by one more place of the past and "
        "lets the parts differ, while on average they report as before. All losses in design are over the split rows. "
        "Direct: the split rows solved without a first stage, and below which proven bound no mechanism over them is. "
        "What that gains more is what keeping to the first stage costs."
    )
    for table in tables:
        table.add_to(page)


def second_stage_tables(results: pl.DataFrame) -> Iterator[Table]:
    """Yield the losses of two-stage methods, of all zones together, a table for each comparison.

    Parameters
    ----------
    results
        A table of `RESULTS_SCHEMA`.
    """
    refined = [key for key, method in METHODS.items() if method.stages is not None]
    together = results.filter(zone=ALL_ZONES)
    shared = [name for name in SETTING_COLUMNS if name not in ("method", "epsilon")]
    for keys, part in together.group_by(shared, maintain_order=True):
        setting = dict(zip(shared, keys, strict=True))
        rows = [row for (epsilon,), cell in part.group_by("epsilon", maintain_order=True)
                for row in _stage_rows(_stage_losses(cell), refined, float(epsilon))]  # fmt: skip  # type: ignore[arg-type]  # a group key
        if rows:
            yield Table(_STAGES_HEADER, rows, _stages_caption(setting, part))


def _stage_losses(part: pl.DataFrame) -> _Losses:
    return {
        (method, measure): value for method, measure, value in part.select("method", "measure", "value").iter_rows()
    }


def _stage_rows(losses: _Losses, refined: list[str], epsilon: float) -> Iterator[tuple[str, ...]]:
    for method in refined:
        stages = METHODS[method].stages
        before, loss = (losses.get((method, name)) for name in (Measure.FIRST_STAGE_LOSS, Measure.DESIGN_LOSS))
        if stages is None or before is None or loss is None:
            continue
        first, direct = stages
        best = losses.get((direct, Measure.DESIGN_LOSS))
        held_out = (losses.get((key, Measure.HELD_OUT_LOSS)) for key in (first, method, direct))
        yield (
            METHODS[first].label, f"{epsilon:g}", _four_digits(before), _four_digits(loss), _gain(loss, before),
            _four_digits(best), _gain(best, before),
            _four_digits(losses.get((method, Measure.LOWER_BOUND))), *map(_four_digits, held_out),
        )  # fmt: skip


def _stages_caption(setting: Mapping[str, Any], part: pl.DataFrame) -> str:
    unit = part.filter(measure=Measure.DESIGN_LOSS)["unit"][0]
    variant = f", {setting['variant']}" if setting["variant"] else ""
    return (
        f"{str(setting['city']).title()}, {setting['experiment']}{variant}: expected loss ({setting['loss_case']}, "
        f"{unit}), zones of at most {setting['max_places']} places."
    )


def _four_digits(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.4f}"


def _gain(loss: float | None, before: float) -> str:
    return UNKNOWN if loss is None or not before > 0 else f"{1 - loss / before:.2%}"
