"""Parts of a report besides figures and tables of measures: checks, what was varied in words, and every parameter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from geoblanket._display import number, parameter, percent
from geoblanket._page import Page
from geoblanket.evaluate.measures.catalogue import Measure
from geoblanket.evaluate.report.figures import PARTS, SWEEPS
from geoblanket.evaluate.report.panels import Panel, Relation, decide, saved
from geoblanket.evaluate.report.story import Story
from geoblanket.evaluate.report.wording import label_of
from geoblanket.evaluate.sanity import CHECK_NAMES, Violation

__all__ = ["SOUND", "add_parameters", "add_sanity", "sweep_sentences"]

SOUND = "Is the comparison sound?"
_MOST_SHOWN = 30


def add_sanity(page: Page, violations: Sequence[Violation], notes: Sequence[str]) -> None:
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


def sweep_sentences(story: Story, panel: Panel) -> list[str]:
    """Return what something that was varied does to losses with context and without; nothing if one is missing."""
    pair = story.pair(panel)
    if pair is None:
        return []
    where = f"{panel.city.title()}, ε = {panel.setting['epsilon']:g} per km"
    if panel.along in PARTS:
        return [f"{where}: {_parts_sentence(panel, *pair)}"]
    return [f"{where}{sentence}" for method in pair for sentence in _change(panel, method)]


def _change(panel: Panel, method: str) -> Iterator[str]:
    series, unit = panel.series(method, Measure.HELD_OUT_LOSS), panel.unit(Measure.HELD_OUT_LOSS)
    if len(series) < 2:
        return
    if any(isinstance(point, str) for point, _ in series):
        points = ", ".join(f"{value.value:.3g} {unit} ({number(point)})" for point, value in series)
        yield f": {label_of(method)} loses {points}."
        return
    (first, before), (last, after) = series[0], series[-1]
    change = after.value / before.value - 1 if before.value > 0 else 0.0
    decided = before.interval and after.interval and not before.interval.overlaps(after.interval)
    yield (
        f", from {number(first)} to {number(last)}: {label_of(method)} goes from {before.value:.3g} to "
        f"{after.value:.3g} {unit} ({'+' if change >= 0 else '−'}{percent(abs(change))}"
        f"{'' if decided else '; the intervals overlap'})."
    )


def _parts_sentence(panel: Panel, method: str, other: str) -> str:
    """Return in how many hours, or ranges of speed, a method's loss is below another's."""
    gains = {point: gain for point in panel.points if (gain := saved(panel, method, other, point)) is not None}
    relations = [decide(gain) for gain in gains.values()]
    most, least = (pick(gains, key=lambda point: gains[point].value) for pick in (max, min))
    return (
        f"{label_of(method)} loses less than {label_of(other)} in {relations.count(Relation.LOWER)} of {len(gains)} "
        f"parts and more in {relations.count(Relation.HIGHER)}; {relations.count(Relation.UNDECIDED)} cannot be "
        f"decided. It saves the most at {SWEEPS[panel.along]} {number(most)} ({percent(gains[most].value)}), the least "
        f"at {number(least)} ({percent(gains[least].value)})."
    )


def add_parameters(page: Page, about: Mapping[str, Any]) -> None:
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
