"""The paper's numbers that are measured here too, and its claims beside what was measured.

Each number says where it stands in the paper. Losses and privacy measures that the authors cut from the final text are
marked as such. What the figures show as curves without numbers is not here: the source has no data for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from geoblanket._page import Page

__all__ = [
    "CLAIMS_HEADING",
    "CLAIM_COLUMNS",
    "GAINS",
    "LONGEST_SELECTION_MS",
    "PAPER",
    "SELECTION_MS",
    "Claim",
    "PaperCity",
    "PaperGain",
    "PaperPrivacy",
    "Verdict",
    "add_claims",
]

SELECTION_MS, LONGEST_SELECTION_MS = 1.01, 1.10
"""Mean and largest time to draw a perturbed location, both cities, section 5.4."""


@dataclass(frozen=True)
class PaperGain:
    """By how much LP+C-mDP's loss is said to be below another method's, in both cities and at every ε."""

    over: str
    """Key of the other method."""
    low: float
    high: float
    """Shares of the other method's loss."""
    words: str
    """What the paper says."""
    where: str = "section 5.3, experimental results, and figure of loss against ε"


GAINS = (
    PaperGain("lp", 0.13, 0.17, "13 to 17 % below LP"),
    PaperGain("constopt", 0.25, 0.36, "25 to 36 % below ConstOPT"),
    PaperGain("expmech", 0.25, 0.50, "25 to 50 % below ExpMech, and more"),
    PaperGain("lp_true_mb", -0.02, 0.02, "within 1 to 2 % of LP+TrueMB"),
    PaperGain("lp_markov1", 0.03 / 1.03, 0.08 / 1.08, "LP+Markov1 3 to 8 % above"),
)
"""What the paper claims for ε from 0.25 to 0.5 per km; its introduction says “at least 15.6 % and 4.9 %” for Rome and
Porto, without naming the ε or the method that this is against."""


@dataclass(frozen=True)
class PaperPrivacy:
    """Privacy measures of a method at ε = 0.1 per km with the paper's first loss; cut from the final text."""

    leakage: float
    """Posterior leakage, per km."""
    expected_leakage: float
    inference_error_km: float
    inference_success: float


@dataclass(frozen=True)
class PaperCity:
    """The paper's numbers of one city."""

    name: str
    trips: int
    correlations: Mapping[str, Mapping[str, float]]
    """By measure and feature: Table 1, section 5.1."""
    classifier: Mapping[str, float]
    """By feature, the p-value of its classifier test, CCIT."""
    downtown_higher: bool
    """Whether p at |B| = 1 is said to be higher downtown than in the suburbs."""
    share_with: Mapping[int, float]
    """Share of points with at least so many neighbours within 100 m; last appendix."""
    share_within: Mapping[int, float]
    """Share of points whose 50 nearest are on average at most so many metres away; last appendix."""
    prediction: Mapping[str, float]
    """The table of prediction performance, section 5.2, by the names of `blanket.models.Scores`."""
    prediction_ms: float
    """Mean time to predict a blanket, section 5.2."""
    at_most_two: float
    """Share of predicted blankets of at most two locations, section 5.2."""
    loss_km: Mapping[str, float]
    """Mean loss by method; a table that was cut, which names no ε (the same table's leakage is for 0.1 per km)."""
    nearest_error: Mapping[str, float]
    """Case II: errors in finding the nearest vehicle, as printed (some are above 1, so per cent, it seems); cut."""
    privacy: Mapping[str, PaperPrivacy]
    """By method; a table that was cut."""
    build_seconds: float
    """Mean time of an LP in MATLAB's linprog, section 5.4."""
    build_seconds_range: tuple[float, float]


def _features(speed: float, longitude: float, latitude: float, time: float) -> dict[str, float]:
    return {"speed": speed, "longitude": longitude, "latitude": latitude, "time": time}


def _prediction(*values: float) -> dict[str, float]:
    names = (
        "bce", "accuracy", "precision", "recall", "f1", "negative_precision", "negative_recall", "negative_f1",
    )  # fmt: skip
    return dict(zip(names, values, strict=True))


def _by_method(*values: float) -> dict[str, float]:
    return dict(zip(("lp_cmdp", "lp_markov1", "lp", "constopt", "expmech"), values, strict=True))


PAPER: Mapping[str, PaperCity] = {
    "rome": PaperCity(
        name="Rome",
        trips=367_052,
        correlations={
            "pearson": _features(-0.4886, -0.0081, -0.0028, 0.0410),
            "spearman": _features(-0.7122, -0.0734, 0.0124, 0.0620),
            "kendall": _features(-0.5430, -0.0539, 0.0102, 0.0420),
        },
        classifier=_features(1.14e-30, 0.0974, 0.3977, 0.2871),
        downtown_higher=True,
        share_with={100: 0.978, 500: 0.916, 1000: 0.858},
        share_within={50: 0.986, 100: 0.995},
        prediction=_prediction(0.1211, 0.9512, 0.9580, 0.9868, 0.9722, 0.8972, 0.7273, 0.8033),
        prediction_ms=0.1557,
        at_most_two=0.998,
        loss_km=_by_method(0.034, 0.037, 0.044, 0.038, 0.045),
        nearest_error=_by_method(0.2586, 0.5887, 0.6702, 0.7752, 1.612),
        privacy={
            "lp_cmdp": PaperPrivacy(0.099, 0.062, 0.275, 0.075),
            "lp_markov1": PaperPrivacy(0.098, 0.062, 0.257, 0.112),
            "lp": PaperPrivacy(0.100, 0.064, 0.252, 0.045),
            "constopt": PaperPrivacy(0.100, 0.073, 0.259, 0.119),
            "expmech": PaperPrivacy(0.074, 0.028, 0.380, 0.022),
        },
        build_seconds=10.24,
        build_seconds_range=(8.07, 11.53),
    ),
    "porto": PaperCity(
        name="Porto",
        trips=1_666_766,
        correlations={
            "pearson": _features(-0.1848, -0.0913, 0.0905, -0.0189),
            "spearman": _features(-0.1283, -0.2405, 0.1144, -0.0296),
            "kendall": _features(-0.1075, -0.1804, 0.0912, -0.0202),
        },
        classifier=_features(9.55e-10, 3.72e-14, 0.2447, 0.0152),
        downtown_higher=False,
        share_with={100: 0.957, 500: 0.891, 1000: 0.840},
        share_within={50: 0.968, 100: 0.981},
        prediction=_prediction(0.1321, 0.9413, 0.9710, 0.9630, 0.9670, 0.7123, 0.7610, 0.7358),
        prediction_ms=0.1588,
        at_most_two=1.0,
        loss_km=_by_method(0.097, 0.102, 0.110, 0.130, 0.234),
        nearest_error=_by_method(0.2130, 0.4837, 2.7031, 2.8320, 6.6985),
        privacy={
            "lp_cmdp": PaperPrivacy(0.098, 0.056, 0.198, 0.171),
            "lp_markov1": PaperPrivacy(0.098, 0.054, 0.212, 0.213),
            "lp": PaperPrivacy(0.100, 0.051, 0.199, 0.022),
            "constopt": PaperPrivacy(0.1285, 0.069, 0.129, 0.266),
            "expmech": PaperPrivacy(0.072, 0.023, 0.287, 0.022),
        },
        build_seconds=9.34,
        build_seconds_range=(8.07, 11.53),
    ),
}
"""By name: rome, porto."""


CLAIMS_HEADING = "What the paper says, what we measured"


class Verdict(StrEnum):
    """How what was measured compares with what the paper says."""

    AGREES = "agrees"
    DIFFERS = "differs"
    MIXED = "depends on |B|"
    UNDECIDED = "cannot be decided"
    NONE = ""
    """Where a verdict would mean nothing."""


@dataclass(frozen=True)
class Claim:
    """A claim, and what was measured about it."""

    topic: str
    paper: str
    """What the paper says."""
    measured: str
    verdict: str
    """One of `Verdict`, or several, each with where it holds."""
    why: str
    """Why the two differ, or what to keep in mind if they do not."""
    where: str = ""
    """In the paper."""
    city: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """What a table shows of it, under `CLAIM_COLUMNS`."""
        return (self.topic, self.paper, self.measured, self.verdict, self.why, self.where)


CLAIM_COLUMNS = ("about", "the paper says", "we measured", "verdict", "why they may differ", "where in the paper")


def add_claims(page: Page, claims: Iterable[Claim]) -> None:
    """Add a table of claims to a page; where they stand in the paper only if that is known."""
    rows = [claim.cells for claim in claims]
    columns = len(CLAIM_COLUMNS) if any(row[-1] for row in rows) else len(CLAIM_COLUMNS) - 1
    page.table(CLAIM_COLUMNS[:columns], [row[:columns] for row in rows], words=range(columns))
