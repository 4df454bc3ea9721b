"""Forward–backward over many sequences of reports at once: where each vehicle was, given what it reported.

    filtered:  Pr[place at t | reports 1 … t],        smoothed:  Pr[place at t | reports 1 … T].

Sequences of one length are columns of a matrix, so that a step of many of them is a few products of matrices. Values
are scaled at each step, which changes no posterior and keeps them from vanishing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Ints
from geoblanket.errors import ParameterError
from geoblanket.evaluate.measures.mobility_model import MobilityModel

__all__ = ["Posteriors", "place_posteriors", "prior_posteriors"]

_CELLS: Final = 1 << 17
"""States × sequences at a time: a megabyte, which stays in the processor's cache."""


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
    shape = len(seen), len(model.zone), seen.shape[1]
    result = Posteriors(np.empty(shape), np.empty(shape))
    size = max(1, _CELLS // len(model))
    for start in range(0, seen.shape[1], size):
        some = slice(start, start + size)
        _run(model, emission, seen[:, some], result.filtered[:, :, some], result.smoothed[:, :, some])
    return result


def prior_posteriors(model: MobilityModel, steps: int) -> Floats:
    """Return where a vehicle is at each of some steps that it stays in the zone, without any report, shape (T, P)."""
    return place_posteriors(model, np.ones((len(model), 1)), np.zeros((steps, 1), np.int64)).smoothed[:, :, 0]


def _run(model: MobilityModel, emission: Floats, reports: Ints, filtered: Floats, smoothed: Floats) -> None:
    """Fill in the posteriors of a batch, shapes (T, P, B)."""
    steps, sequences = reports.shape
    forward = np.empty((steps, len(model), sequences))
    impossible = np.zeros((steps, sequences), bool)
    ahead = np.repeat(model.start[:, None], sequences, axis=1)
    for step in range(steps):
        now = np.multiply(ahead, emission.take(reports[step], axis=1), out=forward[step])
        total = now.sum(axis=0)
        impossible[step] = total <= 0
        if impossible[step].any():
            now[:, impossible[step]] = ahead[:, impossible[step]]
            total = now.sum(axis=0)
        now /= total
        filtered[step] = model.to_places @ now
        if step + 1 < steps:
            ahead = model.forward(now)
    later = np.ones((len(model), sequences))
    for step in reversed(range(steps)):
        forward[step] *= later
        belief = model.to_places @ forward[step]
        smoothed[step] = belief / belief.sum(axis=0)
        if step:
            likelihood = emission.take(reports[step], axis=1)
            likelihood[:, impossible[step]] = 1.0
            later *= likelihood
            later = model.backward(later)
            later /= later.max(axis=0)
