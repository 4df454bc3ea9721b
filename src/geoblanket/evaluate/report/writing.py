"""The report of a comparison: answers in plain words, figures, tables, and everything that was set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket._arguments import checked
from geoblanket._numbers import number
from geoblanket._page import Page
from geoblanket._progress import Progress, silent
from geoblanket._report_folder import ReportFolder
from geoblanket.evaluate.measures.catalogue import TRACKING, Measure
from geoblanket.evaluate.report.answers import attack_answers, cost_answers, which_answers
from geoblanket.evaluate.report.chosen_figures import caption, make_figures, sweep_name
from geoblanket.evaluate.report.figures import SWEEPS
from geoblanket.evaluate.report.panels import Panel
from geoblanket.evaluate.report.second_stage import add_second_stages
from geoblanket.evaluate.report.sections import SOUND, add_parameters, add_sanity, sweep_sentences
from geoblanket.evaluate.report.story import PAPER_METHODS, Story
from geoblanket.evaluate.report.tables import (
    efficiency_table,
    gain_table,
    loss_table,
    privacy_table,
    tracking_table,
    whole_city_table,
    zones_table,
)
from geoblanket.evaluate.report.tracked import hour_table, tracked_table, whole_city_answers
from geoblanket.evaluate.sanity import check_results
from geoblanket.evaluate.settings import Varied

__all__ = ["Chapter", "answers", "compared_with", "write_report"]

Chapter = Callable[[Page, Story], Mapping[str, Any]]
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
    story, violations = Story.of(results, about), check_results(results)
    folder.draw(make_figures(story), progress)
    sentences = _answers(story)
    page = Page(title, lead=_lead(story))
    if violations:
        page.warning(f"{len(violations)} things that must hold in every sound comparison do not: see “{SOUND}”.")
    for question, cities in sentences.items():
        page.heading(question)
        for city, lines in cities.items():
            page.subheading(city.title())
            page.bullets(lines)
    _add_measurements(page, story, folder)
    add_second_stages(page, results)
    more: dict[str, Any] = {}
    for add_chapter in chapters:
        more |= add_chapter(page, story)
    add_sanity(page, violations, about.get("notes", []))
    add_parameters(page, about)
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
    """Return what results say, in sentences, by question and city.

    Parameters
    ----------
    results, about
        As for `write_report`.
    """
    return _answers(Story.of(results, about))


def _answers(story: Story) -> dict[str, dict[str, list[str]]]:
    which, cost, attack = _QUESTIONS
    return {
        which: {panel.city: [*_which(story, panel)] for panel in story.main},
        cost: {panel.city: list(cost_answers(panel)) for panel in story.main},
        attack: {panel.city: list(attack_answers(panel, reports=story.reports)) for panel in story.main},
    }


def _which(story: Story, panel: Panel) -> Iterator[str]:
    equal_cost = story.equal_cost(panel.city)
    yield from which_answers(panel, equal_cost)
    if (whole := story.tracked_beside(panel.city)) is not None:
        yield from whole_city_answers(whole, panel, equal_cost)


def compared_with(methods: Sequence[str], method: str) -> list[str]:
    """Return those of some methods whose losses a method's are told against."""
    return [other for other in _COMPARED_WITH if other in methods and other != method]


def _add_measurements(page: Page, story: Story, folder: ReportFolder) -> None:
    def show(*names: str) -> None:
        for name in names:
            folder.show(page, name, caption(name))

    pairs = {panel.city: story.pair(panel) for panel in story.main}
    page.heading("Loss against ε")
    show("loss", "gain", "loss-in-use")
    for panel in story.main:
        loss_table(panel).add_to(page)
        if (pair := pairs[panel.city]) is not None:
            gain_table(panel, pair[0], compared_with(panel.methods, pair[0])).add_to(page)
    show("one-destination", "case-ii")
    for panel in story.other_losses:
        page.subheading(f"Loss: {panel.loss_case}")
        loss_table(panel).add_to(page)
    _add_tracked(page, story)
    page.heading("Leakage and attackers")
    show("leakage", "inference", "context-inference")
    for panel in story.main:
        privacy_table(panel).add_to(page)
    page.heading("Reports in a row")
    show("tracking", sweep_name(Varied.REPORTS))
    for panel in story.main:
        if (pair := pairs[panel.city]) is not None and panel.has(TRACKING.success):
            tracking_table(panel, pair, reports=story.reports).add_to(page)
    page.heading("Utility against privacy")
    show("pareto")
    if story.sweeps:
        page.heading("What else matters")
    if story.sweep(Varied.EQUAL_COST):
        page.subheading("Equal cost per location")
        show("equal-cost")
    for along, name in SWEEPS.items():
        panels = story.sweep(along)
        if panels and along != Varied.REPORTS:
            page.subheading(name[0].upper() + name[1:])
            show(sweep_name(along))
            page.bullets(sentence for panel in panels for sentence in sweep_sentences(story, panel))
    _add_whole_city(page, story)
    page.heading("Time, memory and size")
    show("build-time")
    for panel in story.main:
        efficiency_table(panel).add_to(page)


def _add_tracked(page: Page, story: Story) -> None:
    """Add what becomes of vehicles that are tracked: in zones, without, and for the budget of an hour."""
    panels = [panel for panel in (*story.main, *story.whole_city) if panel.has(Measure.TRACKED_ERROR)]
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
        equal_cost = story.equal_cost(panel.city) if panel in story.main else None
        if equal_cost is not None and equal_cost.has(Measure.TRACKED_ERROR):
            tracked_table(equal_cost, equal_cost=True).add_to(page)
    for hours in story.hours:
        hour_table(hours).add_to(page)


def _add_whole_city(page: Page, story: Story) -> None:
    """Add comparisons without zones, apart from those in zones: they promise different things."""
    if not story.whole_city:
        return
    page.heading("The whole city, and what zones give away")
    page.paragraph(
        "Without zones nothing but the report is disclosed. In zones reports are better, as they need not hide in "
        "which zone a vehicle is: everyone learns it. The two tables are not alternatives at the same promise."
    )
    for panel in story.whole_city:
        whole_city_table(panel).add_to(page)
        if (beside := story.zones_beside(panel)) is not None:
            zones_table(beside).add_to(page)


def _lead(story: Story) -> str:
    if not story.main:
        return "There are no results of all zones together."
    panel = story.main[0]
    setting = panel.setting
    checked = [value.value for main in story.main for key, value in main.values.items() if key[2] == Measure.VERIFIED]
    verified = " Every mechanism was verified in exact arithmetic." if checked and all(checked) else ""
    return (
        f"{', '.join(main.city.title() for main in story.main)}. {len(panel.methods)} methods, places "
        f"{setting['spacing_m']:g} m apart, a report every {setting['interval_s']:g} s, zones of at most "
        f"{setting['max_places']:g} places, η = {number(setting['eta_km'])} km, "
        f"w = {number(setting['history_weight'])} for the place before.{verified}"
    )
