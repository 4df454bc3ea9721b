"""The report of a comparison: three short answers, figures, tables, and everything that was set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket._arguments import checked
from geoblanket._display import Progress, number, parameter, percent, silent
from geoblanket._page import Page, ReportFolder
from geoblanket.evaluate.measures.catalogue import CONTEXT_INFERENCE, INFERENCE, TRACKING, Measure
from geoblanket.evaluate.report.comparison import (
    PAPER_METHODS,
    Comparison,
    best_plain,
    deciding_measure,
    label_of,
    primary,
    recommended,
    reference_epsilon,
    worth_left,
)
from geoblanket.evaluate.report.figures import SWEEPS, caption, make_figures, sweep_name
from geoblanket.evaluate.report.panels import Panel, Relation, decide, saved
from geoblanket.evaluate.report.tables import (
    add_second_stages,
    efficiency_table,
    gain_cell,
    gain_table,
    hour_table,
    loss_cell,
    loss_table,
    privacy_table,
    sweep_table,
    tracked_table,
    tracking_table,
    whole_city_table,
    zones_table,
)
from geoblanket.evaluate.sanity import CHECK_NAMES, Violation, check_results
from geoblanket.evaluate.settings import Varied

__all__ = ["SOUND", "Chapter", "answers", "compared_with", "write_report"]

SOUND = "Is the comparison sound?"
_MOST_SHOWN = 30


def _add_sanity(page: Page, violations: Sequence[Violation], notes: Sequence[str]) -> None:
    """Add what was checked, what does not hold (in red), and what should be known about single methods."""
    page.heading(SOUND)
    page.paragraph("What must hold in every comparison that is not broken, in every setting and zone:")
    broken = {violation.check for violation in violations}
    page.table(
        ("check", "result"),
        [(name, "VIOLATED" if name in broken else "holds") for name in CHECK_NAMES],
        words=(0, 1),
    )
    if violations:
        page.warning(f"{len(violations)} violations. Do not trust this comparison before they are explained.")
        for violation in violations[:_MOST_SHOWN]:
            page.warning(f"{violation.check}: {violation.where}: {violation.detail}")
        if len(violations) > _MOST_SHOWN:
            page.warning(f"{len(violations) - _MOST_SHOWN} more are in results.parquet.")
    if notes:
        page.subheading("Notes on single methods")
        rest = [f"And {len(notes) - _MOST_SHOWN} more."] if notes[_MOST_SHOWN:] else []
        page.bullets([*notes[:_MOST_SHOWN], *rest])


def _add_parameters(page: Page, about: Mapping[str, Any]) -> None:
    """Add everything that was set, the files and the software."""
    page.heading("Every parameter")
    for name, experiment in about.get("experiments", {}).items():
        page.subheading(f"Experiment “{name}”")
        plain = [(key, parameter(value)) for key, value in experiment.items() if key not in ("settings", "name")]
        page.table(("parameter", "value"), plain, words=(0, 1))
        settings = experiment.get("settings", [])
        if settings:
            shared = {key for key in settings[0] if len({parameter(setting.get(key)) for setting in settings}) == 1}
            page.table(
                ("of all settings", "value"),
                [(key, parameter(settings[0][key])) for key in sorted(shared)],
                words=(0, 1),
            )
            varied = [key for key in settings[0] if key not in shared]
            if varied:
                rows = [tuple(parameter(setting.get(key)) for key in varied) for setting in settings]
                page.table(varied, rows, caption="Settings, by what differs.", words=range(len(varied)))
    inputs = [
        (f"{city}: {name}", parameter(value))
        for city, files in about.get("cities", {}).items()
        for name, value in files.items()
    ]
    page.table(
        ("what", "identity or version"),
        [*inputs, *((name, parameter(value)) for name, value in about.get("software", {}).items())],
        caption="Inputs (by their SHA-256) and software.",
        words=(0, 1),
    )


Chapter = Callable[[Page, Comparison], Mapping[str, Any]]
"""Adds to the page of a comparison; returns what `report.json` keeps of it."""

_QUESTIONS = ("Which mechanism should I use?", "What does privacy cost?", "Would an attacker win?")
_COMPARED_WITH = (*PAPER_METHODS[1:], "planar_laplace_remap")


@checked
def write_report(
    results: pl.DataFrame,
    out: str | Path,
    *,
    about: Mapping[str, Any],
    title: str = "Mechanisms compared",
    chapters: Sequence[Chapter] = (),
    progress: Progress = silent,
) -> Path:
    """Write `report.html`, `report.json` and the figures (PNG and SVG) of a comparison to a folder.

    Parameters
    ----------
    results
        A table of `RESULTS_SCHEMA`.
    out
        The folder; it is made where it does not exist.
    about
        How the results were made, as `read_results` returns it.
    title
        Of the page.
    chapters
        What else the page tells, before its checks.

    Returns
    -------
    page
        Where the page is.

    Raises
    ------
    OutputError
        If something cannot be written.
    """
    folder = ReportFolder(out)
    comparison, violations = Comparison.of(results, about), check_results(results)
    folder.draw(make_figures(comparison), progress)
    sentences = _answers(comparison)
    page = Page(title, lead=_lead(comparison))
    if violations:
        page.warning(f"{len(violations)} things that must hold in every sound comparison do not: see “{SOUND}”.")
    for question, cities in sentences.items():
        page.heading(question)
        for city, lines in cities.items():
            page.subheading(city.title())
            page.bullets(lines)
    _add_measurements(page, comparison, folder)
    add_second_stages(page, results)
    more: dict[str, Any] = {}
    for add_chapter in chapters:
        more |= add_chapter(page, comparison)
    _add_sanity(page, violations, about.get("notes", []))
    _add_parameters(page, about)
    folder.write_json(
        "report.json",
        {
            "title": title,
            "answers": sentences,
            "figures": {name: caption(name) for name in folder.widths},
            **more,
            "violations": [violation.as_dict() for violation in violations],
        },
    )
    return folder.write_page(page)


@checked
def answers(results: pl.DataFrame, about: Mapping[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Return what results say: one line for each question and city.

    Parameters
    ----------
    results, about
        As for `write_report`.
    """
    return _answers(Comparison.of(results, about))


def _answers(comparison: Comparison) -> dict[str, dict[str, list[str]]]:
    """Return one line for each question and city, filled in from the tables at one ε."""
    which, cost, attack = _QUESTIONS
    told: dict[str, dict[str, list[str]]] = {question: {} for question in _QUESTIONS}
    for panel in comparison.main:
        told[which][panel.city] = _which(panel, comparison.equal_cost(panel.city))
        told[cost][panel.city] = _cost(panel)
        told[attack][panel.city] = _attack(panel, comparison.reports)
    return told


def _which(panel: Panel, equal_cost: Panel | None) -> list[str]:
    """Return which method to use at one ε, for each report and, if that was compared, for each location."""
    method, context, plain = recommended(panel), primary(panel), best_plain(panel)
    if method is None:
        return []
    point, measure = reference_epsilon(panel), deciding_measure(panel)
    choice = f"Use {label_of(method)}"
    losses = [
        f"{label_of(key)} loses {loss_cell(panel.value(key, measure, point))} {panel.unit(measure)}"
        for key in (context, plain)
        if key is not None
    ]
    if context is not None and plain is not None:
        per_location = None
        if equal_cost is not None and {context, plain} <= set(equal_cost.methods):
            per_location = recommended(equal_cost)
        if per_location is not None and per_location != method:
            choice += f" if ε is for each report, {label_of(per_location)} if it is for each location"
        elif per_location is None and method == context:
            # A location counts in later reports too, if they look at the past: that was not compared.
            choice += " if ε is for each report"
        difference = saved(panel, context, plain, point, measure)
        if decide(difference) is Relation.UNDECIDED:
            losses.append("it cannot be decided which is lower")
        else:
            losses.append(f"{label_of(context)} saves {gain_cell(difference)}")
    tracked = ", tracked" if measure == Measure.TRACKED_LOSS else ""
    return [f"{choice}. At ε = {number(point)} per km{tracked}: {'; '.join(losses)}."]


def _cost(panel: Panel) -> list[str]:
    """Return the loss of the recommended method, between exact reports and none."""
    method, point = recommended(panel), reference_epsilon(panel)
    if method is None:
        return []
    unit = panel.unit(Measure.HELD_OUT_LOSS)
    line = (
        f"{label_of(method)} loses {loss_cell(panel.value(method, Measure.HELD_OUT_LOSS, point))} {unit} at "
        f"ε = {number(point)} per km."
    )
    exact, nothing = (panel.number(method, name, point) for name in (Measure.NO_PRIVACY_LOSS, Measure.CONSTANT_LOSS))
    if (left := worth_left(panel, method, point)) is not None:
        line += (
            f" Exact reports would lose {exact:.3g} {unit}, constant ones {nothing:.3g} {unit}: in design, "
            f"{percent(left)} of what reports are worth is left."
        )
    return [line]


def _attack(panel: Panel, reports: int | None) -> list[str]:
    """Return how often the strongest attacker that was measured is right about the recommended method."""
    method, point = recommended(panel), reference_epsilon(panel)
    for attack, sees in (
        (TRACKING, f"{'several' if reports is None else reports} reports in a row"),
        (CONTEXT_INFERENCE, "a report and knows the place before"),
        (INFERENCE, "a single report"),
    ):
        if method is None or (success := panel.number(method, attack.success, point)) is None:
            continue
        blind, error = (panel.number(method, measure, point) for measure in (attack.blind_success, attack.error))
        return [
            f"{'Yes' if success > 0.5 else 'No'}: at ε = {number(point)} per km with {label_of(method)}, an attacker "
            f"that sees {sees} names the right place in {percent(success)} of cases"
            + ("" if blind is None else f" ({percent(blind)} without reports)")
            + ("." if error is None else f", and is {error:.2g} km off on average.")
        ]
    return []


def compared_with(methods: Sequence[str], method: str) -> list[str]:
    """Return those of some methods whose losses a method's are told against."""
    return [other for other in _COMPARED_WITH if other in methods and other != method]


def _add_measurements(page: Page, comparison: Comparison, folder: ReportFolder) -> None:
    def show(*names: str) -> None:
        for name in names:
            folder.show(page, name, caption(name))

    pairs = {panel.city: comparison.pair(panel) for panel in comparison.main}
    page.heading("Loss against ε")
    show("loss", "gain", "loss-in-use")
    for panel in comparison.main:
        loss_table(panel).add_to(page)
        if (pair := pairs[panel.city]) is not None:
            gain_table(panel, pair[0], compared_with(panel.methods, pair[0])).add_to(page)
    show("one-destination", "case-ii")
    for panel in comparison.other_losses:
        page.subheading(f"Loss: {panel.loss_case}")
        loss_table(panel).add_to(page)
    _add_tracked(page, comparison)
    page.heading("Leakage and attackers")
    show("leakage", "inference", "context-inference")
    for panel in comparison.main:
        privacy_table(panel).add_to(page)
    page.heading("Reports in a row")
    show("tracking", sweep_name(Varied.REPORTS))
    for panel in comparison.main:
        if (pair := pairs[panel.city]) is not None and panel.has(TRACKING.success):
            tracking_table(panel, pair, reports=comparison.reports).add_to(page)
    page.heading("Utility against privacy")
    show("pareto")
    _add_sweeps(page, comparison, show)
    _add_whole_city(page, comparison)
    page.heading("Time, memory and size")
    show("build-time")
    for panel in comparison.main:
        efficiency_table(panel).add_to(page)


def _add_sweeps(page: Page, comparison: Comparison, show: Callable[[str], None]) -> None:
    """Add what was varied besides ε: a figure, and a table for each city."""
    if comparison.sweeps:
        page.heading("What else matters")
    if comparison.sweep(Varied.EQUAL_COST):
        page.subheading("Equal cost per location")
        show("equal-cost")
    for along, name in SWEEPS.items():
        panels = comparison.sweep(along)
        if panels and along != Varied.REPORTS:
            page.subheading(name[0].upper() + name[1:])
            show(sweep_name(along))
            for panel in panels:
                if (pair := comparison.pair(panel)) is not None:
                    sweep_table(panel, name, pair).add_to(page)


def _add_tracked(page: Page, comparison: Comparison) -> None:
    """Add what becomes of vehicles that are tracked: in zones, without, and for the budget of an hour."""
    panels = [panel for panel in (*comparison.main, *comparison.whole_city) if panel.has(Measure.TRACKED_ERROR)]
    if not panels:
        return
    page.heading("Tracked by all reports")
    page.paragraph(
        "Nobody who receives reports forgets the earlier ones. A filter over all reports of a walk, with a model of "
        "how other vehicles move, costs no ε; the service and an attacker run the same one. Loss: of the service, when "
        "it uses a report. Error: of the best guess of where the vehicle is. Tracked: by all reports of the walk so "
        "far. With 95 % intervals over vehicles; a question mark: it cannot be decided which is lower."
    )
    for panel in panels:
        tracked_table(panel).add_to(page)
        equal_cost = comparison.equal_cost(panel.city) if panel in comparison.main else None
        if equal_cost is not None and equal_cost.has(Measure.TRACKED_ERROR):
            tracked_table(equal_cost, equal_cost=True).add_to(page)
    for hours in comparison.hours:
        hour_table(hours).add_to(page)


def _add_whole_city(page: Page, comparison: Comparison) -> None:
    """Add comparisons without zones, apart from those in zones: they promise different things."""
    if not comparison.whole_city:
        return
    page.heading("The whole city, and what zones give away")
    page.paragraph(
        "Without zones nothing but the report is disclosed. In zones reports are better, as they need not hide in "
        "which zone a vehicle is: everyone learns it. The two tables are not alternatives at the same promise."
    )
    for panel in comparison.whole_city:
        whole_city_table(panel).add_to(page)
        if (beside := comparison.zones_beside(panel)) is not None:
            zones_table(beside).add_to(page)


def _lead(comparison: Comparison) -> str:
    if not comparison.main:
        return "There are no results of all zones together."
    panel = comparison.main[0]
    setting = panel.setting
    checked = [
        value.value for main in comparison.main for key, value in main.values.items() if key[2] == Measure.VERIFIED
    ]
    verified = " Every mechanism was verified in exact arithmetic." if checked and all(checked) else ""
    return (
        f"{', '.join(main.city.title() for main in comparison.main)}. {len(panel.methods)} methods, places "
        f"{setting['spacing_m']:g} m apart, a report every {setting['interval_s']:g} s, zones of at most "
        f"{setting['max_places']:g} places, η = {number(setting['eta_km'])} km, "
        f"w = {number(setting['history_weight'])} for the place before.{verified}"
    )
