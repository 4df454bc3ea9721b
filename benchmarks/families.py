"""Families of movement whose Markov order is known, each unlike the others, to measure how tests of it err.

In all of them a step V_t is drawn given the place X_{t-1} and the last order - 1 steps, and nothing older. What differs
is how: see the functions. Fields over the city (drift, angles, scales) are drawn anew for each seed, and every sample
is a vehicle of its own, so that rows are independent.

Choices in `geoblanket.blanket.analytic` were made by looking at the `TUNING` families. The `HELD_BACK` families were
run only after all choices had been made: they tell how the test does on what it was not made for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.processes import BURN_IN, CITY_SIDE_M, LARGEST_ORDER, STEP_M, Waves, rotated, simulate_windows
from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError

__all__ = ["HELD_BACK", "TUNING", "simulate_family"]

Fields = Callable[[Floats], Floats]
"""Four functions of position, each of mean square about 1, shape (4, n)."""
_SHARES = {1: (), 2: (1.0,), 3: (0.55, 0.45), 4: (0.35, 0.25, 0.40)}
"""How a family's memory is divided among the last steps, by order."""
_WAY_BACK = 0.1
_SHORTEST_M = 1e-6


def simulate_family(family: str, order: int, samples: int, *, length: int, seed: int) -> Floats:
    """Return the last locations of independent vehicles of a family.

    Parameters
    ----------
    family
        One of `TUNING` or `HELD_BACK`.
    order
        The Markov order, from 1 to 4.
    samples
        How many vehicles.
    length
        How many locations of each vehicle.
    seed
        Of the fields and of the vehicles.

    Returns
    -------
    windows
        Positions in metres, east and north, shape (samples, length, 2): the present one first.
    """
    if family not in (*TUNING, *HELD_BACK):
        raise ParameterError(f"The family must be one of {', '.join((*TUNING, *HELD_BACK))}. Got {family!r} instead.")
    if order not in _SHARES:
        raise ParameterError(f"The order must be from 1 to {LARGEST_ORDER}. Got {order} instead.")
    if family == "waves":
        return simulate_windows(order, samples, field="rough", noise="heavy", length=length, seed=seed)
    rng = np.random.default_rng(seed)
    move, side_m, wavelength_m = _FAMILIES[family]
    fields, side = Waves(rng, wavelength_m, sharp=False), side_m / 2
    position = rng.uniform(-side, side, (samples, 2))
    steps = [STEP_M * rng.normal(size=(samples, 2)) for _ in range(LARGEST_ORDER)]
    locations = [position]
    for _ in range(BURN_IN + length):
        step = move(position, steps[: order - 1], _SHARES[order], fields, rng)
        step += _WAY_BACK * (np.clip(position, -side, side) - position)
        position = position + step
        steps = [step, *steps[:-1]]
        locations.append(position)
    return np.stack(locations[: -length - 1 : -1], axis=1)


Move = Callable[[Floats, list[Floats], tuple[float, ...], Fields, np.random.Generator], Floats]
"""The next step of vehicles, given where they are, their last steps and the shares of these."""


def _interacting(
    position: Floats,
    steps: list[Floats],
    shares: tuple[float, ...],
    fields: Fields,
    rng: np.random.Generator,
    *,
    half_side_m: float,
) -> Floats:
    """Drift and turning differ from place to place, steps are multiplied by the position, and noise is Student's t₄.

    The noise grows with the last step and differs from place to place.
    """
    east, north, turn, scale = fields(position)
    place = np.tanh(position / half_side_m)
    step = 0.8 * STEP_M * np.stack([east, north], axis=1)
    pace = np.ones(len(position))
    for share, past in zip(shares, steps, strict=True):
        step += 0.8 * share * rotated(past, 0.9 * turn) + 0.6 * share * past * place[:, ::-1]
    if steps:
        pace = np.sqrt(0.6 + 0.4 * np.minimum((steps[0] ** 2).sum(axis=1) / (2 * STEP_M**2), 4))
    noise = rng.standard_t(4, (len(position), 2)) / np.sqrt(2)
    return np.asarray(step + STEP_M * (pace * np.exp(0.35 * np.tanh(scale)))[:, None] * noise)


def _roads(
    position: Floats, steps: list[Floats], shares: tuple[float, ...], fields: Fields, rng: np.random.Generator
) -> Floats:
    """Streets have a direction that differs from place to place; vehicles go along them one way or the other, or stop.

    Which way, follows from the ways of the last steps; one that hardly moved is likelier to stand still again.
    """
    lean, halt, angle, scale = fields(position)
    along = np.stack([np.cos(0.8 * angle), np.sin(0.8 * angle)], axis=1)
    score, slow = 0.8 * lean, np.zeros(len(position))
    for share, past in zip(shares, steps, strict=True):
        score += 2.2 * share * np.tanh((past * along).sum(axis=1) / STEP_M)
        slow += share * np.exp(-(past**2).sum(axis=1) / STEP_M**2)
    way = np.where(rng.random(len(position)) < _logistic(score), 1.0, -1.0)
    stands = rng.random(len(position)) < _logistic(-2.0 + 0.5 * halt + 2.0 * slow)
    length = 1.6 * STEP_M * np.exp(0.3 * np.tanh(scale)) * rng.gamma(4.0, 0.25, len(position))
    across = 0.25 * STEP_M * rng.normal(size=(len(position), 2))
    return np.asarray(np.where(stands, 0.05, 1.0)[:, None] * (along * (way * length)[:, None] + across))


def _regimes(
    position: Floats, steps: list[Floats], shares: tuple[float, ...], fields: Fields, rng: np.random.Generator
) -> Floats:
    """Two ways to move, with a sharp border between them: districts decide, and whether the last step was long."""
    east, north, turn, district = fields(position)
    outer = district > 0.3
    fast = outer if not steps else outer ^ ((steps[0] ** 2).sum(axis=1) > 2 * STEP_M**2)
    step = np.where(outer, 0.7, -0.5)[:, None] * STEP_M * np.stack([np.tanh(2 * east), np.tanh(2 * north)], axis=1)
    for share, past in zip(shares, steps, strict=True):
        step += share * np.where(fast, 0.75, 0.35)[:, None] * rotated(past, np.where(fast, 0.5, -0.8) * turn)
    return np.asarray(step + STEP_M * np.where(fast, 1.1, 0.7)[:, None] * rng.normal(size=(len(position), 2)))


def _speeds(
    position: Floats, steps: list[Floats], shares: tuple[float, ...], fields: Fields, rng: np.random.Generator
) -> Floats:
    """Log-normal speeds with memory, and headings with memory; the usual speed and bend differ from place to place."""
    east, north, bend, usual = fields(position)
    typical = np.log(STEP_M) + 0.4 * np.tanh(usual)
    log_speed, pull = typical.copy(), 0.5 * np.stack([east, north], axis=1)
    for share, past in zip(shares, steps, strict=True):
        speed = np.maximum(np.linalg.norm(past, axis=1), _SHORTEST_M)
        log_speed += 0.5 * share * np.clip(np.log(speed) - typical, -2, 2)
        pull += 1.2 * share * rotated(past / speed[:, None], 0.4 * bend)
    heading = np.arctan2(pull[:, 1], pull[:, 0]) + rng.vonmises(0.0, 0.3 + 1.5 * np.linalg.norm(pull, axis=1))
    speed = np.exp(log_speed + 0.4 * rng.normal(size=len(position)))
    return np.asarray(speed[:, None] * np.stack([np.cos(heading), np.sin(heading)], axis=1))


def _curves(
    position: Floats, steps: list[Floats], shares: tuple[float, ...], fields: Fields, rng: np.random.Generator
) -> Floats:
    """Bends go on: steps before the last turn the direction that the last one gives. Noise is skewed."""
    east, north, turn, scale = fields(position)
    step = 0.6 * STEP_M * np.stack([east, north], axis=1)
    if steps:
        bend = 0.5 * turn
        for share, past in zip(shares[1:], steps[1:], strict=True):
            cross = past[:, 0] * steps[0][:, 1] - past[:, 1] * steps[0][:, 0]
            bend += 1.5 * share * np.tanh(cross / (2 * STEP_M**2))
            step += 0.4 * share * past
        step += 0.6 * rotated(steps[0], bend)
    noise = rng.exponential(1.0, (len(position), 2)) - 1
    return np.asarray(step + 0.9 * STEP_M * np.exp(0.3 * np.tanh(scale))[:, None] * noise)


def _logistic(score: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-score)))


_FAMILIES: dict[str, tuple[Move, float, float]] = {
    "interacting": (partial(_interacting, half_side_m=CITY_SIDE_M / 2), CITY_SIDE_M, 2_500.0),
    "compact": (partial(_interacting, half_side_m=1_000.0), 2_000.0, 2_000.0),
    "roads": (_roads, CITY_SIDE_M, 5_000.0),
    "regimes": (_regimes, CITY_SIDE_M, 5_000.0),
    "speeds": (_speeds, CITY_SIDE_M, 5_000.0),
    "curves": (_curves, CITY_SIDE_M, 5_000.0),
}
"""How vehicles move, the side of the square in which they start, and the wavelength of fields, metres."""
TUNING = ("waves", "interacting", "compact", "roads")
"""`waves` is `simulate_windows` with a rough field and heavy tails; `compact` is `interacting` in a city that is hardly
larger than a few steps."""
HELD_BACK = ("regimes", "speeds", "curves")
