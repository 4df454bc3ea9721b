"""The paper's claims beside what was measured, and the study in three lines.

Each verdict follows from the numbers by a fixed rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from scipy import stats

from geoblanket._display import counted, p_text, share, signed
from geoblanket.study.blankets.correlations import OUTCOMES, PART_OF
from geoblanket.study.blankets.running import COMBINED, Study
from geoblanket.study.paper import Claim, PaperCity, Verdict

__all__ = ["check_claims", "summarise"]

_CLEAR = 0.01
"""The level of a trend, stricter because several are looked at."""

_WEAK = 0.1
"""The paper calls correlations below that weak."""

_ENOUGH = 30
"""Groups for a correlation to be judged."""

_MANY = 100
"""With so many groups, a difference that matters would have been seen."""


def check_claims(study: Study, paper: PaperCity | None) -> list[Claim]:
    """Return every claim that can be looked at with the study's numbers; some are about a city of the paper only."""
    return [
        *_first_order(study),
        *_fewer_rejections(study),
        *_close_to_one(study),
        *_speed_shape(study),
        *(_varies(study, factor) for factor in ("speed", "hour", "region")),
        *_downtown(study, paper),
        *_sizes(study, paper),
        *_correlations(study, paper),
        *_density(study, paper),
    ]


def summarise(study: Study, claims: Sequence[Claim]) -> list[str]:
    """Return what was tested, what was rejected, and how many claims agree: a line each."""
    counts = study.about["counts"]
    combined = study.found.findings.filter((pl.col("by") == COMBINED) & (pl.col("m") == 1))
    tested = combined.filter(pl.col("status") == "tested").height
    rows = study.rejections.filter(pl.col("by") == study.main).sort("m").to_dicts()
    rejected = "; ".join(
        f"|B| = {row['m']}: {share(row['share'])} ({row['rejected_adjusted']} of {row['tested']})" for row in rows
    )
    verdicts = Counter(claim.verdict for claim in claims)
    return [
        f"{counted(counts['walks'], 'walk')} of {counted(counts['vehicles'], 'vehicle')} with "
        f"{counted(counts['steps'], 'step')}, one each {study.about['interval_s']:g} s; {tested:,} of "
        f"{combined.height:,} groups by hour, speed and region have enough samples.",
        f"Rejected, groups by {study.main} (in brackets: after correction): {rejected or 'none was tested'}.",
        f"Claims of the paper: {', '.join(f'{verdict} {many}' for verdict, many in sorted(verdicts.items()))}.",
    ]


def _rows_tested(findings: pl.DataFrame, by: str | None, m: int | None = None) -> pl.DataFrame:
    """Return what was tested in one grouping, at one order or at all."""
    rows = findings.filter((pl.col("by") == (by or "")) & (pl.col("status") == "tested"))
    return rows if m is None else rows.filter(pl.col("m") == m)


def _first_order(study: Study) -> Iterator[Claim]:
    rows = study.rejections.filter(pl.col("by") == study.main).sort("m").to_dicts()
    if not rows:
        return
    first, alpha = rows[0], study.about["alpha"]
    verdict = (
        Verdict.AGREES if first["low"] > alpha else Verdict.DIFFERS if first["high"] < 2 * alpha else Verdict.UNDECIDED
    )
    yield Claim(
        "first order",
        "Movement is not first-order Markov: with |B| = 1 the hypothesis is rejected in many groups.",
        f"Rejected in {first['rejected']:.0f} of {first['tested']:.0f} groups by {study.main} "
        f"({share(first['share'])}), {first['rejected_adjusted']:.0f} after Benjamini and Hochberg; {alpha:.0%} would "
        "be by chance.",
        verdict,
        "Groups with few samples reject rarely whatever the truth (see the figure of p against n). Drivers "
        "with different destinations, mixed, also look like memory: the test cannot tell the two apart.",
    )


def _fewer_rejections(study: Study) -> Iterator[Claim]:
    rows = study.rejections.filter(pl.col("by") == study.main).sort("m").to_dicts()
    if len(rows) < 2:
        return
    first, last = rows[0], rows[-1]
    verdict = Verdict.UNDECIDED
    if first["low"] > last["high"]:
        verdict = Verdict.AGREES
    elif first["high"] < last["low"]:
        verdict = Verdict.DIFFERS
    shares = ", ".join(share(row["share"]) for row in rows)
    yield Claim(
        "more given, fewer rejected",
        "The more past locations are given, the less likely is a rejection.",
        f"Shares rejected for |B| = {rows[0]['m']:.0f} to {rows[-1]['m']:.0f}, groups by {study.main}: {shares}.",
        verdict,
        "Two causes are mixed: less is left to depend on, and with more given the test has less power.",
    )


def _close_to_one(study: Study) -> Iterator[Claim]:
    rows = _rows_tested(study.found.findings, "hour").filter(pl.col("m") >= 3)
    if rows.is_empty():
        return
    high = int((rows["p_value"] > 0.9).sum())
    yield Claim(
        "p near 1 by hour",
        "With |B| = 3, 4 or 5, all p-values by hour are close to 1.",
        f"{high} of {counted(rows.height, 'p-value')} are above 0.9; the median is {_median(rows['p_value']):.2f}.",
        Verdict.AGREES if high >= 0.9 * rows.height else Verdict.DIFFERS,
        "Where a hypothesis is true and the test is right, p is uniform: a tenth lies above 0.9. P-values that are all "
        "near 1 mean a test that cannot reject; a fixed floor on covariances does that to coordinates in degrees.",
    )


def _speed_shape(study: Study) -> Iterator[Claim]:
    rows = _rows_tested(study.found.findings, study.grouping["speed"], 1)
    speed, p_value = rows["speed_mph"].to_numpy().astype(np.float64), rows["p_value"].to_numpy()
    fastest = _rows_tested(study.found.findings, "speed")["speed_mph"]
    if fastest.is_empty():
        return
    reach = max(fastest.to_list()) + 5
    measured = f"The fastest group with enough samples ends at {reach} mph."
    verdict = Verdict.UNDECIDED
    if len(np.unique(speed)) >= 4 and len(speed) >= 12:
        bend, p_bend = _bend(speed, p_value, np.log(rows["n"].to_numpy().astype(np.float64)))
        measured += (
            f" Up to there the curve bends {'upwards' if bend > 0 else 'downwards'} (p {p_text(p_bend)}, given n, "
            f"{counted(len(speed), 'group')}, |B| = 1)."
        )
        if reach > 75:
            verdict = Verdict.AGREES if bend > 0 and p_bend <= 0.05 else Verdict.DIFFERS
    yield Claim(
        "U shape by speed",
        "P-values fall with speed up to 75 to 100 mph, then rise again.",
        measured,
        verdict,
        "Mean speeds over 30 s or more in a city hardly reach 75 mph; unfiltered GPS jumps do. Points that jump are "
        "dropped here at import.",
    )


def _bend(x: np.ndarray, y: np.ndarray, given: np.ndarray) -> tuple[float, float]:
    """Return the coefficient of x² in a linear model of y with x, x² and what is given, and its p-value."""
    scaled = (x - x.mean()) / x.std()
    design = np.column_stack([np.ones(len(x)), scaled, given, scaled**2])
    weights, *_ = np.linalg.lstsq(design, y, rcond=None)
    freedom = len(y) - design.shape[1]
    variance = np.sum((y - design @ weights) ** 2) / freedom
    spread = np.sqrt(variance * np.linalg.pinv(design.T @ design)[-1, -1])
    return float(weights[-1]), float(2 * stats.t.sf(abs(weights[-1]) / max(spread, 1e-300), freedom))


def _varies(study: Study, factor: str) -> Claim:
    features = [feature for feature, part in PART_OF.items() if part == factor]
    by = study.grouping[features[0]]
    ranks = study.differences.filter((pl.col("by") == (by or "")) & (pl.col("factor") == factor)).drop_nulls(
        "p_given_n"
    )
    parts, verdict = [_range(study, factor)], Verdict.UNDECIDED
    if not ranks.is_empty():
        p_values, effects = (ranks.filter(pl.col("outcome") == outcome) for outcome in OUTCOMES)
        groups = max(ranks["groups"].to_list())
        given, effect = _significant(p_values, "p_given_n_adjusted"), _significant(effects, "p_given_n_adjusted")
        parts.append(
            f"Over {counted(groups, 'group')} by {by}, p-values differ at "
            f"{_orders(_significant(p_values, 'p_adjusted'))} as they are and at {_orders(given)} given n, effects at "
            f"{_orders(effect)} given n (Kruskal and Wallis, 5 %, Benjamini and Hochberg)."
        )
        verdict = Verdict.AGREES if given or effect else Verdict.DIFFERS if groups >= _MANY else Verdict.UNDECIDED
    trends = study.correlations.filter(
        (pl.col("by") == (by or ""))
        & pl.col("feature").is_in(features)
        & pl.col("m").is_null()
        & (pl.col("p_given_n") <= _CLEAR)
    )
    if not trends.is_empty():
        verdict = Verdict.AGREES
        named = sorted({f"{OUTCOMES[row['outcome']]} ({row['measure']})" for row in trends.iter_rows(named=True)})
        parts.append(f"There is a trend with {' and '.join(features)} given n (p ≤ {_CLEAR:g}): {', '.join(named)}.")
    return Claim(
        f"varies with {factor}",
        f"P-values, and so blankets, vary with {factor if factor != 'hour' else 'the time of day'}.",
        " ".join(parts),
        verdict,
        "That p-values differ from group to group is no evidence: they would if all hypotheses were true. What "
        "counts is more difference between values of the feature than within them, beyond what the number of "
        "samples explains. Few groups show only large differences.",
    )


def _range(study: Study, factor: str) -> str:
    rows = _rows_tested(study.found.findings, factor, 1)
    if rows.is_empty():
        return f"No group by {factor} has enough samples."
    low, high = np.quantile(rows["effect_size"].to_numpy(), [0, 1])
    return f"In {counted(rows.height, 'group')} by {factor}, effects at |B| = 1 go from {low:.2f} to {high:.2f}."


def _significant(rows: pl.DataFrame, column: str) -> list[int]:
    return rows.filter(pl.col(column) <= 0.05)["m"].to_list()


def _orders(orders: list[int]) -> str:
    return "no |B|" if not orders else "|B| = " + ", ".join(str(m) for m in orders)


def _downtown(study: Study, paper: PaperCity | None) -> Iterator[Claim]:
    if paper is None:
        return
    rows = _rows_tested(study.equal.findings, "region", 1).sort("available", descending=True)
    measured, verdict = f"{counted(rows.height, 'region')} with enough samples.", Verdict.UNDECIDED
    if rows.height >= 3:
        downtown, others = float(rows["p_value"][0]), _median(rows["p_value"][1:])
        measured = (
            f"With {rows['n'][0]} samples in every region: p {p_text(downtown)} in the busiest, median "
            f"{p_text(others)} in the other {rows.height - 1}."
        )
        if max(downtown, others) > 0.001 and rows.height > 5:
            verdict = Verdict.AGREES if (downtown > others) == paper.downtown_higher else Verdict.DIFFERS
    yield Claim(
        "downtown",
        f"{paper.name}: with |B| = 1, p is {'higher' if paper.downtown_higher else 'lower'} downtown than in the "
        "suburbs.",
        measured,
        verdict,
        "Downtown has the most samples, and more samples make p smaller whatever the movement; only equally many can "
        "be compared, in more regions than the sample fills.",
    )


def _sizes(study: Study, paper: PaperCity | None) -> Iterator[Claim]:
    rows = study.sizes.filter(pl.col("by") == study.main)
    if rows.is_empty():
        return
    small = float(rows.filter(pl.col("order") <= 2)["share"].sum())
    groups = int(rows["groups"].sum())
    says = f"{share(paper.at_most_two)} of" if paper is not None else "At least 99.8 % of"
    yield Claim(
        "sizes",
        f"{says} the predicted blankets have at most 2 locations.",
        f"{share(small)} of {counted(groups, 'group')} by {study.main} (found, not predicted).",
        Verdict.AGREES if small >= 0.95 else Verdict.DIFFERS,
        "The first hypothesis that is not rejected ends the search, so a small blanket may mean few samples as well as "
        "short memory.",
    )


def _correlations(study: Study, paper: PaperCity | None) -> Iterator[Claim]:
    if paper is None:
        return
    for feature, by in study.grouping.items():
        expected = paper.correlations["spearman"][feature]
        table = study.correlations.filter(
            (pl.col("by") == (by or "")) & (pl.col("feature") == feature) & (pl.col("measure") == "spearman")
        ).drop_nulls(["coefficient", "given_n"])
        measured, verdict = "Too few groups with enough samples.", Verdict.UNDECIDED
        rows = {
            outcome: table.filter((pl.col("outcome") == outcome) & pl.col("m").is_not_null()).sort("m")
            for outcome in OUTCOMES
        }
        mean = table.filter((pl.col("outcome") == "p_value") & pl.col("m").is_null()).to_dicts()
        if mean and not rows["p_value"].is_empty():
            measured = (
                f"Of the mean p of a group {signed(mean[0]['coefficient'], digits=2)} "
                f"(p {p_text(mean[0]['p_value'])}), given n {signed(mean[0]['given_n'], digits=2)} "
                f"(p {p_text(mean[0]['p_given_n'])}), {counted(mean[0]['groups'], 'group')} by {by}. Given n, by |B|: "
                f"{_series(rows['p_value'])}. Of the effect instead of p: {_series(rows['effect_size'])}."
            )
            verdict = _same_correlation(expected, rows["p_value"])
        yield Claim(
            f"correlation with {feature}",
            f"Spearman's correlation of p with {feature}: {signed(expected)}.",
            measured,
            verdict,
            f"A group has at most {study.about['largest_sample']:,} samples here, and each |B| its own correlation; "
            "which groups and |B| the paper pools is not said.",
        )


def _series(rows: pl.DataFrame) -> str:
    """Return correlations given n in the order of |B|, marked where they are significant after correction."""
    if rows.is_empty():
        return "–"
    marks = stats.false_discovery_control(rows["p_given_n"].to_numpy()) <= 0.05
    values = [f"{value:+.2f}{'*' if mark else ''}" for value, mark in zip(rows["given_n"], marks, strict=True)]
    return ", ".join(values) + (" (* at 5 %, Benjamini and Hochberg)" if marks.any() else "")


def _same_correlation(expected: float, rows: pl.DataFrame) -> Verdict:
    """Compare the signs of what is significant with the paper's; a weak one of the paper's agrees with weak ones."""
    if max(rows["groups"].to_list()) < _ENOUGH:
        return Verdict.UNDECIDED
    significant = rows["given_n"].to_numpy()[stats.false_discovery_control(rows["p_given_n"].to_numpy()) <= 0.05]
    if abs(expected) < _WEAK:
        return Verdict.AGREES if np.all(np.abs(significant) < 2 * _WEAK) else Verdict.DIFFERS
    if not len(significant):
        return Verdict.UNDECIDED
    same = np.sign(significant) == np.sign(expected)
    return Verdict.AGREES if same.all() else Verdict.MIXED if same.any() else Verdict.DIFFERS


def _density(study: Study, paper: PaperCity | None) -> Iterator[Claim]:
    if paper is None:
        return
    name, points = next(iter(study.densities.items()))
    places = study.densities["places on the roads"]
    measured = ", ".join(f"{share(points.share_with(k))} have {k} or more" for k in paper.share_with)
    says = ", ".join(f"{share(value)} have {k} or more" for k, value in paper.share_with.items())
    close = points.share_with(100) >= paper.share_with[100] - 0.05
    yield Claim(
        "neighbours within 100 m",
        f"Of the points, {says}.",
        f"Of {points.locations:,} {name}, {measured}; of {places.locations:,} places on the roads, "
        f"{share(places.share_with(10))} have 10 or more.",
        Verdict.AGREES if close else Verdict.UNDECIDED,
        f"The more trips are recorded, the denser recorded points lie: the paper has {paper.trips:,}. What a "
        "mechanism can report are places, and their number near a location does not grow with recordings.",
    )
    says = ", ".join(f"{share(value)} within {metres} m" for metres, value in paper.share_within.items())
    measured = ", ".join(f"{share(points.share_within(metres))} within {metres} m" for metres in paper.share_within)
    yield Claim(
        "mean distance to the 50 nearest",
        f"Of the points, {says}.",
        f"Of {points.locations:,} {name}, {measured}.",
        Verdict.AGREES if points.share_within(100) >= paper.share_within[100] - 0.05 else Verdict.UNDECIDED,
        "As above: it shrinks as recordings accumulate.",
    )


def _median(values: pl.Series) -> float:
    return float(np.median(values.to_numpy()))
