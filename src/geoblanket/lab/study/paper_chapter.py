"""What an evaluation, its training and its studies measure about the paper's claims: a chapter, and a table of all."""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket._display import Interval, text
from geoblanket._files import atomic_output
from geoblanket._page import Page
from geoblanket.errors import InputError
from geoblanket.lab.evaluate.experiment import ONE_DESTINATION
from geoblanket.lab.evaluate.measures import Measure, Value
from geoblanket.lab.evaluate.panels import Comparison, Panel, main_panels, saved
from geoblanket.lab.evaluate.report import Chapter
from geoblanket.lab.study.paper import (
    CITIES,
    CLAIMS_HEADING,
    Claim,
    Measured,
    add_claims,
    claims_table,
    judge,
    share_interval,
    short_blankets,
)
from geoblanket.roads.graph import RoadGraph

__all__ = ["PaperFacts", "check_paper", "paper_chapter", "read_facts", "write_claims"]

_LARGEST_EPSILON = 0.5
"""The paper's claims about losses are for ε up to this, per km …"""
_TABLE_EPSILON = 0.1
"""… and its tables for this."""
_SAME = 5e-4
"""A smaller share saved is shown as 0.0 %: both kinds of blanket then have the same rows and mechanism."""
_DEVIATIONS = 1.96
_OTHERS = ("lp", "constopt", "constopt_peaks", "expmech", "expmech_published", "tem", "lp_true_mb", "lp_markov1")
_BENCHMARKS = ("lp", "constopt", "expmech_published")
"""The context-free methods that the introduction compares with."""
_PAPER_METHODS = ("lp_cmdp", "lp_markov1", "lp", "constopt", "expmech_published")
_CASES = {"case I": "population", "case II": "case II"}
_PRIVACY = {
    Measure.LEAKAGE_MAX: 1,
    Measure.LEAKAGE_EXPECTED: 1,
    Measure.INFERENCE_ERROR_LIKELIEST: -1,
    Measure.INFERENCE_SUCCESS: 1,
}
"""The paper's measures of privacy; 1: larger values protect less."""
_NOT_ALIKE = (
    "The paper's vehicles report one of the 50 nodes nearest to the true location; here the domain is public and the "
    "same for all vehicles of a zone. Compare what methods save, not kilometres."
)


@dataclass(frozen=True)
class PaperFacts:
    """What is known of a city besides the results of its evaluation."""

    training: Mapping[str, Any] = field(default_factory=dict)
    """Of the predictor, as `prepare_city` writes it."""
    study: Mapping[str, Measured] = field(default_factory=dict)
    """What a study measured, by key."""
    data: Mapping[str, Measured] = field(default_factory=dict)
    """Sizes of the data, by key."""


def read_facts(folder: str | Path, cities: Iterable[str]) -> dict[str, PaperFacts]:
    """Return what `geoblanket evaluate paper` left in its folder, and a study of a city in CITY/study, by city."""
    facts = {}
    for city in cities:
        here = Path(folder) / city
        claims = _read_json(here / "study" / "study.json").get("claims", [])
        study = {claim["key"]: _measured(claim) for claim in claims if "key" in claim}
        facts[city] = PaperFacts(_read_json(here / "training.json"), study, _sizes_of_data(here))
    return facts


def _measured(claim: Mapping[str, Any]) -> Measured:
    interval = claim["interval"]
    return Measured(claim["measured"], None if interval is None else Interval(*interval), claim["words"])


def _sizes_of_data(folder: Path) -> dict[str, Measured]:
    sizes = {}
    if (folder / "whole.roads").is_file():
        graph = RoadGraph.load(folder / "whole.roads")
        sizes = {"data:nodes": graph.node_count, "data:edges": graph.edge_count}
    if (folder / "traces.parquet").is_file():
        trips = pl.scan_parquet(folder / "traces.parquet").select("vehicle", "trip").unique().select(pl.len())
        sizes["data:trips"] = trips.collect(engine="streaming").item()
    return {key: Measured(float(size), Interval(float(size), float(size))) for key, size in sizes.items()}


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read as JSON ({error})", path=path, hint="Remove the city's folder") from error
    return content


def paper_chapter(claims: Sequence[Claim]) -> Chapter:
    """Return the chapter of an evaluation's report with the paper's claims; empty without claims."""

    def add(page: Page, _: Comparison) -> Mapping[str, Any]:
        if claims:
            page.heading(CLAIMS_HEADING)
            page.note(_NOT_ALIKE)
        for city in dict.fromkeys(claim.city for claim in claims):
            page.subheading(city.title())
            add_claims(page, [claim for claim in claims if claim.city == city])
        return {"paper": [claim.as_dict() for claim in claims]}

    return add


def write_claims(claims: Sequence[Claim], path: str | Path) -> None:
    """Write every claim of the paper with our numbers beside it, a CSV file."""
    with atomic_output(Path(path)) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(claims_table(claims))


def check_paper(results: pl.DataFrame, facts: Mapping[str, PaperFacts]) -> list[Claim]:
    """Return the paper's claims with what was measured; none about cities that it does not study.

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
        if city.lower() in CITIES:
            of_city = {panel.loss_case: panel for panel in panels if panel.city == city}
            known = facts.get(city, PaperFacts())
            measured = {
                **known.data,
                **known.study,
                **dict(_of_training(known.training)),
                **dict(_of_losses(of_city)),
                **dict(_of_privacy(of_city, results.filter(pl.col("city") == city))),
            }
            claims += judge(measured, city.lower(), every=True)
    return claims


def _of_training(facts: Mapping[str, Any]) -> Iterator[tuple[str, Measured]]:
    evaluations = {(each["model"], each["trained_on"]): each["scores"] for each in facts.get("evaluations", [])}
    scores = evaluations.get(("network", "all"), {}).get("all", {})
    for name, value in scores.items():
        # Only the accuracy is a share of a known number of hypotheses.
        known = name == "accuracy" and value is not None
        yield (
            f"prediction:{name}",
            Measured(value, share_interval(round(value * scores["n"]), scores["n"]) if known else None),
        )
    if lengths := facts.get("predicted_lengths"):
        yield "sizes:predicted", short_blankets({int(length): count for length, count in lengths.items()})
    if "seconds" in facts:
        yield "time:train", Measured(facts["seconds"], words=f" ({facts['epochs']:,} epochs)")
    if times := facts.get("predict_us"):
        yield "time:predict", Measured(times["mean"] / 1000, words=f" (98 %: below {times['98 %'] / 1000:.4f})")
        within = times["within 2 ms"]
        yield "time:predict within 2 ms", Measured(within, Interval(within, within))


def _of_losses(panels: Mapping[str, Panel]) -> Iterator[tuple[str, Measured]]:
    """Yield losses, and what LP+C-mDP saves: of vehicles with one destination each, as in the paper, if there are."""
    panel = panels.get(ONE_DESTINATION, panels.get("population"))
    if panel is None:
        return
    points = [point for point in panel.points if float(point) <= _LARGEST_EPSILON]
    gains = {
        (other, point): value
        for other in _OTHERS
        for point in points
        if (value := saved(panel, "lp_cmdp", other, point)) is not None
    }
    for other in _OTHERS:
        if of_other := {point: value for (name, point), value in gains.items() if name == other}:
            yield f"gain:{other}", _over_epsilon(of_other, same=other == "lp_true_mb")
    if least := [value for (other, _), value in gains.items() if other in _BENCHMARKS]:
        worst = min(least, key=lambda value: value.value)
        yield "gain:least", Measured(worst.value, worst.interval)
    yield "trend:loss", _all_rise(panel, {Measure.HELD_OUT_LOSS: -1}, panel.methods)
    yield from _of_table("case I", panel, 1)
    if "case II" in panels:
        yield from _of_table("case II", panels["case II"], 100)


def _of_table(case: str, panel: Panel, scale: float) -> Iterator[tuple[str, Measured]]:
    """Yield the losses of the paper's table, in its unit."""
    for method in _PAPER_METHODS:
        loss, spread = (
            panel.value(method, name, _TABLE_EPSILON) for name in (Measure.HELD_OUT_LOSS, Measure.LOSS_SPREAD)
        )
        if loss is not None:
            words = "" if spread is None else f" ±{scale * spread.value:.3f}"
            sure = loss.interval
            interval = None if sure is None else Interval(scale * sure.low, scale * sure.high)
            yield f"loss:{case}:{method}", Measured(scale * loss.value, interval, words)


def _over_epsilon(gains: Mapping[float | str, Value], *, same: bool) -> Measured:
    """Return the mean of shares saved over all ε, their range, and an interval that holds that of each ε."""
    values = [gain.value for gain in gains.values()]
    intervals = [gain.interval for gain in gains.values() if gain.interval is not None]
    words = "" if len(values) == 1 else f" ({text(min(values), '.1%')} to {text(max(values), '.1%')})"
    itself = same and max(map(abs, values)) < _SAME
    if itself or len(intervals) < len(values):
        return Measured(statistics.mean(values), None, words)
    together = Interval(min(each.low for each in intervals), max(each.high for each in intervals))
    return Measured(statistics.mean(values), together, words)


def _all_rise(panel: Panel, measures: Mapping[Measure, int], methods: Iterable[str]) -> Measured:
    """Return the share of methods whose measures all rise with ε, those with −1 fall; equal values count."""
    known = [method for method in methods if all(panel.series(method, measure) for measure in measures)]
    right = 0
    for method in known:
        rises = True
        for measure, sign in measures.items():
            series = [sign * value.value for _, value in panel.series(method, measure)]
            rises &= all(a <= b + 1e-6 * abs(b) for a, b in pairwise(series))
        right += rises
    share = right / len(known) if known else math.nan
    return Measured(share if known else None, Interval(share, share) if known else None, f" of {len(known)}")


def _of_privacy(panels: Mapping[str, Panel], results: pl.DataFrame) -> Iterator[tuple[str, Measured]]:
    """Yield leakage, attacks and times; mean and spread are over zones."""
    plain = results.filter((pl.col("zone") >= 0) & (pl.col("variant") == ""))
    for case, loss_case in _CASES.items():
        rows = plain.filter((pl.col("loss_case") == loss_case) & (pl.col("epsilon") == _TABLE_EPSILON))
        for method in _PAPER_METHODS:
            for measure in _PRIVACY:
                values = rows.filter((pl.col("method") == method) & (pl.col("measure") == measure))["value"]
                if len(values):
                    words = f" ±{_DEVIATIONS * statistics.pstdev(values):.3f}"
                    yield f"privacy:{case}:{measure}:{method}", Measured(statistics.mean(values), words=words)
    for name, measure, scale in (("solve", Measure.BUILD_SECONDS, 1.0), ("select", Measure.RELEASE_US, 1e-3)):
        times = plain.filter((pl.col("method") == "lp_cmdp") & (pl.col("measure") == measure))["value"] * scale
        longest = plain.filter(pl.col("measure") == Measure.RELEASE_US_LONGEST)["value"]
        if len(times) and name == "solve":
            yield "time:solve", Measured(statistics.mean(times), words=f" ({min(times):.2f} to {max(times):.2f})")
        elif len(times):
            words = f" ({max(longest) * scale:.4f})" if len(longest) else ""
            yield "time:select", Measured(statistics.median(times), words=words)
    if (panel := panels.get("population")) is not None:
        yield from _trends(panel)


def _trends(panel: Panel) -> Iterator[tuple[str, Measured]]:
    methods = [method for method in _PAPER_METHODS if method in panel.methods]
    budget = [
        value.value / float(point)
        for method in panel.methods
        for point, value in panel.series(method, Measure.LEAKAGE_MAX)
    ]
    if budget:
        yield "trend:budget", Measured(max(budget), Interval(0.0, max(budget)))
    leaks, attacks = dict(list(_PRIVACY.items())[:2]), dict(list(_PRIVACY.items())[2:])
    yield "trend:leakage", _all_rise(panel, leaks, methods)
    yield "trend:attack", _all_rise(panel, attacks, methods)
    best = []
    for measure, sign in _PRIVACY.items():
        for point in panel.points:
            each = {method: panel.number(method, measure, point) for method in methods}
            known = {method: sign * value for method, value in each.items() if value is not None}
            if "expmech_published" in known:
                best.append(known["expmech_published"] <= min(known.values()) + 1e-9)
    if best:
        share = sum(best) / len(best)
        yield "trend:exponential", Measured(share, Interval(share, share))
