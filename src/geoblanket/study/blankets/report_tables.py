"""The tables of the study's report."""

from __future__ import annotations

from typing import Any

import polars as pl

from geoblanket._display import UNKNOWN, p_text, share, signed
from geoblanket._page import Page
from geoblanket.study.blankets.correlations import FEATURES, MEASURES, OUTCOMES
from geoblanket.study.blankets.running import Study
from geoblanket.study.paper import PaperCity

__all__ = [
    "add_classifiers",
    "add_correlations",
    "add_densities",
    "add_differences",
    "add_rejections",
    "shown_correlations",
]


def add_rejections(page: Page, study: Study) -> None:
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


def add_correlations(page: Page, study: Study, paper: PaperCity | None) -> None:
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
                for row in shown_correlations(study, table)
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


def shown_correlations(study: Study, table: pl.DataFrame) -> pl.DataFrame:
    """Return the known correlations of each feature in the grouping that serves it best."""
    best = pl.DataFrame(list(study.grouping.items()), schema={"feature": pl.String, "by": pl.String}, orient="row")
    return table.join(best, on=["feature", "by"], how="semi").filter(pl.col("coefficient").is_not_null())


def _paper_value(paper: PaperCity | None, row: dict[str, Any]) -> str:
    if paper is None or row["m"] is not None or row["outcome"] != "p_value" or row["measure"] not in MEASURES:
        return ""
    return signed(paper.correlations[row["measure"]][row["feature"]])


def add_classifiers(page: Page, study: Study, paper: PaperCity | None) -> None:
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


def add_differences(page: Page, study: Study) -> None:
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


def add_densities(page: Page, study: Study) -> None:
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
