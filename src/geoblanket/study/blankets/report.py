"""The study's folder: figures, tables, and one page with all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from geoblanket._display import UNKNOWN, Progress, counted, p_text, share, signed, silent
from geoblanket._files import atomic_output
from geoblanket._page import Page, ReportFolder
from geoblanket.blanket.groups import Regions, find_regions
from geoblanket.errors import ParameterError
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places
from geoblanket.study.blankets.claims import check_claims, summarise
from geoblanket.study.blankets.correlations import FEATURES, MEASURES, OUTCOMES
from geoblanket.study.blankets.figures import (
    correlation_figure,
    density_figure,
    heat_maps,
    profile_figure,
    rejection_figure,
    size_effect_figure,
    sizes_figure,
)
from geoblanket.study.blankets.running import Study
from geoblanket.study.paper import CLAIMS_HEADING, PAPER, Claim, PaperCity, add_claims

__all__ = ["write_report"]


def _add_rejections(page: Page, study: Study) -> None:
    """Add the table of rejections by grouping and order."""
    page.table(
        (
            "groups by", "|B|", "tested", "not resolved", "rejected", "share", "after correction", "median p",
            "p > 0.9", "median n",
        ),
        [
            (
                row["by"], str(row["m"]), f"{row['tested']:,}", f"{row['unresolved']:,}", f"{row['rejected']:,}",
                share(row["share"]), f"{row['rejected_adjusted']:,}", p_text(row["median_p"]),
                share(row["share_above_09"]), f"{row['median_n']:,.0f}",
            )
            for row in study.rejections.iter_rows(named=True)
        ],
        caption="Correction after Benjamini and Hochberg over the groups of a grouping and |B|, at 5 %.",
    )  # fmt: skip


def _add_correlations(page: Page, study: Study, paper: PaperCity | None) -> None:
    """Add the table of correlations, with all samples and with equally many."""
    place = pl.col("feature").replace_strict({feature: at for at, feature in enumerate(FEATURES)})
    for caption, table in (
        (f"All samples of a group, up to {study.about['largest_sample']:,}.", study.correlations),
        (f"Exactly {study.about['smallest_group']:,} samples in every group.", study.equal_correlations),
    ):
        page.table(
            ("feature", "with", "|B|", "measure", "groups by", "groups", "value", "p", "given n", "p given n", "paper"),
            [
                (
                    row["feature"], OUTCOMES[row["outcome"]], "mean" if row["m"] is None else str(row["m"]),
                    row["measure"], row["by"], str(row["groups"]), signed(row["coefficient"]), p_text(row["p_value"]),
                    signed(row["given_n"]), p_text(row["p_given_n"]), _paper_value(paper, row),
                )
                for row in _shown_correlations(study, table)
                .sort(place, "outcome", "m", descending=[False, True, False])
                .iter_rows(named=True)
            ],
            caption=f"{caption} Mean: of a group's p-values (effects) over all orders.",
            words=(0, 1, 3, 4),
        )  # fmt: skip
    page.paragraph(
        "The hour of day is circular: 23 and 0 are neighbours, and a straight line through hours depends on where the "
        "day is cut. The measure circular is the multiple correlation with the cosine and sine of the hour; it has no "
        "sign. Kendall's partial coefficient has no p-value, because its distribution is not known."
    )


def _shown_correlations(study: Study, table: pl.DataFrame) -> pl.DataFrame:
    """Return the known correlations of each feature in the grouping that serves it best."""
    best = pl.DataFrame(list(study.grouping.items()), schema={"feature": pl.String, "by": pl.String}, orient="row")
    return table.join(best, on=["feature", "by"], how="semi").filter(pl.col("coefficient").is_not_null())


def _paper_value(paper: PaperCity | None, row: dict[str, Any]) -> str:
    if paper is None or row["m"] is not None or row["outcome"] != "p_value" or row["measure"] not in MEASURES:
        return ""
    return signed(paper.correlations[row["measure"]][row["feature"]])


def _add_classifiers(page: Page, study: Study, paper: PaperCity | None) -> None:
    """Add the table of classifier tests."""
    page.paragraph(
        "A classifier learns to tell real pairs (feature, p-values of a group) from shuffled ones, and is judged on "
        "pairs that it has not seen. Its p-value comes from shuffling, so its level is right; it is at least "
        "1 / (1 + the number of shuffles)."
    )
    page.table(
        ("feature", "|B|", "groups by", "groups", "accuracy", "p", "p given n", "the paper's CCIT"),
        [
            (
                row["feature"], "all" if row["m"] is None else str(row["m"]), row["by"] or UNKNOWN, str(row["groups"]),
                share(row["accuracy"]), p_text(row["p_value"]), p_text(row["p_given_n"]),
                f"{paper.classifier[row['feature']]:.3g}" if paper is not None and row["m"] is None else "",
            )
            for row in study.dependence.iter_rows(named=True)
        ],
        caption="Accuracy 50 % is chance. Given n: shuffled only among groups of about the same number of samples.",
        words=(0, 2),
    )  # fmt: skip


def _add_differences(page: Page, study: Study) -> None:
    """Add the table of tests of difference."""
    page.table(
        ("feature", "of", "groups by", "|B|", "values", "groups", "H", "p", "p adjusted", "given n", "adjusted"),
        [
            (
                row["factor"], OUTCOMES[row["outcome"]], row["by"], str(row["m"]),
                str(row["levels"]), str(row["groups"]),
                UNKNOWN if row["statistic"] is None else f"{row['statistic']:.1f}", p_text(row["p_value"]),
                p_text(row["p_adjusted"]), p_text(row["p_given_n"]), p_text(row["p_given_n_adjusted"]),
            )
            for row in study.differences.filter(pl.col("by") == study.main).iter_rows(named=True)
        ],
        caption="Kruskal and Wallis's test: do p-values of groups differ between the values of a feature?",
        words=(0, 1, 2),
    )  # fmt: skip


def _add_densities(page: Page, study: Study) -> None:
    """Add the table of densities."""
    thresholds = (10, 100, 500, 1000)
    page.table(
        ("locations", "number", *(f"≥ {k} within 100 m" for k in thresholds), "mean of nearest ≤ 50 m", "≤ 100 m"),
        [
            (
                name,
                f"{density.locations:,}"
                + ("" if density.locations == density.drawn_from else f" of {density.drawn_from:,}"),
                *(share(density.share_with(k)) for k in thresholds),
                *(share(density.share_within(metres)) for metres in (50, 100)),
            )
            for name, density in study.densities.items()
        ],
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
    shown = _shown_correlations(study, study.correlations)
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
    _add_rejections(page, study)
    figure("blanket-sizes")
    page.heading("The number of samples")
    page.paragraph(
        "A p-value is about evidence, not about strength: it falls as samples are added. Busy hours, central regions "
        "and usual speeds have more samples, so p-values go with them even where movement is the same everywhere."
    )
    figure("p-by-size")
    page.heading("Correlations between p and features")
    figure("correlations")
    _add_correlations(page, study, paper)
    page.heading("Dependence found by a classifier")
    _add_classifiers(page, study, paper)
    page.heading("Differences between hours, speeds and regions")
    _add_differences(page, study)
    page.heading("Density of locations")
    figure("density")
    _add_densities(page, study)
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
