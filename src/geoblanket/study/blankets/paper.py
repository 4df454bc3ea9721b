"""What the paper reports in its empirical study (section 5.1 and the last appendix), to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["PAPER", "PaperCity"]


@dataclass(frozen=True)
class PaperCity:
    """The paper's figures of one city."""

    name: str
    trips: int
    correlations: Mapping[str, Mapping[str, float]]
    """By measure and feature: Table 1."""
    classifier: Mapping[str, float]
    """By feature, the p-value of its classifier test, CCIT."""
    downtown_higher: bool
    """Whether p at |B| = 1 is said to be higher downtown than in the suburbs."""
    share_with: Mapping[int, float]
    """Share of points with at least so many neighbours within 100 m."""
    share_within: Mapping[int, float]
    """Share of points whose 50 nearest are on average at most so many metres away."""
    at_most_two: float
    """Share of blankets, as predicted, of at most two locations."""


def _features(speed: float, longitude: float, latitude: float, time: float) -> dict[str, float]:
    return {"speed": speed, "longitude": longitude, "latitude": latitude, "time": time}


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
        at_most_two=0.998,
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
        at_most_two=1.0,
    ),
}
"""By name: rome, porto."""
