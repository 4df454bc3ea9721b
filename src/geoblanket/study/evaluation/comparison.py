"""What the paper says, what was measured here, and why the two differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from geoblanket._page import Page
from geoblanket.errors import InputError
from geoblanket.evaluate.measures.values import Value
from geoblanket.evaluate.report.figure_style import label_of
from geoblanket.evaluate.report.panels import Panel, saved
from geoblanket.evaluate.report.story import Story
from geoblanket.evaluate.report.wording import number, percent, reference_epsilon
from geoblanket.evaluate.report.writing import Chapter
from geoblanket.study.blankets.paper import PAPER
from geoblanket.study.evaluation.numbers import (
    CITIES,
    GAINS,
    LONGEST_SELECTION_MS,
    SELECTION_MS,
    PaperFigures,
    PaperGain,
)

__all__ = ["WHY_NOT_ALIKE", "PaperRow", "paper_chapter", "paper_rows", "read_training"]

WHY_NOT_ALIKE = (
    "The paper's losses are not like for like with ours. Its published code lets each vehicle report one of the 50 "
    "nodes nearest to its true location: for most neighbouring locations the possible reports then do not overlap, so "
    "that a report betrays its location, and no ε holds between them. It also takes distances from other rows of its "
    "table than it means, which makes them about 5.5 times too large. Here the domain is public and the same for all "
    "vehicles of a zone, the constraints hold over all of it, and every mechanism is verified in exact arithmetic. So "
    "compare the order of methods and what they save, not kilometres."
)
_DOMAIN = "Another domain and other distances: see above."
_SMALL_EPSILON = (
    "At ε of 0.25 to 0.5 per km a report may be at most 1.3 to 1.6 times as probable from one place as from another 1 "
    "km away, so in a public zone it can tell little, whatever the method."
)
_PAPER_EPSILON = (0.25, 0.5)
_CLOSE = 0.05
_ENOUGH = 100
"""Hypotheses, to judge predictions by."""
_AGREES, _DIFFERS, _UNDECIDED = "agrees", "differs", "cannot be decided"


@dataclass(frozen=True)
class PaperRow:
    """One line of the comparison with the paper."""

    city: str
    topic: str
    paper: str
    where: str
    measured: str
    verdict: str
    """`agrees`, `differs`, `cannot be decided`, or empty where a verdict would mean nothing."""
    why: str


def read_training(folder: str | Path, cities: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return how good predictors of blankets are, by city, where `geoblanket evaluate paper` left that in a folder."""
    found = {}
    for city in cities:
        path = Path(folder) / city / "training.json"
        if path.is_file():
            try:
                found[city] = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise InputError(
                    f"cannot be read as JSON ({error})", path=path, hint="Remove the city's folder"
                ) from error
    return found


def paper_chapter(training: Mapping[str, Mapping[str, Any]] | None = None) -> Chapter:
    """Return the chapter of a report that puts the paper's numbers beside those measured; empty for other cities.

    Parameters
    ----------
    training
        By city, how good the predictor of blankets is, as `geoblanket evaluate paper` keeps it in `training.json`.
    """

    def add(page: Page, story: Story) -> Mapping[str, Any]:
        rows = list(paper_rows(story, training or {}))
        if rows:
            page.heading("What the paper says, what we measured")
            page.note(WHY_NOT_ALIKE)
        for city in dict.fromkeys(row.city for row in rows):
            page.subheading(city.title())
            page.table(
                ("about", "the paper says", "we measured", "verdict", "why they differ", "where in the paper"),
                [
                    (row.topic, row.paper, row.measured, row.verdict, row.why, row.where)
                    for row in rows
                    if row.city == city
                ],
                words=range(6),
            )
        return {"paper": [asdict(row) for row in rows]}

    return add


def paper_rows(story: Story, training: Mapping[str, Mapping[str, Any]]) -> list[PaperRow]:
    """Compare with the paper; no rows for cities that it does not study.

    Parameters
    ----------
    training
        By city, how good the predictor of blankets is: what `geoblanket evaluate paper` keeps as `training.json`.
    """
    rows: list[PaperRow] = []
    for panel in story.main:
        figures = CITIES.get(panel.city.lower())
        if figures is not None:
            rows += _prediction_rows(panel.city, figures, training.get(panel.city, {}))
            rows += (_gain_row(panel, gain) for gain in GAINS if gain.over in panel.methods)
            rows += _loss_rows(story, panel, figures)
            rows += _privacy_rows(panel, figures)
            rows += [*_efficiency_rows(panel, figures), _density_row(panel.city)]
    return rows


def _prediction_rows(city: str, figures: PaperFigures, facts: Mapping[str, Any]) -> Iterator[PaperRow]:
    where = "section 5.2, table of prediction performance"
    network = next(
        (one for one in facts.get("evaluations", []) if (one["model"], one["trained_on"]) == ("network", "all")), None
    )
    if network is not None:
        scores, tested = network["scores"]["all"], network["scores"]["tested"]
        for name, says in figures.prediction.items():
            ours = scores[name]
            yield PaperRow(
                city,
                f"prediction: {name.replace('_', ' ')}",
                f"{says:.4f}",
                where,
                f"{_score(ours)}; on tested hypotheses only {_score(tested[name])}",
                _close(ours, says) if scores["n"] >= _ENOUGH else _UNDECIDED,
                f"Judged by {scores['n']} hypotheses of groups that were not trained on, from a sample of the walks; "
                f"{tested['n']} of them were tested, the others imputed as Algorithm 1 does.",
            )
    yield PaperRow(
        city,
        "time to predict a blanket",
        f"{figures.prediction_ms:g} ms on average",
        "section 5.2, figure of prediction times",
        "a look-up in a table: see docs/benchmarks.md",
        "",
        "All predictions are made beforehand.",
    )
    lengths = {int(length): count for length, count in facts.get("predicted_lengths", {}).items()}
    if lengths:
        small = sum(count for length, count in lengths.items() if length <= 2) / sum(lengths.values())
        yield PaperRow(
            city,
            "blankets of at most 2 locations",
            f"{figures.at_most_two:.1%}",
            "section 5.2, figure of blanket sizes",
            f"{small:.1%} of samples, as predicted",
            _AGREES if small >= figures.at_most_two - _CLOSE else _DIFFERS,
            "Larger groups reject more often: see the study on Porto and Rome. At most 3 are looked for here.",
        )


def _gain_row(panel: Panel, gain: PaperGain) -> PaperRow:
    found = {point: value for point in panel.points if (value := saved(panel, "lp_cmdp", gain.over, point)) is not None}
    verdicts = {point: _holds(value, gain) for point, value in found.items()}
    grouped = {
        word: [number(point) for point, verdict in verdicts.items() if verdict == word]
        for word in (_AGREES, _DIFFERS, _UNDECIDED)
    }
    used = {word: points for word, points in grouped.items() if points}
    return PaperRow(
        panel.city,
        f"loss of LP+C-mDP against {label_of(gain.over)}",
        f"{gain.words}, at every ε from {_PAPER_EPSILON[0]:g} to {_PAPER_EPSILON[1]:g} per km",
        gain.where,
        "; ".join(f"ε = {number(point)}: {_share(value)} below" for point, value in found.items()) or "–",
        next(iter(used), "")
        if len(used) < 2
        else "; ".join(f"{word} at ε = {', '.join(points)}" for word, points in used.items()),
        _why_gain(gain),
    )


def _holds(value: Value, gain: PaperGain) -> str:
    """Whether a share saved is in the paper's range; where only its interval reaches there, it cannot be decided."""
    if gain.low <= value.value <= gain.high:
        return _AGREES
    if value.low is None or value.high is None or (value.high >= gain.low and value.low <= gain.high):
        return _UNDECIDED
    return _DIFFERS


def _why_gain(gain: PaperGain) -> str:
    if gain.over == "expmech":
        return f"{_DOMAIN} The exponential mechanism here spends all of ε; as published it takes half."
    if gain.over == "lp_true_mb":
        return "Where they differ, predicted lengths of blankets are not those that the tests found."
    if gain.over == "lp_markov1":
        return "Most of the memory of these walks is one step long, and a longer past has to share as many rows."
    return f"{_DOMAIN} {_SMALL_EPSILON}"


def _loss_rows(story: Story, panel: Panel, figures: PaperFigures) -> Iterator[PaperRow]:
    where = "table of losses, cut from the final text; its ε is not named"
    one = next((p for p in story.other_losses if p.city == panel.city and p.loss_case == "one destination"), panel)
    smallest = one.points[0]
    for method, says in figures.loss_km.items():
        value = one.value(method, "held_out_loss", smallest)
        if value is not None:
            yield PaperRow(
                panel.city,
                f"loss of {label_of(method)}, one destination",
                f"{says:.3f} km",
                where,
                f"{_interval(value)} km at ε = {number(smallest)}",
                "",
                _DOMAIN,
            )
    errors = next((p for p in story.other_losses if p.city == panel.city and p.loss_case == "case II"), None)
    for method, says in figures.nearest_error.items() if errors is not None else ():
        point = errors.points[0] if errors is not None else 0.0
        value = None if errors is None else errors.value(method, "held_out_loss", point)
        if value is not None:
            yield PaperRow(
                panel.city,
                f"error rate of {label_of(method)}, nearest vehicle",
                f"{says:g} (per cent, it seems)",
                "table of losses, case II, cut from the final text",
                f"{value.value:.2%} at ε = {number(point)}",
                "",
                _DOMAIN,
            )


def _privacy_rows(panel: Panel, figures: PaperFigures) -> Iterator[PaperRow]:
    where = "table of privacy levels at ε = 0.1 per km, cut from the final text"
    smallest = float(panel.points[0])
    for method, says in figures.privacy.items():
        for name, theirs, measure, form in (
            ("worst leakage / ε", says.leakage / 0.1, "leakage_max", "{:.2f}"),
            ("mean leakage / ε", says.expected_leakage / 0.1, "leakage_expected", "{:.2f}"),
            ("inference error, km", says.inference_error_km, "inference_error", "{:.3f}"),
            ("inference success", says.inference_success, "inference_success", "{:.3f}"),
        ):
            ours = panel.number(method, measure, smallest)
            if ours is not None:
                ours = ours / smallest if measure.startswith("leakage") else ours
                yield PaperRow(
                    panel.city,
                    f"{label_of(method)}: {name}",
                    form.format(theirs),
                    where,
                    f"{form.format(ours)} at ε = {smallest:g}",
                    "",
                    "Leakage above 1 breaks the promise." if theirs > 1.0001 else _DOMAIN,
                )


def _efficiency_rows(panel: Panel, figures: PaperFigures) -> Iterator[PaperRow]:
    seconds = [value.value for _, value in panel.series("lp_cmdp", "build_seconds")]
    if seconds:
        rows = panel.number("lp_cmdp", "rows", reference_epsilon(panel))
        low, high = figures.build_seconds_range
        yield PaperRow(
            panel.city,
            "time of the linear program",
            f"{figures.build_seconds:g} s on average, {low:g} to {high:g} s at all ε",
            "section 5.4, figure of computation time",
            f"{min(seconds):.3g} to {max(seconds):.3g} s for all zones"
            + ("" if rows is None else f", {rows:,.0f} rows together"),
            "",
            "Other sizes, another solver and another computer; every result here is proven to be near the optimum and "
            "verified exactly.",
        )
    microseconds = panel.number("lp_cmdp", "release_us", reference_epsilon(panel))
    if microseconds is not None:
        yield PaperRow(
            panel.city,
            "time to draw a perturbed location",
            f"{SELECTION_MS:g} ms on average, at most {LONGEST_SELECTION_MS:g} ms",
            "section 5.4, figure of computation time",
            f"{microseconds:.3g} µs (median)",
            "",
            "A look-up and an exact draw; the durable note of what was spent comes on top.",
        )


def _density_row(city: str) -> PaperRow:
    shares = ", ".join(f"{share:.1%} have {count} or more" for count, share in PAPER[city.lower()].share_with.items())
    return PaperRow(
        city,
        "neighbours within 100 m",
        f"of recorded points, {shares}",
        "last appendix, neighbourhood density",
        "see docs/study.md",
        "",
        "Recorded points lie the denser, the more trips are recorded; places on roads do not.",
    )


def _close(ours: float | None, says: float) -> str:
    return _UNDECIDED if ours is None else _AGREES if abs(ours - says) <= _CLOSE else _DIFFERS


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _share(value: Value) -> str:
    if value.low is None or value.high is None:
        return percent(value.value)
    return f"{value.value:.1%} ({value.low:.1%} to {value.high:.1%})".replace("-", "−")


def _interval(value: Value) -> str:
    if value.low is None or value.high is None:
        return f"{value.value:.3f}"
    return f"{value.value:.3f} ({value.low:.3f} to {value.high:.3f})"
