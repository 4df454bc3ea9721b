"""An attacker on homes: its belief after some nights, its guess, and what else it may know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.home.mechanisms import Part, Seen
from benchmarks.home.streets import Commuter, Points, Streets, away_m
from geoblanket._arrays import Floats, Ints

NEGLIGIBLE = 30.0
"""Homes whose probability is e^-30 of the likeliest are dropped."""


def best_point(points: Points, logs: Floats) -> Points:
    """Return the point of least expected distance (Weiszfeld's iteration)."""
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    guess = weights @ points
    for _ in range(60):
        pull = weights / np.maximum(away_m(points, guess), 1.0)
        guess = pull @ points / pull.sum()
    # Where one point has half of the probability, it is the answer.
    likeliest = points[weights.argmax()]
    cost = [weights @ away_m(points, point) for point in (guess, likeliest)]
    return np.asarray(guess if cost[0] <= cost[1] else likeliest)


def posteriors(
    streets: Streets, homes: Ints, parts: Sequence[Part], nights: Sequence[int]
) -> Iterator[tuple[Ints, Floats]]:
    """Yield the homes that are left and the logarithms of their probabilities, up to a constant, after some nights."""
    logs = np.log(streets.prior[homes])
    for first, last in zip((0, *nights), nights, strict=False):
        for part in parts:
            logs = logs + part(slice(first, last), homes)
            kept = logs >= logs.max() - NEGLIGIBLE
            homes, logs = homes[kept], logs[kept]
        yield homes, logs


def errors_m(commuter: Commuter, homes: Ints, parts: Sequence[Part], nights: Sequence[int]) -> list[float]:
    """Return the attacker's error after some nights, metres."""
    streets = commuter.streets
    return [
        float(away_m(best_point(streets.points[streets.homes[left]], logs), commuter.at))
        for left, logs in posteriors(streets, homes, parts, nights)
    ]


def leaving_times(commuter: Commuter, spread_s: float, rng: np.random.Generator) -> Part:
    """Return what it says to know when the vehicle left home for the first known place, with a spread each day.

    When it reaches the known place is known exactly, so that this tells how long the drive took.
    """
    ways = commuter.ways[1]
    took = ways.seconds[commuter.home] + rng.normal(0.0, spread_s, commuter.phases.shape[1])

    def part(days: slice, homes: Ints) -> Floats:
        would = ways.seconds[commuter.streets.homes[homes], None]
        return np.asarray(-(((took[days] - would) / spread_s) ** 2).sum(axis=1) / 2)

    return part


def exact_outside(commuter: Commuter, seen: Seen, known: Sequence[int]) -> Part:
    """Return what it says to know everything outside the fence exactly."""
    assert seen.gates is not None
    gates = seen.gates

    def part(_days: slice, homes: Ints) -> Floats:
        possible = np.ones(len(homes), bool)
        for way in known:
            ways = commuter.ways[way]
            true = gates(ways, np.array([commuter.home]))
            possible &= gates(ways, commuter.streets.homes[homes]) == true
        return np.where(possible, 0.0, -np.inf)

    return part
