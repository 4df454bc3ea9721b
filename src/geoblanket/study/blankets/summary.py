"""The study in a few plain sentences, each put together from the numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from geoblanket._numbers import count, p_text, share, signed
from geoblanket.study.blankets.claims import correlation_rows, rows_tested
from geoblanket.study.blankets.running import COMBINED, Study
from geoblanket.study.paper import Claim, Verdict

__all__ = ["summarise"]


def summarise(study: Study, claims: list[Claim]) -> list[str]:
    """Return sentences that say what was tested, what was found, and how far it can be trusted."""
    return [
        *_samples(study),
        *_orders(study),
        *_size_confounds(study),
        *_equal(study),
        *_strongest(study),
        *_classifier(study),
        _verdicts(claims),
    ]


def _samples(study: Study) -> Iterator[str]:
    counts = study.about["counts"]
    combined = study.found.findings.filter((pl.col("by") == COMBINED) & (pl.col("m") == 1))
    tested = combined.filter(pl.col("status") == "tested")
    used = int(tested["available"].sum())
    everything = int(combined["available"].sum())
    yield (
        f"{count(counts['walks'], 'walk')} of {count(counts['vehicles'], 'vehicle')} with "
        f"{count(counts['steps'], 'step')}, one each {study.about['interval_s']:g} s. Of {combined.height:,} possible "
        f"groups by hour, speed and region, {tested.height:,} have the {study.about['smallest_group']} samples that a "
        f"test needs; they hold {share(used / everything) if everything else 'none'} of all samples."
    )


def _orders(study: Study) -> Iterator[str]:
    rows = study.rejections.filter(pl.col("by") == study.main).sort("m").to_dicts()
    if rows:
        shares = ", ".join(share(row["share"]) for row in rows)
        yield (
            f"With 1 to {rows[-1]['m']} past locations given, an older one still matters in {shares} of the groups by "
            f"{study.main} (p ≤ {study.about['alpha']:g}); after correction for the number of groups, in "
            f"{', '.join(str(row['rejected_adjusted']) for row in rows)} of "
            f"{', '.join(str(row['tested']) for row in rows)}."
        )
    whole = rows_tested(study.found.findings, "all").sort("m")
    if not whole.is_empty():
        rejected = whole.filter(pl.col("rejected"))["m"].to_list()
        effects = ", ".join(f"{value:.3f}" for value in whole["effect_size"])
        yield (
            f"In a draw of {max(whole['n'].to_list()):,} from all samples together, "
            + (f"|B| = {', '.join(map(str, rejected))} is rejected" if rejected else "no |B| is rejected")
            + f"; the older location explains a share of {effects} of what is left of the movement, linearly."
        )


def _size_confounds(study: Study) -> Iterator[str]:
    rows = rows_tested(study.found.findings, study.main, 1)
    if rows.height < 12:
        return
    middle = float(np.median(rows["n"].to_numpy()))
    small, large = (rows.filter(side)["rejected"].mean() for side in (pl.col("n") <= middle, pl.col("n") > middle))
    if isinstance(small, float) and isinstance(large, float):
        relation = "more often" if large > small else "not more often"
        yield (
            f"Size matters by itself: at |B| = 1 groups of more than {middle:,.0f} samples reject in {share(large)} of "
            f"cases, smaller ones in {share(small)}, so larger groups reject {relation}."
        )


def _equal(study: Study) -> Iterator[str]:
    rows = study.equal_rejections.filter(pl.col("by") == study.main).sort("m").to_dicts()
    if rows:
        yield (
            f"With exactly {study.about['smallest_group']} samples in every group by {study.main}, the shares are "
            f"{', '.join(share(row['share']) for row in rows)}."
        )


def _strongest(study: Study) -> Iterator[str]:
    for outcome, m, name in (
        ("p_value", 1, "p at |B| = 1"),
        ("p_value", None, "the mean p of a group over all |B|"),
        ("effect_size", 1, "the effect (which hardly depends on size) at |B| = 1"),
    ):
        rows = [
            row
            for feature, by in study.grouping.items()
            for row in correlation_rows(study.correlations, by, outcome, m=m)
            .filter(pl.col("feature") == feature)
            .to_dicts()
        ]
        each = "; ".join(
            f"{row['feature']} {signed(row['coefficient'], digits=2)}, given the number of samples "
            f"{signed(row['given_n'], digits=2)} (p {p_text(row['p_given_n'])}, {count(row['groups'], 'group')} by "
            f"{row['by']})"
            for row in sorted(rows, key=lambda row: -abs(row["given_n"]))
        )
        yield f"Rank correlations of {name} with the features: {each or 'too few groups for any'}."


def _classifier(study: Study) -> Iterator[str]:
    rows = study.dependence.filter(pl.col("m").is_null()).drop_nulls("p_value").to_dicts()
    if not rows:
        return
    guessed = [row["feature"] for row in rows if row["p_given_n"] <= 0.05]
    yield (
        "From the p-values of all orders of a group, a classifier guesses "
        + (f"the group's {' and '.join(guessed)}" if guessed else "no feature of the group")
        + " better than chance, among groups of about the same size (5 %)."
    )


def _verdicts(claims: list[Claim]) -> str:
    parts = [
        f"{verdict} {len(topics)} ({', '.join(topics)})"
        for verdict in Verdict
        if (topics := [claim.topic for claim in claims if claim.verdict == verdict])
    ]
    return f"Of {count(len(claims), 'claim')} of the paper, by verdict: {'; '.join(parts)}."
