"""What an evaluation, its training and its studies measure about the paper's claims: a chapter, and a table of all."""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket._display import Interval, counted, text
from geoblanket._files import atomic_output
from geoblanket._page import Page
from geoblanket.errors import InputError
from geoblanket.lab.evaluate.experiment import ONE_DESTINATION
from geoblanket.lab.evaluate.measures import Measure, Value
from geoblanket.lab.evaluate.panels import Comparison, Panel, main_panels, saved
from geoblanket.lab.evaluate.report import Chapter
from geoblanket.lab.study.paper import (
    CLAIMS_HEADING,
    COMPARED,
    Claim,
    Measured,
    add_claims,
    claims_table,
    judge,
    share_interval,
    short_blankets,
)

Facts = Mapping[str, Measured]
"""What was measured, by the key of a claim."""

_LARGEST_EPSILON = 0.5
"""The paper's claims about losses are for ε up to this, per km …"""
_TABLE_EPSILON = 0.1
"""… and its tables for this."""
_SAME = 5e-4
"""A smaller share saved is shown as 0.0 %: both kinds of blanket then have the same rows and mechanism."""
_DEVIATIONS = 1.96
_BENCHMARKS = ("lp", "constopt", "expmech_published")
"""The context-free methods that the introduction compares with."""
_PAPER_METHODS = ("lp_cmdp", "lp_markov1", *_BENCHMARKS)
_LEAKAGE = {Measure.LEAKAGE_MAX: 1, Measure.LEAKAGE_EXPECTED: 1}
_ATTACKS = {Measure.INFERENCE_ERROR_LIKELIEST: -1, Measure.INFERENCE_SUCCESS: 1}
"""The paper's measures of privacy; 1: larger values protect less."""
_NOT_ALIKE = (
    "The paper's vehicles report one of the 50 nodes nearest to the true location; here the domain is public and the "
    "same for all vehicles of a zone. Compare what methods save, not kilometres."
)


def read_facts(folder: str | Path, cities: Iterable[str]) -> Mapping[str, Facts]:
    """Return what was measured by `geoblanket reproduce` in the folder of each city, and in its study."""
    facts: dict[str, dict[str, Measured]] = {}
    for city in cities:
        claims = _read_json(Path(folder) / city / "study" / "study.json").get("claims", [])
        facts[city] = dict(_of_training(_read_json(Path(folder) / city / "training.json")))
        for claim in (claim for claim in claims if "key" in claim):
            interval = Interval.of(*claim["interval"])
            facts[city][claim["key"]] = Measured(claim["measured"], interval, words=claim["words"])
    return facts


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read as JSON ({error})", path=path, hint="Remove the city's folder") from error
    return content


def _of_training(facts: Mapping[str, Any]) -> Iterator[tuple[str, Measured]]:
    evaluations = {(each["model"], each["trained_on"]): each["scores"] for each in facts.get("evaluations", [])}
    scores = evaluations.get(("network", "all"), {}).get("all", {})
    for name, value in scores.items():
        # Only the accuracy is a share of a known number of hypotheses.
        known = name == "accuracy" and value is not None
        interval = share_interval(round(value * scores["n"]), scores["n"]) if known else None
        yield f"prediction:{name}", Measured(value, interval)
    if lengths := facts.get("predicted_lengths"):
        yield "sizes:predicted", short_blankets({int(length): count for length, count in lengths.items()})
    if "seconds" in facts:
        yield "time:train", Measured(facts["seconds"], words=f" ({facts['epochs']:,} epochs)")
    if times := facts.get("predict_us"):
        yield "time:predict", Measured(times["mean"] / 1000, words=f" (98 %: below {times['98 %'] / 1000:.4f})")
        yield "time:predict within 2 ms", _exactly(times["within 2 ms"])


def _exactly(value: float, words: str = "") -> Measured:
    return Measured(value, Interval(value, value), words=words)


def paper_chapter(claims: Sequence[Claim]) -> Chapter:
    """Return the chapter of an evaluation's report with the paper's claims; empty without claims."""

    def add(page: Page, _: Comparison) -> Mapping[str, Any]:
        if claims:
            page.heading(CLAIMS_HEADING)
            page.note(_NOT_ALIKE)
            shown = [claim for claim in claims if claim.measured is not None]
            if shown:
                add_claims(page, shown)
            left = counted(len(claims) - len(shown), "claim")
            page.paragraph(f"{left} of the paper could not be measured in this run; claims.csv has them all.")
        return {"paper": [claim.as_dict() for claim in claims]}

    return add


def write_claims(claims: Sequence[Claim], path: str | Path) -> None:
    """Write every claim of the paper with our numbers beside it, a CSV file."""
    with atomic_output(Path(path)) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(claims_table(claims))


def check_paper(results: pl.DataFrame, facts: Mapping[str, Facts]) -> list[Claim]:
    """Return the paper's claims with what was measured; none about cities other than `COMPARED`.

    Parameters
    ----------
    results
        A table of `RESULTS_SCHEMA`.
    facts
        As `read_facts` returns them.
    """
    panels = main_panels(results)
    claims = []
    for city in dict.fromkeys(panel.city for panel in panels):
        if city.lower() in COMPARED:
            of_city = {panel.loss_case: panel for panel in panels if panel.city == city}
            zones = results.filter((pl.col("city") == city) & (pl.col("zone") >= 0) & (pl.col("variant") == ""))
            measured = {**facts.get(city, {}), **dict(_of_losses(of_city)), **dict(_of_zones(zones))}
            if "population" in of_city:
                measured |= dict(_trends(of_city["population"]))
            claims += judge(measured, city.lower(), every=True)
    return claims


def _of_losses(panels: Mapping[str, Panel]) -> Iterator[tuple[str, Measured]]:
    """Yield losses, and what LP+C-mDP saves: of vehicles with one destination each, as in the paper, if there are."""
    for case, panel in panels.items():
        for method in panel.methods:
            loss = panel.value(method, Measure.HELD_OUT_LOSS, _TABLE_EPSILON)
            spread = panel.number(method, Measure.LOSS_SPREAD, _TABLE_EPSILON)
            if loss is not None:
                yield f"loss:{case}:{method}", Measured(loss.value, loss.interval, spread)
    panel = panels.get(ONE_DESTINATION) or next(iter(panels.values()))
    points = [point for point in panel.points if float(point) <= _LARGEST_EPSILON]
    of_benchmarks: list[Value] = []
    for other in panel.methods:
        gains = [gain for point in points if (gain := saved(panel, "lp_cmdp", other, point)) is not None]
        if gains and other != "lp_cmdp":
            yield f"gain:{other}", _over_epsilon(gains, same=other == "lp_true_mb")
            of_benchmarks += gains if other in _BENCHMARKS else []
    if of_benchmarks:
        least = min(of_benchmarks, key=lambda gain: gain.value)
        yield "gain:least", Measured(least.value, least.interval)


def _over_epsilon(gains: Sequence[Value], *, same: bool) -> Measured:
    """Return the mean of shares saved over all ε, their range, and an interval that holds that of each ε."""
    values = [gain.value for gain in gains]
    intervals = [gain.interval for gain in gains if gain.interval is not None]
    words = f" ({text(min(values), '.1%')} to {text(max(values), '.1%')})" if len(values) > 1 else ""
    together = None
    if len(intervals) == len(values) and not (same and max(map(abs, values)) < _SAME):
        together = Interval(min(each.low for each in intervals), max(each.high for each in intervals))
    return Measured(statistics.mean(values), together, words=words)


def _of_zones(zones: pl.DataFrame) -> Iterator[tuple[str, Measured]]:
    """Yield leakage, attacks and times: means and spreads over zones."""
    at_one = zones.filter(pl.col("epsilon") == _TABLE_EPSILON).group_by("loss_case", "measure", "method")
    for case, measure, method, mean, deviation in at_one.agg(
        pl.col("value").mean(), pl.col("value").std(ddof=0).alias("deviation")
    ).iter_rows():
        yield f"privacy:{case}:{measure}:{method}", Measured(mean, spread=_DEVIATIONS * deviation)
    seconds, select_us, longest_us = (
        zones.filter((pl.col("method") == "lp_cmdp") & (pl.col("measure") == measure))["value"]
        for measure in (Measure.BUILD_SECONDS, Measure.RELEASE_US, Measure.RELEASE_US_LONGEST)
    )
    if len(seconds):
        yield "time:solve", Measured(statistics.mean(seconds), words=f" ({min(seconds):.2f} to {max(seconds):.2f})")
    if len(select_us) and len(longest_us):
        words = f" ({max(longest_us) / 1000:.4f})"
        yield "time:select", Measured(statistics.median(select_us) / 1000, words=words)


def _trends(panel: Panel) -> Iterator[tuple[str, Measured]]:
    budget = [
        value.value / float(point)
        for method in panel.methods
        for point, value in panel.series(method, Measure.LEAKAGE_MAX)
    ]
    if budget:
        yield "trend:budget", _exactly(max(budget))
    methods = [method for method in _PAPER_METHODS if method in panel.methods]
    yield "trend:loss", _rising(panel, {Measure.DESIGN_LOSS: -1}, panel.methods)
    yield "trend:leakage", _rising(panel, _LEAKAGE, methods)
    yield "trend:attack", _rising(panel, _ATTACKS, methods)
    best = []
    for measure, sign in {**_LEAKAGE, **_ATTACKS}.items():
        for point, ours in panel.series("expmech_published", measure):
            others = [panel.number(method, measure, point) for method in methods]
            best.append(all(sign * ours.value <= sign * other + 1e-9 for other in others if other is not None))
    if best:
        yield "trend:exponential", _exactly(statistics.mean(best))


def _rising(panel: Panel, measures: Mapping[Measure, int], methods: Sequence[str]) -> Measured:
    """Return the share of methods whose measures all rise with ε, those with −1 fall; equal values count."""
    right = [
        all(
            sign * a.value <= sign * b.value + 1e-6 * abs(b.value)
            for measure, sign in measures.items()
            for (_, a), (_, b) in pairwise(panel.series(method, measure))
        )
        for method in methods
    ]
    return _exactly(statistics.mean(right), f" of {len(right)}") if right else Measured(None)
