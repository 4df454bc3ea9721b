"""The tables of a comparison's report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geoblanket._numbers import UNKNOWN, number, percent, text
from geoblanket._page import Page
from geoblanket.evaluate.measures.catalogue import ATTACKS, TRACKING, Measure, Value
from geoblanket.evaluate.report.panels import Panel, Relation, decide, saved
from geoblanket.evaluate.report.wording import label_of, reference_epsilon, worth_left

__all__ = [
    "Table", "cell", "efficiency_table", "gain_cell", "gain_table", "loss_cell", "loss_table", "privacy_table",
    "tracking_table", "whole_city_table", "zones_table",
]  # fmt: skip


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
