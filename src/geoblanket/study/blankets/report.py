"""The study's folder: figures, tables, and one page that tells it all."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from geoblanket import __version__
from geoblanket._files import atomic_output
from geoblanket._page import Page
from geoblanket._picture import save_figure
from geoblanket._progress import Progress, silent
from geoblanket.blanket.place_regions import Regions, find_regions
from geoblanket.errors import ParameterError
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places
from geoblanket.study.blankets.claims import Claim, check_claims
from geoblanket.study.blankets.figures import (
    correlation_figure,
    density_figure,
    profile_figure,
    rejection_figure,
    size_effect_figure,
    sizes_figure,
)
from geoblanket.study.blankets.maps import heat_maps
from geoblanket.study.blankets.paper import PAPER, PaperCity
from geoblanket.study.blankets.report_tables import (
    add_classifiers,
    add_correlations,
    add_densities,
    add_differences,
    add_rejections,
    shown_correlations,
)
from geoblanket.study.blankets.running import Study
from geoblanket.study.blankets.summary import summarise
from geoblanket.study.blankets.wording import count

__all__ = ["write_report"]


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
        What was found, by `run_study`.
    out
        The folder.
    roads, regions
        As given to `run_study`.
    paper
        A city of the paper to compare with: "rome" or "porto".
    title
        Of the report.

    Returns
    -------
    summary
        What `study.json` holds: sentences and claims, as JSON values.
    """
    city = _city(paper)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in study.tables().items():
        with atomic_output(folder / f"{name}.csv") as temporary:
            table.write_csv(temporary)
    graph = RoadGraph.load(roads)
    figures = _figures(study, graph, regions, city)
    for done, (name, figure) in enumerate(figures.items()):
        progress("figures", done, len(figures))
        save_figure(figure, folder / f"{name}.png", dpi=130)
        figure.set_layout_engine("none")  # it is laid out now; to do it again takes as long as to draw it
        save_figure(figure, folder / f"{name}.svg", dpi=130)
    progress("figures", len(figures), len(figures))
    claims = check_claims(study, city)
    sentences = summarise(study, claims)
    _page(study, folder, figures.keys(), claims=claims, sentences=sentences, paper=city, title=title).save(
        folder / "report.html", footer=f"Made by geoblanket {__version__}."
    )
    summary = {
        "title": title,
        "summary": sentences,
        "claims": [
            {"topic": c.topic, "paper": c.paper, "measured": c.measured, "verdict": c.verdict.value, "why": c.why}
            for c in claims
        ],
        "about": study.about,
    }
    with atomic_output(folder / "study.json") as temporary:
        temporary.write_text(json.dumps(summary, indent=2, allow_nan=False, sort_keys=True), encoding="utf-8")
    return summary


def _city(paper: str | None) -> PaperCity | None:
    if paper is not None and paper not in PAPER:
        raise ParameterError(f"The paper's cities are {', '.join(PAPER)}. Got '{paper}' instead.")
    return None if paper is None else PAPER[paper]


def _figures(study: Study, graph: RoadGraph, regions: Regions | None, paper: PaperCity | None) -> dict[str, Figure]:
    about, findings = study.about, study.found.findings
    alpha = about["alpha"]
    tested = findings.filter(pl.col("status") == "tested")
    places = choose_places(graph, spacing_m=about["spacing_m"])
    figures: dict[str, Figure] = {}
    by_region = findings.filter(pl.col("by") == "region")
    if by_region["p_value"].is_not_null().any():
        region = find_regions(regions, places).region
        figures["p-by-region"] = heat_maps(by_region, graph, places, region, regions=about["regions"])
    hours = f"hour of day ({about['time_zone']})"
    for name, by, column, label, width in (
        ("p-by-speed", "speed", "speed_mph", "mean speed, mph", 5.0),
        ("p-by-hour", "hour", "hour", hours, 1.0),
    ):
        rows = tested.filter(pl.col("by") == by)
        if not rows.is_empty():
            figures[name] = profile_figure(rows, x=column, label=label, width=width, alpha=alpha)
    main = tested.filter(pl.col("by") == study.main)
    if not main.is_empty():
        figures["p-by-size"] = size_effect_figure(main, alpha=alpha)
    figures["rejections"] = rejection_figure(
        {
            f"up to {about['largest_sample']:,} samples a group": study.rejections,
            f"exactly {about['smallest_group']:,} samples a group": study.equal_rejections,
        },
        alpha=alpha,
    )
    figures["blanket-sizes"] = sizes_figure(study.sizes)
    shown = shown_correlations(study, study.correlations)
    if not shown.is_empty():
        figures["correlations"] = correlation_figure(
            shown, paper={} if paper is None else paper.correlations["spearman"]
        )
    figures["density"] = density_figure(study.densities)
    return figures


_CAPTIONS = {
    "p-by-region": "P-value of the hypothesis that locations older than the |B| given ones do not matter, by region. "
    "n: samples used; hatched: too few to test.",
    "p-by-speed": "P-values (above) and effects (below) by speed, each group a bin of 5 mph. The effect, a partial "
    "R², hardly depends on the number of samples; the p-value falls with it.",
    "p-by-hour": "P-values (above) and effects (below) by hour of day.",
    "p-by-size": "P-values against the number of samples of a group. Where a dependence exists, "
    "larger groups have smaller p-values: that is what any feature that goes with size would show.",
    "rejections": "Share of hypotheses rejected by |B|, with 95 % intervals; the dashed line is what chance would "
    "reject. Right: the same number of samples in every group.",
    "blanket-sizes": "Sizes of blankets by Algorithm 1: the first |B| whose hypothesis is not rejected.",
    "correlations": "Spearman's correlation over groups between each feature and p (above) or the effect (below), raw "
    "and given log n, with 95 % intervals. Mean: of a group's p-values or effects over all orders.",
    "density": "Distances to the nearest neighbours, number of neighbours within 100 m, and mean distance to the "
    "nearest.",
}


def _page(
    study: Study,
    folder: Path,
    figures: Iterable[str],
    *,
    claims: list[Claim],
    sentences: list[str],
    paper: PaperCity | None,
    title: str,
) -> Page:
    about, drawn = study.about, set(figures)
    page = Page(
        title,
        lead=f"How much of a vehicle's past its next location depends on. Test: {about['test']}, level "
        f"{about['alpha']:g}, interval {about['interval_s']:g} s, hours in {about['time_zone']}, seed {about['seed']}.",
    )

    def figure(name: str) -> None:
        if name in drawn:
            page.figure(folder / f"{name}.svg", caption=_CAPTIONS[name], alt=_CAPTIONS[name])

    page.heading("In short")
    page.bullets(sentences)
    page.heading("What the paper says, what we measured")
    page.table(
        ("claim", "the paper says", "we measured", "the data say", "why they may differ"),
        [(c.topic, c.paper, c.measured, c.verdict.value, c.why) for c in claims],
        words=range(5),
    )
    page.heading("By region")
    figure("p-by-region")
    page.heading("By speed")
    figure("p-by-speed")
    page.heading("By hour")
    figure("p-by-hour")
    page.heading("Rejections and blanket sizes")
    figure("rejections")
    add_rejections(page, study)
    figure("blanket-sizes")
    page.heading("The number of samples")
    page.paragraph(
        "A p-value is about evidence, not about strength: it falls as samples are added. Busy hours, central regions "
        "and usual speeds have more samples, so p-values go with them even where movement is the same everywhere."
    )
    figure("p-by-size")
    page.heading("Correlations between p and features")
    figure("correlations")
    add_correlations(page, study, paper)
    page.heading("Dependence found by a classifier")
    add_classifiers(page, study, paper)
    page.heading("Differences between hours, speeds and regions")
    add_differences(page, study)
    page.heading("Density of locations")
    figure("density")
    add_densities(page, study)
    page.heading("How it was done")
    page.bullets(_method(study))
    return page


def _method(study: Study) -> list[str]:
    about = study.about
    return [
        f"Hypothesis of |B| = m: the location X_t is independent of X_(t-m-1) given X_(t-1), ..., X_(t-m); test "
        f"“{about['test']}”, in displacements in metres.",
        "The speed of a group is the mean over X_t, ..., X_(t-m) only, as in the paper: a speed that knew X_(t-m-1) "
        "would make true hypotheses fail. So a group's members differ between orders.",
        f"Groups of {count(about['smallest_group'], 'sample')} or more are tested, with at most "
        f"{about['largest_sample']:,} drawn samples each.",
        "Every order is tested in every group; nothing is imputed.",
        "Groups of one grouping share no samples, but trips: samples of a trip fall into several groups, so groups "
        "are not wholly independent. Groups of different groupings share samples.",
        "Locations are places on the roads, so displacements repeat and many are 0: ranks have ties, and the p-values "
        "of nearly standing vehicles are less reliable.",
    ]
