"""Promises to those who were learned from, as tight as they can be."""

from __future__ import annotations

import math

from geoblanket._training import PrivatePart, Training, TrainingPromise, Unit, epsilon_of

__all__ = ["promise", "promised"]


def rho_of(epsilon: float, delta: float) -> float:
    """Return the largest ρ that means no more than ε."""
    low, high = -60.0, 20.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of(math.exp(middle), delta) <= epsilon else (low, middle)
    return math.exp(low)


def promise(
    epsilon: float = 1.0,
    delta: float = 1e-6,
    *,
    shares: tuple[float, ...] = (0.25, 0.75),
    unit: Unit = "vehicle",
    units: int = 400,
    rho_before: float = 0.0,
    noise_id: str = "5eed",
) -> TrainingPromise:
    """Return a promise whose parts cost these shares of all that its ε allows."""
    rho = rho_of(epsilon, delta)
    parts = tuple(
        PrivatePart(f"part {number}", 100 * number, 8, 8 / math.sqrt(2 * rho * share))
        for number, share in enumerate(shares, 1)
    )
    rule = "2 places, a public rule"
    return TrainingPromise(unit, units, epsilon, delta, parts, rule, rho_before, noise_id, "declared")


def promised(epsilon: float = 1.0) -> Training:
    return Training("private", promise(epsilon))
