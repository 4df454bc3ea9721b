"""The study's folder: figures, tables, the paper's claims, and one page with all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from geoblanket._display import UNKNOWN, Interval, Progress, counted, p_text, share, signed, silent
from geoblanket._files import atomic_output
from geoblanket._page import Page, ReportFolder
from geoblanket.blanket.groups import Regions, find_regions
from geoblanket.errors import ParameterError
from geoblanket.lab.study.figures import (
    correlation_figure,
    heat_maps,
    profile_figure,
    rejection_figure,
    sizes_figure,
)
from geoblanket.lab.study.group_statistics import FEATURES, OUTCOMES, rank_interval
from geoblanket.lab.study.paper import (
    CLAIMS_HEADING,
    COMPARED,
    Claim,
    Measured,
    add_claims,
    judge,
    paper_number,
    share_interval,
    short_blankets,
)
from geoblanket.lab.study.running import COMBINED, Study
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places

_HIGH_P = 0.9


def check_claims(study: Study, paper: str | None) -> list[Claim]:
    """Return the paper's claims that the study's numbers can judge; some are about a city of the paper only."""
    measured = {**_rejections(study), **_correlations(study), **_densities(study)}
    sizes = study.sizes.filter(pl.col("by") == study.main)
    if not sizes.is_empty():
        measured["sizes:found"] = short_blankets(dict(sizes.select("order", "groups").iter_rows()))
    return judge(measured, paper)


def _rejections(study: Study) -> dict[str, Measured]:
    measured = {}
    rows = study.rejections.filter(pl.col("by") == study.main).sort("m").to_dicts()
    if rows:
        first, last = rows[0], rows[-1]
        measured["rejected:first"] = Measured(first["share"], Interval(first["low"], first["high"]))
    if len(rows) > 1:
        fewer = Interval(first["low"] - last["high"], first["high"] - last["low"])
        measured["rejected:less"] = Measured(first["share"] - last["share"], fewer)
    by_hour = study.found.findings.filter((pl.col("by") == "hour") & (pl.col("status") == "tested") & (pl.col("m") > 2))
    if not by_hour.is_empty():
        high = int((by_hour["p_value"] > _HIGH_P).sum())
        measured["rejected:by hour"] = Measured(high / by_hour.height, share_interval(high, by_hour.height))
    return measured


def _correlations(study: Study) -> dict[str, Measured]:
    """Return the correlations of the mean p of groups, and the p-values of classifier tests.

    As in the paper, the size of groups is left out of account; the words tell what is left given the size.
    """
    of_mean = study.correlations.filter((pl.col("outcome") == "p_value") & pl.col("m").is_null())
    columns = ("measure", "feature", "coefficient", "given_n", "groups")
    measured = {}
    for measure, feature, value, given, groups in _best_grouping(study, of_mean).select(columns).iter_rows():
        interval = None if measure == "kendall" else Interval(*map(float, rank_interval(value, groups)))
        words = "" if given is None else f" (given n: {signed(given)})"
        measured[f"correlation:{measure}:{feature}"] = Measured(value, interval, words=words)
    of_all = study.dependence.filter(pl.col("m").is_null() & pl.col("p_value").is_not_null())
    for feature, p_value, given in of_all.select("feature", "p_value", "p_given_n").iter_rows():
        words = "" if given is None else f" (given n: {p_text(given)})"
        measured[f"classifier:{feature}"] = Measured(p_value, Interval(p_value, p_value), words=words)
    return measured


def _densities(study: Study) -> dict[str, Measured]:
    points = next(iter(study.densities.values()))
    shares = {
        **{f"density:with:{k}": points.share_with(k) for k in (100, 500, 1000)},
        **{f"density:within:{metres}": points.share_within(metres) for metres in (50, 100)},
    }
    # Points get denser with more recorded trips, and the paper has more trips.
    return {key: Measured(ours, Interval(ours, 1.0)) for key, ours in shares.items()}


def summarise(study: Study) -> list[str]:
    """Return what was tested and what was rejected, a line each."""
    counts = study.about["counts"]
    combined = study.found.findings.filter((pl.col("by") == COMBINED) & (pl.col("m") == 1))
    tested = combined.filter(pl.col("status") == "tested").height
    rows = study.rejections.filter(pl.col("by") == study.main).sort("m").to_dicts()
    rejected = "; ".join(
        f"|B| = {row['m']}: {share(row['share'])} ({row['rejected_adjusted']} of {row['tested']})" for row in rows
    )
    return [
        f"{counted(counts['walks'], 'walk')} of {counted(counts['vehicles'], 'vehicle')} with "
        f"{counted(counts['steps'], 'step')}, one each {study.about['interval_s']:g} s; {tested:,} of "
        f"{combined.height:,} groups by hour, speed and region have enough samples.",
        f"Rejected, groups by {study.main} (in brackets: after correction): {rejected or 'none was tested'}.",
    ]


_Column = tuple[str, Callable[[Any], str]]


def _order(m: int | None) -> str:
    return "all" if m is None else f"{m}"


_COLUMNS: dict[str, _Column] = {
    "by": ("groups by", str),
    "m": ("|B|", _order),
    "feature": ("feature", str),
    "outcome": ("of", OUTCOMES.__getitem__),
    "measure": ("measure", str),
    "groups": ("groups", str),
    "tested": ("tested", "{:,}".format),
    "unresolved": ("not resolved", "{:,}".format),
    "rejected": ("rejected", "{:,}".format),
    "share": ("share", share),
    "rejected_adjusted": ("after correction", "{:,}".format),
    "median_p": ("median p", p_text),
    "share_above_09": ("p > 0.9", share),
    "median_n": ("median n", "{:,.0f}".format),
    "accuracy": ("accuracy", share),
    "coefficient": ("value", signed),
    "p_value": ("p", p_text),
    "given_n": ("given n", signed),
    "p_given_n": ("p given n", p_text),
    "paper": ("the paper", str),
}
"""Columns of the study's tables on the page: their titles, and how values are written."""


def _add_table(page: Page, frame: pl.DataFrame, caption: str) -> None:
    columns = [name for name in frame.columns if name in _COLUMNS]
    cells = [
        [UNKNOWN if value is None and name != "m" else _COLUMNS[name][1](value) for name, value in row.items()]
        for row in frame.select(columns).iter_rows(named=True)
    ]
    words = [at for at, name in enumerate(columns) if frame.schema[name] == pl.String()]
    page.table([_COLUMNS[name][0] for name in columns], cells, caption=caption, words=words)


def _with_paper(frame: pl.DataFrame, value: Callable[[dict[str, Any]], str]) -> pl.DataFrame:
    return frame.with_columns(pl.Series("paper", [value(row) for row in frame.iter_rows(named=True)], pl.String))


def _best_grouping(study: Study, table: pl.DataFrame) -> pl.DataFrame:
    """Return the correlations of each feature in the grouping with the most tested groups."""
    best = pl.DataFrame(list(study.grouping.items()), schema={"feature": pl.String, "by": pl.String}, orient="row")
    return table.join(best, on=["feature", "by"], how="semi").filter(pl.col("coefficient").is_not_null())


def _add_correlations(page: Page, study: Study, paper: str | None) -> None:
    """Add the tables of correlations: with all samples, and with equally many in each group."""

    def of_paper(row: dict[str, Any]) -> str:
        says = paper_number(paper, f"correlation:{row['measure']}:{row['feature']}")
        return "" if says is None or row["m"] is not None or row["outcome"] != "p_value" else signed(says)

    for caption, table in (
        (f"All samples of a group, up to {study.about['largest_sample']:,}.", study.correlations),
        (f"Exactly {study.about['smallest_group']:,} samples in every group.", study.equal_correlations),
    ):
        frame = _with_paper(_best_grouping(study, table), of_paper)
        _add_table(page, frame, f"{caption} |B| = all: the mean of a group's p-values (effects) over all orders.")
    page.paragraph(
        "The measure circular is the multiple correlation with the cosine and sine of the hour, for which 23 and 0 are "
        "neighbours; it has no sign. Kendall's partial coefficient has no p-value: its distribution is not known."
    )


def _add_classifiers(page: Page, study: Study, paper: str | None) -> None:
    """Add the table of classifier tests, and the paper's CCIT."""

    def of_paper(row: dict[str, Any]) -> str:
        says = paper_number(paper, f"classifier:{row['feature']}")
        return "" if says is None or row["m"] is not None else f"{says:.3g}"

    _add_table(
        page,
        _with_paper(study.dependence, of_paper),
        "How well a classifier tells real pairs (feature, p-values of a group) from shuffled ones that it has not "
        "seen: 50 % is chance. Given n: shuffled only among groups of about the same number of samples.",
    )


def write_report(
    study: Study,
    out: str | Path,
    *,
    roads: str | Path,
    regions: Regions | None = None,
    paper: str | None = None,
    title: str = "Markov blankets",
    progress: Progress = silent,
) -> dict[str, Any]:
    """Write figures (PNG and SVG), tables (CSV), `study.json` and `report.html`.

    Parameters
    ----------
    study
        Result of `run_study`.
    out
        The folder.
    roads, regions
        As given to `run_study`.
    paper
        A city to compare with the paper: "porto", "rome" or "sanfrancisco".
    title
        Of the report.

    Returns
    -------
    summary
        What `study.json` holds: the summary and the claims, as JSON values.
    """
    if paper not in (None, *COMPARED):
        raise ParameterError(f"The cities to compare are {', '.join(COMPARED)}. Got '{paper}' instead.")
    folder = ReportFolder(out)
    for name, table in study.tables().items():
        with atomic_output(folder.path / f"{name}.csv") as temporary:
            table.write_csv(temporary)
    folder.draw(_figures(study, RoadGraph.load(roads), regions, paper), progress)
    claims = check_claims(study, paper)
    folder.write_page(_page(study, folder, claims, paper, title))
    summary = {
        "title": title,
        "summary": summarise(study),
        "main": study.main,
        "claims": [claim.as_dict() for claim in claims],
        "about": study.about,
    }
    folder.write_json("study.json", summary)
    return summary


def _figures(
    study: Study, graph: RoadGraph, regions: Regions | None, paper: str | None
) -> Iterator[tuple[str, Figure]]:
    about, findings = study.about, study.found.findings
    alpha = about["alpha"]
    tested = findings.filter(pl.col("status") == "tested")
    places = choose_places(graph, spacing_m=about["spacing_m"])
    by_region = findings.filter(pl.col("by") == "region")
    if by_region["p_value"].is_not_null().any():
        region = find_regions(regions, places).region
        yield "p-by-region", heat_maps(by_region, graph, places, region, regions=about["regions"])
    hours = f"hour of day ({about['time_zone']})"
    for name, by, column, label, width in (
        ("p-by-speed", "speed", "speed_mph", "mean speed, mph", 5.0),
        ("p-by-hour", "hour", "hour", hours, 1.0),
    ):
        rows = tested.filter(pl.col("by") == by)
        if not rows.is_empty():
            yield name, profile_figure(rows, x=column, label=label, width=width, alpha=alpha)
    rejections = {
        f"up to {about['largest_sample']:,} samples a group": study.rejections,
        f"exactly {about['smallest_group']:,} samples a group": study.equal_rejections,
    }
    yield "rejections", rejection_figure(rejections, alpha=alpha)
    yield "blanket-sizes", sizes_figure(study.sizes)
    shown = _best_grouping(study, study.correlations)
    if not shown.is_empty():
        says = {feature: paper_number(paper, f"correlation:spearman:{feature}") for feature in FEATURES}
        known = {feature: number for feature, number in says.items() if number is not None}
        yield "correlations", correlation_figure(shown, paper=known)


_CAPTIONS = {
    "p-by-region": "P-value of the hypothesis that locations older than the |B| given ones do not matter, by region. "
    "n: samples used; hatched: too few to test.",
    "p-by-speed": "P-values (above) and effects (below) by speed, each group a bin of 5 mph. The effect, a partial "
    "R², hardly depends on the number of samples; the p-value falls with it.",
    "p-by-hour": "P-values (above) and effects (below) by hour of day.",
    "rejections": "Share of hypotheses rejected by |B|, with 95 % intervals; the dashed line is what chance would "
    "reject. Right: the same number of samples in every group.",
    "blanket-sizes": "Sizes of blankets by Algorithm 1: the first |B| whose hypothesis is not rejected.",
    "correlations": "Spearman's correlation over groups between each feature and p (above) or the effect (below), raw "
    "and given log n, with 95 % intervals. Mean: of a group's p-values or effects over all orders.",
}


def _page(study: Study, folder: ReportFolder, claims: Sequence[Claim], paper: str | None, title: str) -> Page:
    about = study.about
    page = Page(
        title,
        lead=f"How much of a vehicle's past its next location depends on. Test: {about['test']}, level "
        f"{about['alpha']:g}, interval {about['interval_s']:g} s, hours in {about['time_zone']}, seed {about['seed']}. "
        f"Groups of {about['smallest_group']:,} samples or more are tested, with at most {about['largest_sample']:,} "
        "drawn samples each; every order is tested in every group.",
    )

    def show(heading: str, *names: str) -> None:
        page.heading(heading)
        for name in names:
            folder.show(page, name, _CAPTIONS[name])

    page.heading("In short")
    page.bullets(summarise(study))
    page.heading(CLAIMS_HEADING)
    add_claims(page, claims)
    for feature in ("region", "speed", "hour"):
        show(f"By {feature}", f"p-by-{feature}")
    show("Rejections and blanket sizes", "rejections", "blanket-sizes")
    corrected = "Correction after Benjamini and Hochberg over the groups of a grouping and |B|, at 5 %."
    _add_table(page, study.rejections, corrected)
    show("Correlations between p and features", "correlations")
    _add_correlations(page, study, paper)
    page.heading("Dependence found by a classifier")
    _add_classifiers(page, study, paper)
    page.heading("Density of locations")
    densities = study.density_table()
    header = [name.replace("_", " ") for name in densities.columns]
    page.table(header, [(name, f"{count:,}", *map(share, shares)) for name, count, *shares in densities.iter_rows()])
    return page
