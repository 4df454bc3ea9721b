"""The paper's numbers beside those measured here: a row for each claim, judged by one rule.

Each number says where it stands in the paper. Only claims of its final text that can be measured like for like have a
row: no losses in kilometres, which the paper measures over another domain, and no times of another computer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from scipy import stats

from geoblanket._display import UNKNOWN, Interval, interval_text, share, text
from geoblanket._page import Page

__all__ = [
    "CLAIMS_HEADING",
    "CLAIM_COLUMNS",
    "CLOSE",
    "GAINS",
    "PAPER",
    "Claim",
    "PaperCity",
    "PaperGain",
    "Verdict",
    "add_claims",
    "at_most_two",
    "share_interval",
]

CLAIMS_HEADING = "The paper's numbers and ours"
CLAIM_COLUMNS = ("claim", "paper", "ours", "95 % interval", "verdict", "where in the paper")


class Verdict(StrEnum):
    """Whether a claim of the paper is confirmed."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "cannot be decided"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and what was measured about it."""

    topic: str
    paper: str
    """The paper's number."""
    low: float
    high: float
    """The claim is true of values from `low` to `high`."""
    measured: float | None
    interval: Interval | None
    """The 95 % interval of `measured`; None where it is not known."""
    where: str
    """In the paper."""
    city: str = ""
    form: str = ".1%"
    """How `measured` is written."""

    @property
    def verdict(self) -> Verdict:
        """It holds if the whole interval is in the claimed range, fails if no part is, and is undecided otherwise."""
        if self.interval is None:
            return Verdict.UNDECIDED
        if self.interval.high < self.low or self.interval.low > self.high:
            return Verdict.FAILS
        inside = self.low <= self.interval.low and self.interval.high <= self.high
        return Verdict.HOLDS if inside else Verdict.UNDECIDED

    @property
    def cells(self) -> tuple[str, ...]:
        """What a table shows of it, under `CLAIM_COLUMNS`."""
        interval = UNKNOWN if self.interval is None else interval_text(self.interval, self.form)
        return self.topic, self.paper, text(self.measured, self.form), interval, self.verdict, self.where

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        interval = None if self.interval is None else [self.interval.low, self.interval.high]
        about = {"city": self.city, "topic": self.topic, "paper": self.paper, "range": [self.low, self.high]}
        return {**about, "measured": self.measured, "interval": interval, "verdict": self.verdict, "where": self.where}


def add_claims(page: Page, claims: Iterable[Claim]) -> None:
    """Add a table of claims to a page."""
    page.table(CLAIM_COLUMNS, [claim.cells for claim in claims], words=(0, 1, 4, 5))


def share_interval(part: int, whole: int) -> Interval | None:
    """Return Wilson's 95 % interval of a share; None of nothing."""
    if not whole:
        return None
    found = stats.binomtest(part, whole).proportion_ci(method="wilson")
    return Interval(float(found.low), float(found.high))


@dataclass(frozen=True)
class PaperGain:
    """By which share LP+C-mDP's loss is said to be below another method's, in both cities and at every ε."""

    over: str
    """Key of the other method."""
    low: float
    high: float
    words: str
    """What the paper says."""


GAINS = (
    PaperGain("lp", 0.13, 0.17, "13 to 17 % below"),
    PaperGain("constopt", 0.25, 0.36, "25 to 36 % below"),
    PaperGain("expmech", 0.25, 1.00, "25 to 50 % below, and more"),
    PaperGain("lp_true_mb", -0.02, 0.02, "within 1 to 2 %"),
    PaperGain("lp_markov1", 0.03 / 1.03, 0.08 / 1.08, "Markov1 3 to 8 % above"),
)
"""What section 5.3 claims for ε from 0.25 to 0.5 per km. The introduction says “at least 15.6 % and 4.9 %” for Rome and
Porto, without naming the ε or the other method."""


@dataclass(frozen=True)
class PaperCity:
    """The paper's numbers of one city."""

    correlations: Mapping[str, Mapping[str, float]]
    """By measure and feature: Table 1, section 5.1."""
    classifier: Mapping[str, float]
    """By feature, the p-value of its classifier test, CCIT."""
    share_with: Mapping[int, float]
    """By number of neighbours, the share of points with at least as many within 100 m; last appendix."""
    share_within: Mapping[int, float]
    """By metres, the share of points whose 50 nearest are at most as far away on average; last appendix."""
    prediction: Mapping[str, float]
    """The table of prediction performance, section 5.2, by the names of `blanket.models.Scores`."""
    at_most_two: float
    """Share of predicted blankets of at most two locations, section 5.2."""


def _features(speed: float, longitude: float, latitude: float, time: float) -> dict[str, float]:
    return {"speed": speed, "longitude": longitude, "latitude": latitude, "time": time}


def _prediction(*values: float) -> dict[str, float]:
    names = (
        "bce", "accuracy", "precision", "recall", "f1", "negative_precision", "negative_recall", "negative_f1",
    )  # fmt: skip
    return dict(zip(names, values, strict=True))


PAPER: Mapping[str, PaperCity] = {
    "rome": PaperCity(
        correlations={
            "pearson": _features(-0.4886, -0.0081, -0.0028, 0.0410),
            "spearman": _features(-0.7122, -0.0734, 0.0124, 0.0620),
            "kendall": _features(-0.5430, -0.0539, 0.0102, 0.0420),
        },
        classifier=_features(1.14e-30, 0.0974, 0.3977, 0.2871),
        share_with={100: 0.978, 500: 0.916, 1000: 0.858},
        share_within={50: 0.986, 100: 0.995},
        prediction=_prediction(0.1211, 0.9512, 0.9580, 0.9868, 0.9722, 0.8972, 0.7273, 0.8033),
        at_most_two=0.998,
    ),
    "porto": PaperCity(
        correlations={
            "pearson": _features(-0.1848, -0.0913, 0.0905, -0.0189),
            "spearman": _features(-0.1283, -0.2405, 0.1144, -0.0296),
            "kendall": _features(-0.1075, -0.1804, 0.0912, -0.0202),
        },
        classifier=_features(9.55e-10, 3.72e-14, 0.2447, 0.0152),
        share_with={100: 0.957, 500: 0.891, 1000: 0.840},
        share_within={50: 0.968, 100: 0.981},
        prediction=_prediction(0.1321, 0.9413, 0.9710, 0.9630, 0.9670, 0.7123, 0.7610, 0.7358),
        at_most_two=1.0,
    ),
}
"""By name: rome, porto."""

CLOSE = 0.05
"""A share may differ from the paper's by this much."""


def at_most_two(paper: PaperCity, lengths: Mapping[int, int], *, city: str = "") -> Claim:
    """Return the claim about short blankets, from the number of blankets of each length."""
    small, total = sum(count for length, count in lengths.items() if length <= 2), sum(lengths.values())
    return Claim(
        "blankets of at most 2 locations",
        share(paper.at_most_two),
        paper.at_most_two - CLOSE,
        1.0,
        small / total,
        share_interval(small, total),
        "section 5.2, figure of blanket sizes",
        city,
    )
