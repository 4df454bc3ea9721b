"""The report of a comparison: three short answers, figures, tables, and everything that was set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket._arguments import checked
from geoblanket._display import Progress, city_name, number, parameter, percent, silent
from geoblanket._page import Page, ReportFolder
from geoblanket.lab.evaluate.experiment import Varied
from geoblanket.lab.evaluate.figures import SWEEPS, caption, case_name, make_figures, sweep_name
from geoblanket.lab.evaluate.measures import CONTEXT_INFERENCE, INFERENCE, TRACKING, Measure, Value
from geoblanket.lab.evaluate.panels import (
    ALIKE_WITHIN,
    PAPER_METHODS,
    Comparison,
    Panel,
    Relation,
    best_plain,
    decide,
    deciding_measure,
    label_of,
    primary,
    recommended,
    reference_epsilon,
    saved,
    worth_left,
)
from geoblanket.lab.evaluate.sanity import CHECK_NAMES, Violation, check_results
from geoblanket.lab.evaluate.tables import (
    Table,
    efficiency_table,
    gain_cell,
    gain_table,
    hour_tables,
    loss_cell,
    loss_table,
    privacy_table,
    sweep_table,
    tracked_table,
    whole_city_table,
    zones_table,
)

SOUND = "Is the comparison sound?"
_TITLE = "Mechanisms compared"
TRACKED = "Tracked by all reports"
_MOST_SHOWN = 30
_ABOUT_TRACKING = (
    "Recipients remember earlier reports. A filter over all reports of a walk, with a model of how other vehicles "
    "move, costs no ε; the service and an attacker run the same filter. With 95 % intervals over vehicles; a question "
    "mark: it cannot be decided which is lower."
)
_ABOUT_ZONES = (
    "Without zones nothing but the report is disclosed. In zones everyone learns the zone, and reports need not hide "
    "it. So the two tables are not alternatives at the same promise."
)
_COMPARED_WITH = (*PAPER_METHODS[1:], "planar_laplace_remap")

Chapter = Callable[[Page, Comparison], Mapping[str, Any]]
"""Adds to the page of a comparison; returns entries for `report.json`."""


@checked
def write_report(
    results: pl.DataFrame,
    out: str | Path,
    *,
    about: Mapping[str, Any],
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
    chapters
        Further chapters of the page, after its answers.

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
    lines = answers(results, about)
    page = Page(_TITLE, lead=_lead(comparison))
    if violations:
        page.warning(f"{len(violations)} things that must hold in every sound comparison do not: see “{SOUND}”.")
    for question, cities in lines.items():
        page.heading(question)
        for city, line in cities.items():
            page.paragraph(f"{city_name(city)}: {line}" if len(cities) > 1 else line)
    more: dict[str, Any] = {}
    for add_chapter in chapters:
        more |= add_chapter(page, comparison)
    for heading, blocks in sections(results, comparison):
        page.heading(heading)
        for block in blocks:
            _add_block(page, block, folder, several_cities=results["city"].n_unique() > 1)
    _add_sanity(page, violations, about.get("notes", []))
    _add_parameters(page, about)
    folder.write_json(
        "report.json",
        {
            "title": _TITLE,
            "answers": lines,
            "figures": {name: caption(name) for name in folder.widths},
            **more,
            "violations": [asdict(violation) for violation in violations],
        },
    )
    return folder.write_page(page)


@checked
def answers(results: pl.DataFrame, about: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Answer three questions from results at one ε: a line for each question and city.

    Parameters
    ----------
    results, about
        As for `write_report`.
    """
    comparison = Comparison.of(results, about)
    main = [panel for panel in comparison.main if recommended(panel) is not None]
    return {
        "Which mechanism should I use?": {panel.city: _which(panel, comparison) for panel in main},
        "What does privacy cost?": {panel.city: _cost(panel) for panel in main},
        "Would an attacker win?": {
            panel.city: line for panel in main if (line := _attack(panel, comparison.reports)) is not None
        },
    }


def _chosen(panel: Panel) -> str:
    return recommended(panel) or panel.methods[0]


def _which(panel: Panel, comparison: Comparison) -> str:
    """Return the recommended method at equal ε per report and, if compared, at equal cost per location."""
    point, measure = reference_epsilon(panel), deciding_measure(panel)
    context, plain = primary(panel), best_plain(panel)
    choice = f"Recommended at equal ε per report: {label_of(_chosen(panel))}"
    if (equal_cost := comparison.equal_cost(panel.city)) is not None and recommended(equal_cost) is not None:
        choice += f"; at equal cost per location: {label_of(_chosen(equal_cost))}"
    facts = [
        f"{label_of(key)} loses {loss_cell(panel.value(key, measure, point))} {panel.unit(measure)}"
        for key in (context, plain)
        if key is not None
    ]
    if context is not None and plain is not None:
        gain = saved(panel, context, plain, point, measure)
        undecided = decide(gain) is Relation.UNDECIDED
        facts.append("it cannot be decided which is lower" if undecided else f"the first saves {gain_cell(gain)}")
    tracked = ", tracked" if measure == Measure.TRACKED_LOSS else ""
    return f"{choice}. At ε = {number(point)} per km{tracked}: {'; '.join(facts)}."


def _cost(panel: Panel) -> str:
    """Return the loss of the recommended method, between those of exact and of constant reports."""
    method, point, unit = _chosen(panel), reference_epsilon(panel), panel.unit(Measure.HELD_OUT_LOSS)
    loss = loss_cell(panel.value(method, Measure.HELD_OUT_LOSS, point))
    line = f"{label_of(method)} loses {loss} {unit} at ε = {number(point)} per km."
    exact, nothing = (panel.number(method, name, point) for name in (Measure.NO_PRIVACY_LOSS, Measure.CONSTANT_LOSS))
    if (left := worth_left(panel, method, point)) is not None:
        line += (
            f" Exact reports would lose {exact:.3g} {unit}, constant ones {nothing:.3g} {unit}: in design, "
            f"{percent(left)} of the value of exact reports is left."
        )
    return line


def _attack(panel: Panel, reports: int | None) -> str | None:
    """Return how often the strongest measured attacker is right, with reports of the recommended method."""
    method, point = _chosen(panel), reference_epsilon(panel)
    for attack, sees in (
        (TRACKING, f"{reports or 'several'} reports in a row"),
        (CONTEXT_INFERENCE, "a report and knows the place before"),
        (INFERENCE, "a single report"),
    ):
        success, blind, error = (
            panel.value(method, measure, point) for measure in (attack.success, attack.blind_success, attack.error)
        )
        if success is not None and blind is not None and error is not None:
            return (
                f"{_verdict(success, blind)}: at ε = {number(point)} per km with {label_of(method)}, an attacker that "
                f"sees {sees} names the right place in {percent(success.value)} of cases ({percent(blind.value)} "
                f"without reports), and is {error.value:.2g} km off on average."
            )
    return None


def _verdict(success: Value, blind: Value) -> str:
    """Say whether reports make an attacker right in most cases, given how often it is right without them."""
    # Without intervals both are exact sums: what rounds to the same percentage is the same.
    least = success.interval.low if success.interval is not None else success.value - ALIKE_WITHIN
    most = blind.interval.high if blind.interval is not None else blind.value
    if least <= most:
        return "Not by reports"
    return "Yes" if success.value > 0.5 else "Not in most cases"


@dataclass(frozen=True)
class Picture:
    """A figure of the report, by its name."""

    name: str


Block = Table | Picture | str
"""A table, a figure or a paragraph."""


def _add_block(page: Page, block: Block, folder: ReportFolder, *, several_cities: bool) -> None:
    match block:
        case Table():
            block.add_to(page, name_city=several_cities)
        case Picture(name):
            folder.show(page, name, caption(name))
        case _:
            page.paragraph(block)


def sections(results: pl.DataFrame, comparison: Comparison) -> Iterator[tuple[str, list[Block]]]:
    """Yield each heading of a report with its blocks; some figures may not have been drawn."""
    main = comparison.main
    losses: list[Block] = [Picture("loss"), Picture("gain"), Picture("loss-in-use")]
    for panel in main:
        losses.append(loss_table(panel))
        if (method := primary(panel)) is not None:
            others = [other for other in _COMPARED_WITH if other in panel.methods and other != method]
            losses.append(gain_table(panel, method, others))
    yield "Loss against ε", losses
    for loss_case in dict.fromkeys(panel.loss_case for panel in comparison.other_losses):
        tables = [loss_table(panel) for panel in comparison.other_losses if panel.loss_case == loss_case]
        yield f"Loss: {loss_case}", [Picture(case_name(loss_case)), *tables]
    if tracked := [*_tracked(comparison), *hour_tables(results)]:
        yield TRACKED, [_ABOUT_TRACKING, *tracked]
    attacks = ("leakage", "inference", "context-inference", "tracking", sweep_name(Varied.REPORTS))
    yield "Leakage and attackers", [*map(Picture, attacks), *map(privacy_table, main)]
    yield "Utility against privacy", [Picture("pareto"), Picture("equal-cost")]
    for along, name in SWEEPS.items():
        panels = comparison.sweep(along)
        pairs = [(panel, pair) for panel in panels if (pair := comparison.pair(panel)) is not None]
        if pairs and along != Varied.REPORTS:
            tables = [sweep_table(panel, name, pair) for panel, pair in pairs]
            yield f"Along: {name}", [Picture(sweep_name(along)), *tables]
    if comparison.whole_city:
        yield "The whole city, and what zones disclose", [_ABOUT_ZONES, *_whole_city(comparison)]
    yield "Time, memory and size", [Picture("build-time"), *map(efficiency_table, main)]


def _tracked(comparison: Comparison) -> Iterator[Table]:
    """Yield tables of tracked vehicles, in zones and without zones."""
    for panel in (*comparison.main, *comparison.whole_city):
        if panel.has(Measure.TRACKED_ERROR):
            yield tracked_table(panel)
        equal_cost = comparison.equal_cost(panel.city) if panel in comparison.main else None
        if equal_cost is not None and equal_cost.has(Measure.TRACKED_ERROR):
            yield tracked_table(equal_cost, equal_cost=True)


def _whole_city(comparison: Comparison) -> Iterator[Table]:
    """Yield comparisons without zones, each beside the one in zones of the same experiment."""
    for panel in comparison.whole_city:
        yield whole_city_table(panel)
        if (beside := comparison.zones_beside(panel)) is not None:
            yield zones_table(beside)


def _add_sanity(page: Page, violations: Sequence[Violation], notes: Sequence[str]) -> None:
    """Add the checks, violations (in red), and notes on single methods."""
    page.heading(SOUND)
    broken = {violation.check for violation in violations}
    page.table(
        ("in every setting and zone", "result"),
        [(name, "VIOLATED" if name in broken else "holds") for name in CHECK_NAMES],
        words=(0, 1),
    )
    for violation in violations[:_MOST_SHOWN]:
        page.warning(f"{violation.check}: {violation.where}: {violation.detail}")
    if notes:
        page.subheading("Notes on single methods")
        page.bullets(notes[:_MOST_SHOWN])
    if max(len(violations), len(notes)) > _MOST_SHOWN:
        page.paragraph(f"At most {_MOST_SHOWN} are shown; all are in results.parquet.")


def _add_parameters(page: Page, about: Mapping[str, Any]) -> None:
    """Add every parameter, the input files and the software."""
    page.heading("Every parameter")
    for name, experiment in about.get("experiments", {}).items():
        page.subheading(f"Experiment “{name}”")
        plain = [(key, parameter(value)) for key, value in experiment.items() if key not in ("settings", "name")]
        page.table(("parameter", "value"), plain, words=(0, 1))
        if settings := experiment.get("settings", []):
            rows = [[parameter(value) for value in setting.values()] for setting in settings]
            page.table(list(settings[0]), rows, caption="Settings.", words=range(len(settings[0])))
    inputs = {f"{city}: {name}": of for city, files in about.get("cities", {}).items() for name, of in files.items()}
    page.table(
        ("what", "identity or version"),
        [(name, parameter(value)) for name, value in {**inputs, **about.get("software", {})}.items()],
        caption="Inputs (by their SHA-256) and software.",
        words=(0, 1),
    )


def _lead(comparison: Comparison) -> str:
    if not comparison.main:
        return "There are no results of all zones together."
    panel = comparison.main[0]
    setting = panel.setting
    return (
        f"{', '.join(city_name(main.city) for main in comparison.main)}. {len(panel.methods)} methods, places "
        f"{setting['spacing_m']:g} m apart, a report every {setting['interval_s']:g} s, zones of at most "
        f"{setting['max_places']:g} places, η = {number(setting['eta_km'])} km, "
        f"w = {number(setting['history_weight'])} for the place before."
    )
