"""Parts of a report besides figures and tables of measures: checks, what was varied in words, and every parameter."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from geoblanket._page import Page
from geoblanket.evaluate.report.figure_style import label_of
from geoblanket.evaluate.report.panels import Panel, Verdict, decide, saved
from geoblanket.evaluate.report.sweep_figures import SWEEPS
from geoblanket.evaluate.report.wording import number, percent
from geoblanket.evaluate.sanity import CHECK_NAMES, Violation

__all__ = ["SOUND", "add_parameters", "add_sanity", "parts_sentence", "sweep_sentences"]

SOUND = "Is the comparison sound?"
_MOST_SHOWN = 30


def add_sanity(page: Page, violations: Sequence[Violation], notes: Sequence[str]) -> None:
    """Add what was checked, what does not hold (in red), and what should be known about single methods."""
    page.heading(SOUND)
    page.paragraph("What must hold in every comparison that is not broken, in every setting and zone:")
    broken = {one.check for one in violations}
    page.table(
        ("check", "found"),
        [(name, "VIOLATED" if name in broken else "holds") for name in CHECK_NAMES],
        words=(0, 1),
    )
    if violations:
        page.warning(f"{len(violations)} violations. Do not trust this comparison before they are explained.")
        for one in violations[:_MOST_SHOWN]:
            page.warning(f"{one.check}: {one.where}: {one.detail}")
        if len(violations) > _MOST_SHOWN:
            page.warning(f"And {len(violations) - _MOST_SHOWN} more, which results.parquet tells.")
    if notes:
        page.subheading("Notes on single methods")
        page.bullets(
            [*notes[:_MOST_SHOWN], *([f"And {len(notes) - _MOST_SHOWN} more."] if notes[_MOST_SHOWN:] else [])]
        )


def sweep_sentences(panel: Panel, methods: Sequence[str]) -> Iterator[str]:
    """Yield what a quantity that was varied does to the loss of some methods."""
    where = f"{panel.city.title()}, ε = {panel.setting['epsilon']:g} per km"
    for method in methods:
        series = panel.series(method, "held_out_loss")
        if len(series) < 2:
            continue
        unit = panel.unit("held_out_loss")
        if any(isinstance(point, str) for point, _ in series):
            points = ", ".join(f"{value.value:.3g} {unit} ({number(point)})" for point, value in series)
            yield f"{where}: {label_of(method)} loses {points}."
            continue
        (first, before), (last, after) = series[0], series[-1]
        change = after.value / before.value - 1 if before.value > 0 else 0.0
        apart = None not in (before.low, before.high, after.low, after.high) and (
            (after.low or 0) > (before.high or 0) or (after.high or 0) < (before.low or 0)
        )
        sure = "" if apart else "; the intervals overlap"
        yield (
            f"{where}, from {number(first)} to {number(last)}: {label_of(method)} goes from {before.value:.3g} to "
            f"{after.value:.3g} {unit} ({'+' if change >= 0 else '−'}{percent(abs(change))}{sure})."
        )


def parts_sentence(panel: Panel, method: str, other: str) -> str:
    """Return in how many hours, or ranges of speed, a method's loss is below another's."""
    found = {point: value for point in panel.points if (value := saved(panel, method, other, point)) is not None}
    verdicts = [decide(value) for value in found.values()]
    best, worst = (pick(found, key=lambda point: found[point].value) for pick in (max, min))
    return (
        f"{panel.city.title()}, ε = {panel.setting['epsilon']:g} per km: {label_of(method)} is below {label_of(other)} "
        f"in {verdicts.count(Verdict.LOWER)} of {len(found)} parts, above it in {verdicts.count(Verdict.HIGHER)}, and "
        f"in {verdicts.count(Verdict.UNDECIDED)} it cannot be decided. The most is saved at {SWEEPS[panel.along]} "
        f"{number(best)} ({percent(found[best].value)}), the least at {number(worst)} ({percent(found[worst].value)})."
    )


def add_parameters(page: Page, about: Mapping[str, Any]) -> None:
    """Add everything that was set, the files and the software."""
    page.heading("Every parameter")
    for name, experiment in about.get("experiments", {}).items():
        page.subheading(f"Experiment “{name}”")
        plain = [(key, _text(value)) for key, value in experiment.items() if key not in ("settings", "name")]
        page.table(("parameter", "value"), plain, words=(0, 1))
        settings = experiment.get("settings", [])
        if settings:
            shared = {key for key in settings[0] if len({_text(one.get(key)) for one in settings}) == 1}
            page.table(
                ("of all settings", "value"), [(key, _text(settings[0][key])) for key in sorted(shared)], words=(0, 1)
            )
            varied = [key for key in settings[0] if key not in shared]
            if varied:
                rows = [tuple(_text(one.get(key)) for key in varied) for one in settings]
                page.table(varied, rows, caption="Settings, by what differs.", words=range(len(varied)))
    inputs = [
        (f"{city}: {name}", _text(value))
        for city, files in about.get("cities", {}).items()
        for name, value in files.items()
    ]
    page.table(
        ("what", "identity or version"),
        [*inputs, *((name, _text(value)) for name, value in about.get("software", {}).items())],
        caption="Inputs (by their SHA-256) and software.",
        words=(0, 1),
    )


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return "–" if value is None else number(value) if isinstance(value, float) else json.dumps(value)
