"""Forward–backward over many sequences of reports at once: where each vehicle was, given what it reported.

    filtered:  Pr[place at t | reports 1 … t],        smoothed:  Pr[place at t | reports 1 … T].

Sequences of one length are columns of a matrix, so that a step of all of them is three sparse products. Values are
scaled at each step, which changes no posterior and keeps them from vanishing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoblanket._geodesy import Floats
from geoblanket.errors import ParameterError
from geoblanket.evaluate.mobility_model import Indices, MobilityModel

__all__ = ["Posteriors", "place_posteriors", "prior_posteriors"]


@dataclass(frozen=True, eq=False)
class Posteriors:
    """Distributions over the places of the zone at each step of each sequence, shape (T, P, B)."""

    filtered: Floats
    smoothed: Floats


def place_posteriors(model: MobilityModel, emissions: npt.ArrayLike, reports: npt.ArrayLike) -> Posteriors:
    """Return where vehicles were, given their reports.

    A report that the model holds impossible is left out, as an attacker would.

    Parameters
    ----------
    model
        How vehicles move.
    emissions
        How probable each report is from each state, shape (N, K).
    reports
        The outputs that were reported, from 0 to K − 1, shape (T, B).
    """
    emission, seen = np.asarray(emissions, np.float64), np.asarray(reports)
    if emission.shape[:1] != (len(model),) or seen.ndim != 2 or not seen.size:
        raise ParameterError(
            f"A model of {len(model)} states needs as many rows of emissions, and a table of reports. "
            f"Got the shapes {emission.shape} and {seen.shape} instead."
        )
    return _run(model, np.ascontiguousarray(emission.T), seen)


def prior_posteriors(model: MobilityModel, steps: int) -> Floats:
    """Return where a vehicle is at each of some steps that it stays in the zone, without any report, shape (T, P)."""
    result = _run(model, np.ones((1, len(model))), np.zeros((steps, 1), np.int64))
    return result.smoothed[:, :, 0]


def _run(model: MobilityModel, by_report: Floats, reports: Indices) -> Posteriors:
    steps, sequences = reports.shape
    places = len(model.zone)
    forward = np.empty((steps, len(model), sequences))
    likelihood = np.empty_like(forward)
    filtered = np.empty((steps, places, sequences))
    smoothed = np.empty_like(filtered)
    ahead = np.repeat(model.start[:, None], sequences, axis=1)
    for step in range(steps):
        likelihood[step] = by_report[reports[step]].T
        now = np.multiply(ahead, likelihood[step], out=forward[step])
        impossible = now.sum(axis=0) <= 0
        if impossible.any():
            likelihood[step][:, impossible] = 1.0
            now[:, impossible] = ahead[:, impossible]
        now /= now.sum(axis=0)
        filtered[step] = model.to_places @ now
        if step + 1 < steps:
            ahead = model.forward(now)
    later = np.ones((len(model), sequences))
    for step in reversed(range(steps)):
        forward[step] *= later
        smoothed[step] = model.to_places @ forward[step]
        if step:
            later *= likelihood[step]
            later = model.backward(later)
            later /= later.max(axis=0)
    smoothed /= smoothed.sum(axis=1, keepdims=True)
    return Posteriors(filtered, smoothed)
