"""How good predicted probabilities are: the paper's measures for both classes, and calibration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.metrics import precision_recall_fscore_support

from geoblanket._arrays import Bools, Floats

__all__ = ["CALIBRATION_BINS", "CalibrationBin", "Scores", "calibration_bins", "log_losses", "score"]

CALIBRATION_BINS = 10
"""Bins of equal width over the probability of "fail to reject", from 0 to 1."""


@dataclass(frozen=True)
class Scores:
    """Measures of predictions; None where one is not defined (nothing of a class was found, or predicted)."""

    n: int
    """Hypotheses judged."""
    kept: float
    """Share of them with the label "fail to reject": the accuracy of always saying so."""
    bce: float
    """Binary cross-entropy, nats."""
    accuracy: float
    precision: float | None
    """Precision, recall and F1 for "fail to reject" …"""
    recall: float | None
    f1: float | None
    negative_precision: float | None
    """… and for "reject"."""
    negative_recall: float | None
    negative_f1: float | None
    calibration_error: float
    """Expected calibration error over `CALIBRATION_BINS` bins."""


@dataclass(frozen=True)
class CalibrationBin:
    """Predictions of about the same probability."""

    least: float
    most: float
    n: int
    predicted: float | None
    """Mean probability of "fail to reject"; None in an empty bin."""
    observed: float | None
    """Share of "fail to reject"; None in an empty bin."""


def score(kept: Bools, probability: Floats) -> Scores:
    """Return the measures of predictions.

    Parameters
    ----------
    kept
        The labels: true is "fail to reject".
    probability
        P("fail to reject"); above one half it is predicted.
    """
    precision, recall, f1, _ = precision_recall_fscore_support(
        kept, probability > 0.5, labels=[True, False], zero_division=np.nan
    )
    bins = calibration_bins(kept, probability)
    gaps = [
        interval.n * abs(interval.predicted - interval.observed)
        for interval in bins
        if interval.predicted is not None and interval.observed is not None
    ]
    return Scores(
        n=len(kept),
        kept=float(kept.mean()),
        bce=float(log_losses(kept, probability).mean()),
        accuracy=float(((probability > 0.5) == kept).mean()),
        precision=_defined(precision[0]),
        recall=_defined(recall[0]),
        f1=_defined(f1[0]),
        negative_precision=_defined(precision[1]),
        negative_recall=_defined(recall[1]),
        negative_f1=_defined(f1[1]),
        calibration_error=sum(gaps) / len(kept),
    )


def log_losses(kept: Bools, probability: Floats) -> Floats:
    """Return the cross-entropy of each prediction, nats; a probability of 0 is taken as the smallest step from 1."""
    least = np.finfo(np.float64).eps
    losses: Floats = -np.log(np.where(kept, probability, 1 - probability).clip(least, 1 - least))
    return losses


def calibration_bins(kept: Bools, probability: Floats) -> list[CalibrationBin]:
    """Return how often "fail to reject" was right in each bin of its probability."""
    place = np.minimum((probability * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    intervals = []
    for number in range(CALIBRATION_BINS):
        inside = place == number
        n = int(inside.sum())
        predicted = float(probability[inside].mean()) if n else None
        observed = float(kept[inside].mean()) if n else None
        lower, upper = number / CALIBRATION_BINS, (number + 1) / CALIBRATION_BINS
        intervals.append(CalibrationBin(lower, upper, n, predicted, observed))
    return intervals


def _defined(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
