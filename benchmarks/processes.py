"""Vehicle-like processes whose Markov order is known, to measure how tests of it err.

A vehicle at X_{t-1} makes the step

    V_t = f(X_{t-1}) + Σ_l a_l R(X_{t-1}) V_{t-l} + s(X_{t-1}) ε_t,    l = 1, …, order - 1,

where f is a field of mean steps over the city, R a rotation that differs from place to place (streets bend), s a scale
that does too, and a_l > 0. Hence X_t depends on the last `order` locations and on nothing older. The field, rotations
and scales are drawn anew for each seed; every sample is a vehicle of its own, so that rows are independent.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError

__all__ = ["CITY_SIDE_M", "LARGEST_ORDER", "simulate_windows"]

CITY_SIDE_M = 6_000.0
"""Vehicles start uniformly in a square with this side, and are led back to it, metres."""
LARGEST_ORDER = 4

_MEMORY = {1: (), 2: (0.30,), 3: (0.40, 0.30), 4: (0.35, 0.15, 0.30)}
"""a_l by order."""
STEP_M = 150.0
"""Mean scale of the random part of a step, metres."""
_FIELD_M = 110.0
"""Root mean square of each component of f, metres."""
_WAVELENGTH_M = {"smooth": 5_000.0, "rough": 2_500.0}
_WAVES = 6  # in each field
_TURN = 0.6
"""Root mean square of the angle of R, radians."""
_WAY_BACK = 0.1  # of the distance outside the city, the share that a step leads back
_DEGREES_OF_FREEDOM = 3.0  # of Student's t: heavy tails, and a variance still
BURN_IN = 8  # steps before the first location that is returned


@checked
def simulate_windows(
    order: int,
    samples: int,
    *,
    field: Literal["smooth", "rough"] = "smooth",
    noise: Literal["gaussian", "heavy"] = "gaussian",
    length: int = 6,
    spacing_m: float = 0.0,
    stops: float = 0.0,
    seed: int,
) -> Floats:
    """Return the last locations of independent vehicles whose process has a known Markov order.

    Parameters
    ----------
    order
        The Markov order, from 1 to 4.
    samples
        How many vehicles.
    field
        "smooth": waves of 4 to 8 km. "rough": waves of 2 to 4 km with sharp crests.
    noise
        "gaussian", or "heavy": Student's t with three degrees of freedom, of the same variance.
    length
        How many locations of each vehicle.
    spacing_m
        Locations are on a grid of this spacing, metres; 0: anywhere.
    stops
        Chance that a vehicle stands still for a step; whether it does, depends on nothing.
    seed
        Of the field and of the vehicles.

    Returns
    -------
    windows
        Positions in metres, east and north, shape (samples, length, 2): the present one first.
    """
    if order not in _MEMORY:
        raise ParameterError(f"The order must be from 1 to {LARGEST_ORDER}. Got {order} instead.")
    rng = np.random.default_rng(seed)
    waves = Waves(rng, _WAVELENGTH_M[field], sharp=field == "rough")
    position = rng.uniform(-CITY_SIDE_M / 2, CITY_SIDE_M / 2, (samples, 2))
    steps = [STEP_M * rng.normal(size=(samples, 2)) for _ in range(LARGEST_ORDER)]
    locations = [position]
    for _ in range(BURN_IN + length):
        east, north, turn, scale = waves(position)
        step = _FIELD_M * np.stack([east, north], axis=1) + _WAY_BACK * (
            np.clip(position, -CITY_SIDE_M / 2, CITY_SIDE_M / 2) - position
        )
        for memory, past in zip(_MEMORY[order], steps, strict=False):
            step += memory * rotated(past, _TURN * turn)
        step += STEP_M * (1 + 0.4 * np.tanh(scale))[:, None] * _noise(rng, noise, samples)
        moved = position + step * (rng.random((samples, 1)) >= stops)
        if spacing_m:
            moved = spacing_m * np.round(moved / spacing_m)
        steps = [moved - position, *steps[:-1]]
        position = moved
        locations.append(position)
    return np.stack(locations[: -length - 1 : -1], axis=1)


class Waves:
    """Four random functions of position, each of mean square about 1."""

    def __init__(self, rng: np.random.Generator, wavelength_m: float, *, sharp: bool) -> None:
        angle = rng.uniform(0, 2 * np.pi, (4, _WAVES))
        number = 2 * np.pi / (wavelength_m * rng.uniform(0.8, 1.6, (4, _WAVES)))
        self._numbers = number[..., None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        self._phases = rng.uniform(0, 2 * np.pi, (4, _WAVES))
        self._sharp = sharp

    def __call__(self, position: Floats) -> Floats:
        wave = np.sin(np.einsum("fwd,nd->fwn", self._numbers, position) + self._phases[..., None])
        if self._sharp:
            wave = np.arcsin(wave) * (np.sqrt(6) / np.pi)
        result: Floats = wave.sum(axis=1) * np.sqrt(2 / _WAVES)
        return result


def rotated(steps: Floats, angle: Floats) -> Floats:
    cosine, sine = np.cos(angle), np.sin(angle)
    east, north = steps.T
    return np.stack([cosine * east - sine * north, sine * east + cosine * north], axis=1)


def _noise(rng: np.random.Generator, noise: Literal["gaussian", "heavy"], samples: int) -> Floats:
    if noise == "gaussian":
        return rng.normal(size=(samples, 2))
    variance = _DEGREES_OF_FREEDOM / (_DEGREES_OF_FREEDOM - 2)
    return np.asarray(rng.standard_t(_DEGREES_OF_FREEDOM, (samples, 2)) / variance**0.5)
