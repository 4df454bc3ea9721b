"""The study's folder: figures, tables, and one page that tells it all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from geoblanket._display import Progress, counted, silent
from geoblanket._files import atomic_output
from geoblanket._page import Page, ReportFolder
from geoblanket.blanket.place_regions import Regions, find_regions
from geoblanket._numbers import count
from geoblanket._page import Page
from geoblanket._progress import Progress, silent
from geoblanket._report_folder import ReportFolder
from geoblanket.blanket.groups import Regions, find_regions
from geoblanket.errors import ParameterError
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places
from geoblanket.study.blankets.claims import check_claims
from geoblanket.study.blankets.figures import (
    correlation_figure,
    density_figure,
    profile_figure,
    rejection_figure,
    size_effect_figure,
    sizes_figure,
)
from geoblanket.study.blankets.maps import heat_maps
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
from geoblanket.study.claims import CLAIMS_HEADING, Claim, add_claims
from geoblanket.study.paper import PAPER, PaperCity

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
    if paper is not None and paper not in PAPER:
        raise ParameterError(f"The paper's cities are {', '.join(PAPER)}. Got '{paper}' instead.")
    city = None if paper is None else PAPER[paper]
    folder = ReportFolder(out)
    for name, table in study.tables().items():
        with atomic_output(folder.path / f"{name}.csv") as temporary:
            table.write_csv(temporary)
    folder.draw(_figures(study, RoadGraph.load(roads), regions, city), progress)
    claims = check_claims(study, city)
    folder.write_page(_page(study, folder, claims, city, title))
    columns = ("topic", "paper", "measured", "verdict", "why")
    summary = {
        "title": title,
        "summary": summarise(study, claims),
        "claims": [{name: asdict(claim)[name] for name in columns} for claim in claims],
        "about": study.about,
    }
    folder.write_json("study.json", summary)
    return summary


def _figures(
    study: Study, graph: RoadGraph, regions: Regions | None, paper: PaperCity | None
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
    main = tested.filter(pl.col("by") == study.main)
    if not main.is_empty():
        yield "p-by-size", size_effect_figure(main, alpha=alpha)
    rejections = {
        f"up to {about['largest_sample']:,} samples a group": study.rejections,
        f"exactly {about['smallest_group']:,} samples a group": study.equal_rejections,
    }
    yield "rejections", rejection_figure(rejections, alpha=alpha)
    yield "blanket-sizes", sizes_figure(study.sizes)
    shown = shown_correlations(study, study.correlations)
    if not shown.is_empty():
        yield "correlations", correlation_figure(shown, paper={} if paper is None else paper.correlations["spearman"])
    yield "density", density_figure(study.densities)


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


def _page(study: Study, folder: ReportFolder, claims: list[Claim], paper: PaperCity | None, title: str) -> Page:
    about = study.about
    page = Page(
        title,
        lead=f"How much of a vehicle's past its next location depends on. Test: {about['test']}, level "
        f"{about['alpha']:g}, interval {about['interval_s']:g} s, hours in {about['time_zone']}, seed {about['seed']}.",
    )

    def figure(name: str) -> None:
        folder.show(page, name, _CAPTIONS[name])

    page.heading("In short")
    page.bullets(summarise(study, claims))
    page.heading(CLAIMS_HEADING)
    add_claims(page, claims)
    for feature in ("region", "speed", "hour"):
        page.heading(f"By {feature}")
        figure(f"p-by-{feature}")
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
        f"Groups of {counted(about['smallest_group'], 'sample')} or more are tested, with at most "
        f"{about['largest_sample']:,} drawn samples each.",
        "Every order is tested in every group; nothing is imputed.",
        "Groups of one grouping share no samples, but trips: samples of a trip fall into several groups, so groups "
        "are not wholly independent. Groups of different groupings share samples.",
        "Locations are places on the roads, so displacements repeat and many are 0: ranks have ties, and the p-values "
        "of nearly standing vehicles are less reliable.",
    ]
