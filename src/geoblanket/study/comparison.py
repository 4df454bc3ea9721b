"""What the paper says, what was measured here, and why the two differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from geoblanket._display import number, percent, share, text
from geoblanket._page import Page
from geoblanket.errors import InputError
from geoblanket.evaluate.measures.catalogue import Measure, Value
from geoblanket.evaluate.report.comparison import Comparison, label_of, reference_epsilon
from geoblanket.evaluate.report.panels import Panel, saved
from geoblanket.evaluate.report.writing import Chapter
from geoblanket.study.paper import (
    CLAIMS_HEADING,
    GAINS,
    LONGEST_SELECTION_MS,
    PAPER,
    SELECTION_MS,
    Claim,
    PaperCity,
    PaperGain,
    Verdict,
    add_claims,
)

__all__ = ["WHY_NOT_ALIKE", "paper_chapter", "paper_claims", "read_training"]

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
_WHY_GAIN = {
    "expmech": f"{_DOMAIN} The exponential mechanism here spends all of ε; as published it takes half.",
    "lp_true_mb": "A difference of nothing compares a mechanism with itself: both kinds of blanket have the same rows.",
    "lp_markov1": "Builds reserve 95 % of rows for the previous place, so that a longer past has few to gain by.",
}
_PAPER_EPSILON = (0.25, 0.5)
_CLOSE = 0.05
_SAME = 5e-4
"""A share saved that is shown as 0.0 %."""
_ENOUGH = 100
"""Hypotheses, to judge predictions by."""


def read_training(folder: str | Path, cities: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return how good predictors of blankets are, by city, where `geoblanket evaluate paper` left that in a folder."""
    training = {}
    for city in cities:
        path = Path(folder) / city / "training.json"
        if path.is_file():
            try:
                training[city] = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise InputError(
                    f"cannot be read as JSON ({error})", path=path, hint="Remove the city's folder"
                ) from error
    return training


def paper_chapter(training: Mapping[str, Mapping[str, Any]] | None = None) -> Chapter:
    """Return the chapter of a report that puts the paper's numbers beside those measured; empty for other cities.

    Parameters
    ----------
    training
        By city, how good the predictor of blankets is, as `geoblanket evaluate paper` keeps it in `training.json`.
    """

    def add(page: Page, comparison: Comparison) -> Mapping[str, Any]:
        claims = paper_claims(comparison, training or {})
        if claims:
            page.heading(CLAIMS_HEADING)
            page.note(WHY_NOT_ALIKE)
        for city in dict.fromkeys(claim.city for claim in claims):
            page.subheading(city.title())
            add_claims(page, [claim for claim in claims if claim.city == city])
        return {"paper": [asdict(claim) for claim in claims]}

    return add


def paper_claims(comparison: Comparison, training: Mapping[str, Mapping[str, Any]]) -> list[Claim]:
    """Compare with the paper; no claims about cities that it does not study.

    Parameters
    ----------
    training
        By city, how good the predictor of blankets is: what `geoblanket evaluate paper` keeps as `training.json`.
    """
    claims: list[Claim] = []
    for panel in comparison.main:
        paper = PAPER.get(panel.city.lower())
        if paper is not None:
            claims += _predictions(panel.city, paper, training.get(panel.city, {}))
            claims += (_gain(panel, gain) for gain in GAINS if gain.over in panel.methods)
            claims += _losses(comparison, panel, paper)
            claims += _privacy(panel, paper)
            claims += [*_efficiency(panel, paper), _density(panel.city, paper)]
    return claims


def _predictions(city: str, paper: PaperCity, facts: Mapping[str, Any]) -> Iterator[Claim]:
    claim = partial(Claim, city=city)
    evaluations = {(each["model"], each["trained_on"]): each["scores"] for each in facts.get("evaluations", [])}
    if (network := evaluations.get(("network", "all"))) is not None:
        scores, tested = network["all"], network["tested"]
        for name, says in paper.prediction.items():
            ours = scores[name]
            verdict = Verdict.UNDECIDED
            if ours is not None and scores["n"] >= _ENOUGH:
                verdict = Verdict.AGREES if abs(ours - says) <= _CLOSE else Verdict.DIFFERS
            yield claim(
                f"prediction: {name.replace('_', ' ')}",
                f"{says:.4f}",
                f"{text(ours, '.4f')}; on tested hypotheses only {text(tested[name], '.4f')}",
                verdict,
                f"Judged by {scores['n']} hypotheses of groups that were not trained on, from a sample of the walks; "
                f"{tested['n']} of them were tested, the others imputed as Algorithm 1 does.",
                "section 5.2, table of prediction performance",
            )
    yield claim(
        "time to predict a blanket",
        f"{paper.prediction_ms:g} ms on average",
        "a look-up in a table: see docs/benchmarks.md",
        Verdict.NONE,
        "All predictions are made beforehand.",
        "section 5.2, figure of prediction times",
    )
    lengths = {int(length): count for length, count in facts.get("predicted_lengths", {}).items()}
    if lengths:
        small = sum(count for length, count in lengths.items() if length <= 2) / sum(lengths.values())
        yield claim(
            "blankets of at most 2 locations",
            share(paper.at_most_two),
            f"{share(small)} of samples, as predicted",
            Verdict.AGREES if small >= paper.at_most_two - _CLOSE else Verdict.DIFFERS,
            "Larger groups reject more often: see the study on Porto and Rome. At most 3 are looked for here.",
            "section 5.2, figure of blanket sizes",
        )


def _gain(panel: Panel, gain: PaperGain) -> Claim:
    gains = {point: value for point in panel.points if (value := saved(panel, "lp_cmdp", gain.over, point)) is not None}
    points: dict[Verdict, list[str]] = {}
    for point, value in gains.items():
        points.setdefault(_holds(value, gain), []).append(number(point))
    verdicts = [verdict for verdict in Verdict if verdict in points]
    return Claim(
        f"loss of LP+C-mDP against {label_of(gain.over)}",
        f"{gain.words}, at every ε from {_PAPER_EPSILON[0]:g} to {_PAPER_EPSILON[1]:g} per km",
        "; ".join(f"ε = {number(point)}: {_saved(value)} below" for point, value in gains.items()) or "–",
        "; ".join(f"{verdict} at ε = {', '.join(points[verdict])}" for verdict in verdicts)
        if len(verdicts) > 1
        else "".join(verdicts),
        _WHY_GAIN.get(gain.over, f"{_DOMAIN} {_SMALL_EPSILON}"),
        gain.where,
        panel.city,
    )


def _holds(value: Value, gain: PaperGain) -> Verdict:
    """Whether a share saved is in the paper's range; where only its interval reaches there, it cannot be decided."""
    if gain.over == "lp_true_mb" and abs(value.value) < _SAME:
        return Verdict.UNDECIDED  # predicted and found blankets have the same rows: one mechanism is both
    if gain.low <= value.value <= gain.high:
        return Verdict.AGREES
    interval = value.interval
    if interval is None or (interval.high >= gain.low and interval.low <= gain.high):
        return Verdict.UNDECIDED
    return Verdict.DIFFERS


def _losses(comparison: Comparison, panel: Panel, paper: PaperCity) -> Iterator[Claim]:
    others = {other.loss_case: other for other in comparison.other_losses if other.city == panel.city}
    claim = partial(Claim, verdict=Verdict.NONE, why=_DOMAIN, city=panel.city)
    destination = others.get("one destination", panel)
    smallest = destination.points[0]
    for method, says in paper.loss_km.items():
        value = destination.value(method, Measure.HELD_OUT_LOSS, smallest)
        if value is not None:
            yield claim(
                f"loss of {label_of(method)}, one destination",
                f"{says:.3f} km",
                f"{text(value.value, '.3f', value.interval)} km at ε = {number(smallest)}",
                where="table of losses, cut from the final text; its ε is not named",
            )
    if (nearest := others.get("case II")) is None:
        return
    for method, says in paper.nearest_error.items():
        value = nearest.value(method, Measure.HELD_OUT_LOSS, nearest.points[0])
        if value is not None:
            yield claim(
                f"error rate of {label_of(method)}, nearest vehicle",
                f"{says:g} (per cent, it seems)",
                f"{value.value:.2%} at ε = {number(nearest.points[0])}",
                where="table of losses, case II, cut from the final text",
            )


def _privacy(panel: Panel, paper: PaperCity) -> Iterator[Claim]:
    smallest = float(panel.points[0])
    for method, says in paper.privacy.items():
        for name, theirs, measure, form, unit in (
            ("worst leakage / ε", says.leakage / 0.1, Measure.LEAKAGE_MAX, ".2f", smallest),
            ("mean leakage / ε", says.expected_leakage / 0.1, Measure.LEAKAGE_EXPECTED, ".2f", smallest),
            ("EIE (most probable place), km", says.inference_error_km, Measure.INFERENCE_ERROR_LIKELIEST, ".3f", 1.0),
            ("inference success", says.inference_success, Measure.INFERENCE_SUCCESS, ".3f", 1.0),
        ):
            ours = panel.number(method, measure, smallest)
            if ours is not None:
                yield Claim(
                    f"{label_of(method)}: {name}",
                    f"{theirs:{form}}",
                    f"{ours / unit:{form}} at ε = {smallest:g}",
                    Verdict.NONE,
                    "Leakage above 1 breaks the promise." if theirs > 1.0001 else _DOMAIN,
                    "table of privacy levels at ε = 0.1 per km, cut from the final text",
                    panel.city,
                )


def _efficiency(panel: Panel, paper: PaperCity) -> Iterator[Claim]:
    claim = partial(Claim, where="section 5.4, figure of computation time", city=panel.city)
    point = reference_epsilon(panel)
    seconds = [value.value for _, value in panel.series("lp_cmdp", Measure.BUILD_SECONDS)]
    if seconds:
        rows = panel.number("lp_cmdp", Measure.ROWS, point)
        low, high = paper.build_seconds_range
        yield claim(
            "time of the linear program",
            f"{paper.build_seconds:g} s on average, {low:g} to {high:g} s at all ε",
            f"{min(seconds):.3g} to {max(seconds):.3g} s for all zones"
            + ("" if rows is None else f", {rows:,.0f} rows together"),
            Verdict.NONE,
            "Other sizes, another solver and another computer; every result here is proven to be near the optimum and "
            "verified exactly.",
        )
    microseconds = panel.number("lp_cmdp", Measure.RELEASE_US, point)
    if microseconds is not None:
        yield claim(
            "time to draw a perturbed location",
            f"{SELECTION_MS:g} ms on average, at most {LONGEST_SELECTION_MS:g} ms",
            f"{microseconds:.3g} µs (median)",
            Verdict.NONE,
            "A look-up and an exact draw; the durable note of what was spent comes on top.",
        )


def _density(city: str, paper: PaperCity) -> Claim:
    shares = ", ".join(f"{share(value)} have {count} or more" for count, value in paper.share_with.items())
    return Claim(
        "neighbours within 100 m",
        f"of recorded points, {shares}",
        "see docs/study.md",
        Verdict.NONE,
        "The more trips are recorded, the denser recorded points lie; places on roads do not.",
        "last appendix, neighbourhood density",
        city,
    )


def _saved(value: Value) -> str:
    return percent(value.value) if value.interval is None else text(value.value, ".1%", value.interval)
