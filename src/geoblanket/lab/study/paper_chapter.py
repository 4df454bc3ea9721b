"""The paper's claims about what an evaluation measures: a chapter of its report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from geoblanket._display import number
from geoblanket._page import Page
from geoblanket.errors import InputError
from geoblanket.lab.evaluate.methods import METHODS
from geoblanket.lab.evaluate.panels import Comparison, Panel, saved
from geoblanket.lab.evaluate.report import Chapter
from geoblanket.lab.study.paper import (
    CLAIMS_HEADING,
    CLOSE,
    GAINS,
    PAPER,
    Claim,
    PaperCity,
    add_claims,
    at_most_two,
    share_interval,
)

__all__ = ["paper_chapter", "paper_claims", "read_training"]

_EPSILON = (0.25, 0.5)
"""The paper's claims about losses are for ε between these, per km."""
_SAME = 5e-4
"""A smaller share saved is shown as 0.0 %: both kinds of blanket then have the same rows and mechanism."""
_NOT_ALIKE = (
    "The paper's vehicles report one of the 50 nodes nearest to the true location; here the domain is public and the "
    "same for all vehicles of a zone. Compare what methods save, not kilometres."
)


def paper_chapter(training: Mapping[str, Mapping[str, Any]]) -> Chapter:
    """Return the chapter of an evaluation's report with the paper's numbers; empty for cities that it does not study.

    Parameters
    ----------
    training
        As `read_training` returns it.
    """

    def add(page: Page, comparison: Comparison) -> Mapping[str, Any]:
        claims = paper_claims(comparison, training)
        if claims:
            page.heading(CLAIMS_HEADING)
            page.note(_NOT_ALIKE)
        for city in dict.fromkeys(claim.city for claim in claims):
            page.subheading(city.title())
            add_claims(page, [claim for claim in claims if claim.city == city])
        return {"paper": [claim.as_dict() for claim in claims]}

    return add


def read_training(folder: str | Path, cities: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the scores of predictors by city, from the folder of `geoblanket evaluate paper`."""
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


def paper_claims(comparison: Comparison, training: Mapping[str, Mapping[str, Any]]) -> list[Claim]:
    """Return the paper's claims about what an evaluation measures; none about cities that it does not study."""
    claims: list[Claim] = []
    for panel in comparison.main:
        if (paper := PAPER.get(panel.city.lower())) is not None:
            claims += _predictions(panel.city, paper, training.get(panel.city, {}))
            claims += _gains(panel)
    return claims


def _predictions(city: str, paper: PaperCity, facts: Mapping[str, Any]) -> Iterator[Claim]:
    evaluations = {(each["model"], each["trained_on"]): each["scores"] for each in facts.get("evaluations", [])}
    scores = evaluations.get(("network", "all"), {}).get("all")
    for name, says in paper.prediction.items() if scores is not None else ():
        # Only the accuracy is a share of a known number of hypotheses.
        known = name == "accuracy" and scores[name] is not None
        interval = share_interval(round(scores[name] * scores["n"]), scores["n"]) if known else None
        topic, where = f"prediction: {name.replace('_', ' ')}", "section 5.2, table of prediction performance"
        yield Claim(
            topic, f"{says:.4f}", says - CLOSE, says + CLOSE, scores[name], interval, where, city, ".4f"
        )  # fmt: skip
    lengths = {int(length): count for length, count in facts.get("predicted_lengths", {}).items()}
    if lengths:
        yield at_most_two(paper, lengths, city=city)


def _gains(panel: Panel) -> Iterator[Claim]:
    for gain in GAINS:
        for point in (point for point in panel.points if _EPSILON[0] <= float(point) <= _EPSILON[1]):
            value = saved(panel, "lp_cmdp", gain.over, point)
            if value is not None:
                same = gain.over == "lp_true_mb" and abs(value.value) < _SAME
                yield Claim(
                    f"loss of LP+C-mDP below {METHODS[gain.over].label}, ε = {number(point)}",
                    gain.words,
                    gain.low,
                    gain.high,
                    value.value,
                    None if same else value.interval,
                    "section 5.3",
                    panel.city,
                )
