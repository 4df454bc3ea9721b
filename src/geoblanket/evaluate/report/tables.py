"""The tables of a comparison's report."""

from __future__ import annotations

from collections.abc import Sequence

from geoblanket._page import Page
from geoblanket.evaluate.measures.values import Value
from geoblanket.evaluate.report.answers import worth_left
from geoblanket.evaluate.report.figure_style import label_of
from geoblanket.evaluate.report.panels import Panel, Verdict, decide, saved
from geoblanket.evaluate.report.wording import number, percent, reference_epsilon

__all__ = [
    "add_efficiency",
    "add_gains",
    "add_losses",
    "add_privacy",
    "add_tracking",
    "efficiency_table",
    "gain_rows",
    "loss_table",
    "privacy_table",
]

_NONE = "–"


Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Header and rows."""


def loss_table(panel: Panel) -> Table:
    """Return the held-out losses of all methods at every ε, with half their intervals."""
    rows = [
        (label_of(method), *(_with_interval(panel.value(method, "held_out_loss", point)) for point in panel.points))
        for method in panel.methods
    ]
    return ("", *(f"ε = {number(point)}" for point in panel.points)), rows


def add_losses(page: Page, panel: Panel) -> None:
    """Add the held-out losses of all methods at every ε, with intervals."""
    page.table(
        *loss_table(panel),
        caption=f"{panel.city.title()}: loss on held-out walks, {panel.unit('held_out_loss')}, with 95 % intervals"
        f"{_sample(panel)}.",
    )


def gain_rows(panel: Panel, method: str, others: Sequence[str]) -> list[tuple[str, ...]]:
    """Return by how much a method's loss is below others', a row for each ε."""
    return [(number(point), *(_gain(saved(panel, method, other, point)) for other in others)) for point in panel.points]


def add_gains(page: Page, panel: Panel, *, method: str, others: Sequence[str]) -> None:
    """Add by how much a method's loss is below others' at every ε."""
    page.table(
        ("ε per km", *(f"below {label_of(other)} by" for other in others)),
        gain_rows(panel, method, others),
        caption=f"{panel.city.title()}: what {label_of(method)} saves on held-out walks, with 95 % intervals of the "
        "difference on the same vehicles. A question mark: it cannot be decided which is the lower one.",
    )


def privacy_table(panel: Panel) -> Table:
    """Return leakage and attacks of all methods at one ε."""
    point = reference_epsilon(panel)
    columns = (
        ("ε spent", "epsilon_effective"),
        ("worst leakage", "leakage_max"),
        ("mean leakage", "leakage_expected"),
        ("error of a guess, km", "inference_error"),
        ("right guesses", "inference_success"),
        ("… knowing the place before: error, km", "context_inference_error"),
        ("right", "context_inference_success"),
        ("… tracking: error, km", "tracking_error"),
        ("right", "tracking_success"),
    )
    shown = [(name, measure) for name, measure in columns if panel.has(measure)]
    rows = [
        (label_of(method), *(_cell(panel.value(method, measure, point), measure) for _, measure in shown))
        for method in panel.methods
    ]
    return (f"ε = {number(point)} per km", *(name for name, _ in shown)), rows


def add_privacy(page: Page, panel: Panel) -> None:
    """Add leakage and attacks of all methods at one ε."""
    point = reference_epsilon(panel)
    page.table(
        *privacy_table(panel),
        caption=f"{panel.city.title()} at ε = {number(point)} per km: leakage per km, and attackers on one report, on "
        "one report whose place before they know, and on reports in a row.",
    )


def add_tracking(page: Page, panel: Panel, methods: Sequence[str], *, reports: int | None) -> None:
    """Add what several reports cost by composition, beside what a tracking attacker makes of them."""
    row = "several" if reports is None else f"{reports}"
    header = ["ε per km"]
    for method in methods:
        header += [f"{label_of(method)}: bound, per km", "right guesses"]
    header.append("without reports")
    rows = []
    for point in panel.points:
        cells = [number(point)]
        for method in methods:
            cells += [
                _cell(panel.value(method, "composed_epsilon", point), "composed_epsilon"),
                _cell(panel.value(method, "tracking_success", point), "tracking_success"),
            ]
        guess = next((value for one in methods if (value := panel.value(one, "tracking_success_prior", point))), None)
        rows.append((*cells, _cell(guess, "tracking_success_prior")))
    page.table(
        header,
        rows,
        caption=f"{panel.city.title()}: what {row} reports in a row cost by composition, for a way that is moved all "
        "along, and how often the tracking attacker names the right place.",
    )


def efficiency_table(panel: Panel) -> Table:
    """Return what mechanisms cost to make, ship and use, at one ε."""
    point = reference_epsilon(panel)
    columns = (
        ("rows", "rows"),
        ("outputs used", "outputs"),
        ("build, s", "build_seconds"),
        ("memory, MB", "peak_memory_mb"),
        ("bundle, kB", "bundle_bytes"),
        ("one report, µs", "release_us"),
        ("gap to the optimum", "gap"),
    )
    shown = [(name, measure) for name, measure in columns if panel.has(measure)]
    rows = [
        (
            label_of(method),
            *(_cell(panel.value(method, measure, point), measure) for _, measure in shown),
            _NONE if (left := worth_left(panel, method, point)) is None else percent(left),
        )
        for method in panel.methods
    ]
    return (f"ε = {number(point)} per km", *(name for name, _ in shown), "worth of reports left"), rows


def add_efficiency(page: Page, panel: Panel) -> None:
    """Add what mechanisms cost to make, ship and use, at one ε."""
    point = reference_epsilon(panel)
    page.table(
        *efficiency_table(panel),
        caption=f"{panel.city.title()} at ε = {number(point)} per km. Rows, seconds and bytes of all zones together; "
        "outputs: mean number of places that are reported in more than one of a thousand cases. Of what exact reports "
        "are worth, 0 is left by always the same place, and less by what is worse.",
    )


def _sample(panel: Panel) -> str:
    """Return how many held-out vehicles and steps losses are of, if known."""
    for method in panel.methods:
        for point in panel.points:
            vehicles, steps = (panel.number(method, f"held_out_{what}", point) for what in ("vehicles", "steps"))
            if vehicles is not None and steps is not None:
                return f"; {vehicles:,.0f} vehicles, {steps:,.0f} steps"
    return ""


def _with_interval(value: Value | None) -> str:
    if value is None:
        return _NONE
    if value.low is None or value.high is None:
        return f"{value.value:.3f}"
    return f"{value.value:.3f} ±{(value.high - value.low) / 2:.3f}"


def _gain(difference: Value | None) -> str:
    if difference is None:
        return _NONE
    sure = ""
    if difference.low is not None and difference.high is not None:
        sure = f" ±{50 * (difference.high - difference.low):.1f}"
    doubt = " ?" if decide(difference) is Verdict.UNDECIDED else ""
    return f"{difference.value:.1%}{sure}{doubt}".replace("-", "−")


def _cell(value: Value | None, measure: str) -> str:
    if value is None:
        return _NONE
    if "success" in measure or measure == "gap":
        return f"{value.value:.1%}"
    if measure == "bundle_bytes":
        return f"{value.value / 1000:,.1f}"
    return number(float(f"{value.value:.3g}"))
