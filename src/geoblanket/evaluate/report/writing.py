"""The report of a comparison: answers in plain words, figures, tables, and everything that was set."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket import __version__
from geoblanket._files import atomic_output
from geoblanket._page import Page
from geoblanket._picture import save_figure
from geoblanket._progress import Progress, silent
from geoblanket.errors import OutputError
from geoblanket.evaluate.report.answers import attack_answers, cost_answers, which_answers
from geoblanket.evaluate.report.chosen_figures import caption, make_figures, sweep_name
from geoblanket.evaluate.report.panels import Panel
from geoblanket.evaluate.report.sections import SOUND, add_parameters, add_sanity, parts_sentence, sweep_sentences
from geoblanket.evaluate.report.story import PAPER_METHODS, Story
from geoblanket.evaluate.report.sweep_figures import PARTS, SWEEPS
from geoblanket.evaluate.report.tables import add_efficiency, add_gains, add_losses, add_privacy, add_tracking
from geoblanket.evaluate.report.wording import number
from geoblanket.evaluate.sanity import check_results

__all__ = ["Chapter", "answers", "write_report"]

Chapter = Callable[[Page, Story], Mapping[str, Any]]
"""Adds to the page of a comparison; returns what `report.json` keeps of it."""

_QUESTIONS = ("Which mechanism should I use?", "What does privacy cost?", "Would an attacker win?")
_FULL_WIDTH_IN = 8.0
_COMPARED_WITH = (*PAPER_METHODS[1:], "planar_laplace_remap")


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
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be made ({error.strerror or error}).") from error
    story, violations = Story.of(results, about), check_results(results)
    drawn = _draw(story, folder, progress)
    told = _answers_of(story)
    page = Page(title, lead=_lead(story))
    if violations:
        page.warning(f"{len(violations)} things that must hold in every sound comparison do not: see “{SOUND}”.")
    telling = _Telling(page, story, folder, drawn)
    telling.answers(told)
    telling.losses()
    telling.privacy()
    telling.sweeps()
    telling.efficiency()
    more: dict[str, Any] = {}
    for add_chapter in chapters:
        more |= add_chapter(page, story)
    add_sanity(page, violations, about.get("notes", []))
    add_parameters(page, about)
    page.save(folder / "report.html", footer=f"Made by geoblanket {__version__}.")
    summary = {
        "title": title,
        "answers": told,
        "figures": {name: caption(name) for name in drawn},
        **more,
        "violations": [one.as_dict() for one in violations],
    }
    with atomic_output(folder / "report.json") as temporary:
        temporary.write_text(json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False), encoding="utf-8")
    return folder / "report.html"


def _draw(story: Story, folder: Path, progress: Progress) -> dict[str, float]:
    """Write all figures; return which share of the page's width each wants."""
    drawn: dict[str, float] = {}
    for name, figure in make_figures(story):
        progress("figures", len(drawn), None)
        save_figure(figure, folder / f"{name}.png", dpi=130)
        figure.set_layout_engine("none")  # it is laid out now; to do it again takes as long as to draw it
        save_figure(figure, folder / f"{name}.svg", dpi=130)
        drawn[name] = min(1.0, figure.get_figwidth() / _FULL_WIDTH_IN)
    return drawn


def answers(results: pl.DataFrame, about: Mapping[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Return what results say, in sentences, by question and city.

    Parameters
    ----------
    results, about
        As for `write_report`.
    """
    return _answers_of(Story.of(results, about))


def _answers_of(story: Story) -> dict[str, dict[str, list[str]]]:
    makers: Sequence[Callable[[Panel], Sequence[str]]] = (
        lambda panel: list(which_answers(panel, story.equal_cost(panel.city))),
        lambda panel: list(cost_answers(panel)),
        lambda panel: list(attack_answers(panel, reports=story.reports)),
    )
    return {
        question: {panel.city: list(answer(panel)) for panel in story.main}
        for question, answer in zip(_QUESTIONS, makers, strict=True)
    }


@dataclass(frozen=True, eq=False)
class _Telling:
    """A page, and what it is made from."""

    page: Page
    story: Story
    folder: Path
    drawn: Mapping[str, float]
    """Figures, and which share of the page's width each wants."""

    def figures(self, *names: str) -> None:
        for name in names:
            if name in self.drawn:
                text = caption(name)
                self.page.figure(self.folder / f"{name}.svg", caption=text, alt=text, width=self.drawn[name])

    def answers(self, answers: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        for question, cities in answers.items():
            self.page.heading(question)
            for city, sentences in cities.items():
                self.page.subheading(city.title())
                self.page.bullets(sentences)

    def losses(self) -> None:
        self.page.heading("Loss against ε")
        self.figures("loss", "gain", "loss-in-use")
        for panel in self.story.main:
            add_losses(self.page, panel)
            if (pair := self.story.pair(panel)) is not None:
                others = [one for one in _COMPARED_WITH if one in panel.methods and one != pair[0]]
                add_gains(self.page, panel, method=pair[0], others=others)
        self.figures("one-destination", "case-ii")
        for panel in self.story.other_losses:
            self.page.subheading(f"Loss: {panel.loss_case}")
            add_losses(self.page, panel)

    def privacy(self) -> None:
        self.page.heading("Leakage and attackers")
        self.figures("leakage", "inference", "context-inference")
        for panel in self.story.main:
            add_privacy(self.page, panel)
        self.page.heading("Reports in a row")
        self.figures("tracking", sweep_name("reports"))
        for panel in self.story.main:
            methods = [one for one in self.story.pair(panel) or () if panel.has("tracking_success")]
            if methods:
                add_tracking(self.page, panel, methods, reports=self.story.reports)
        self.page.heading("Utility against privacy")
        self.figures("pareto")

    def sweeps(self) -> None:
        if not self.story.sweeps:
            return
        self.page.heading("What else matters")
        if self.story.sweep("equal cost"):
            self.page.subheading("Equal cost per location")
            self.figures("equal-cost")
        for along, name in SWEEPS.items():
            panels = self.story.sweep(along)
            if panels and along != "reports":
                self.page.subheading(name[0].upper() + name[1:])
                self.figures(sweep_name(along))
                self.page.bullets(sentence for panel in panels for sentence in self._sweep_words(panel))

    def _sweep_words(self, panel: Panel) -> Sequence[str]:
        pair = self.story.pair(panel)
        if pair is None:
            return ()
        return [parts_sentence(panel, *pair)] if panel.along in PARTS else list(sweep_sentences(panel, pair))

    def efficiency(self) -> None:
        self.page.heading("Time, memory and size")
        self.figures("build-time")
        for panel in self.story.main:
            add_efficiency(self.page, panel)


def _lead(story: Story) -> str:
    if not story.main:
        return "There are no results of all zones together."
    panel = story.main[0]
    setting = panel.setting
    checked = [value.value for one in story.main for key, value in one.values.items() if key[2] == "verified"]
    verified = " Every mechanism was verified in exact arithmetic." if checked and all(checked) else ""
    return (
        f"{', '.join(one.city.title() for one in story.main)}. {len(panel.methods)} methods, places "
        f"{setting['spacing_m']:g} m apart, a report every {setting['interval_s']:g} s, zones of at most "
        f"{setting['max_places']:g} places, η = {number(setting['eta_km'])} km, "
        f"w = {number(setting['history_weight'])} for the place before.{verified}"
    )
