"""The attacker of `benchmarks.home` is right: it finds what is not hidden, and is as sure as it may be.

Bounds are five standard deviations wide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from benchmarks.home.attacker import errors_m, exact_outside, posteriors
from benchmarks.home.coarse_location import CoarsePhone
from benchmarks.home.mechanisms import Fenced, Noise, Seen, SilentZone, fence_center, fresh, hold, lattice_alone
from benchmarks.home.streets import Commuter, Points, Streets, away_m
from geoblanket._arrays import Floats
from tests.roads.graphs import grid_graph

pytestmark = pytest.mark.usefixtures("fixed_randomness")
TOWN = grid_graph(8, 8, step_deg=0.003)
Mechanism = Callable[[Commuter, Noise], Seen]


@pytest.fixture(scope="module")
def noise() -> Noise:
    return Noise.over(TOWN, 4.0)


@pytest.fixture(scope="module")
def streets(noise: Noise) -> Streets:
    return Streets.of(TOWN, noise.metres(TOWN.lat, TOWN.lon), step_m=50.0)


def commuters(streets: Streets, count: int, *, days: int) -> Iterator[Commuter]:
    rng = np.random.default_rng(3)
    for _ in range(count):
        yield Commuter.drawn(streets, rng, origins=1, days=days, from_m=1000.0)


def surprise(streets: Streets, noise: Noise, mechanism: Mechanism, known: list[int], count: int = 40) -> float:
    """Return by how many standard deviations the true home is more probable than the attacker expects it to be."""
    more = variance = 0.0
    for commuter in commuters(streets, count, days=2):
        seen = mechanism(commuter, noise)
        *_, (homes, logs) = posteriors(streets, seen.homes, seen.parts(known), (1, 2))
        chances = np.exp(logs - logs.max())
        chances /= chances.sum()
        true = chances[streets.homes[homes] == commuter.home].sum()
        more += true - (chances**2).sum()
        variance += (chances**3).sum() - (chances**2).sum() ** 2
    return float(more / np.sqrt(variance))


@pytest.mark.parametrize(("mechanism", "known"), [(lattice_alone, []), (hold, [0, 1])])
def test_a_home_that_nothing_hides_is_found_exactly(mechanism: Mechanism, known: list[int]) -> None:
    faint = Noise.over(TOWN, 20.0)
    streets = Streets.of(TOWN, faint.metres(TOWN.lat, TOWN.lon), step_m=50.0)
    for commuter in commuters(streets, 5, days=30):  # after 7 days, 1 in 50 is still taken for a neighbour
        seen = mechanism(commuter, faint)
        assert errors_m(commuter, seen.homes, seen.parts(known), (30,))[0] < 1.0


@pytest.mark.parametrize(
    ("mechanism", "known"),
    [
        (hold, []),
        (hold, [0]),
        (hold, [0, 1]),
        (Fenced(400, 100), []),
        (Fenced(400, 100), [0, 1]),
        (SilentZone(300.0), [0, 1]),
        (CoarsePhone(), []),
        (CoarsePhone(), [0]),
    ],
    ids=["hold, nights", "hold, coming", "hold", "fence, nights", "fence", "zone", "phone, nights", "phone"],
)
def test_the_attacker_is_as_sure_as_it_may_be(
    streets: Streets, noise: Noise, mechanism: Mechanism, known: list[int]
) -> None:
    assert abs(surprise(streets, noise, mechanism, known)) < 5


class Overconfident(Noise):
    def log_likelihood(self, reports: Points, points: Points) -> Floats:
        return 8 * super().log_likelihood(reports, points)


def test_an_attacker_that_is_too_sure_is_noticed(streets: Streets, noise: Noise) -> None:
    assert surprise(streets, Overconfident(noise.lattice), hold, [], 60) < -5


def test_in_the_limit_a_fence_leaves_the_homes_behind_the_same_gates(streets: Streets, noise: Noise) -> None:
    for commuter in commuters(streets, 5, days=30):
        seen = Fenced(400, 100)(commuter, noise)
        (homes, _), (left, logs) = (
            next(posteriors(streets, seen.homes, parts, (30,)))
            for parts in ([exact_outside(commuter, seen, [0, 1])], seen.parts([0, 1]))
        )
        exact = np.isin(left, homes)
        assert commuter.home in streets.homes[homes]
        assert np.isin(homes, left).all()
        assert np.ptp(logs[exact] - np.log(streets.prior[left[exact]])) < 1e-9


def test_positions_follow_the_fastest_way_and_then_stay(streets: Streets) -> None:
    commuter = next(commuters(streets, 1, days=1))
    ways, home = commuter.ways[0], commuter.home
    took = ways.seconds[home]
    path = ways.positions(np.array([home]), np.array([[0.0, took / 2, took, took + 500]]))[0, 0]
    # At 10 m/s, half as fast again as slow.
    assert away_m(path[1], path[0]) <= took / 2 * 10 / 1.5 * 1.12
    assert away_m(path[2], commuter.at) == away_m(path[3], commuter.at) == 0


def test_hold_draws_where_the_vehicle_has_moved() -> None:
    path = np.array([[0.0, 0], [30, 0], [60, 0], [70, 0], [200, 0]])
    assert fresh(path, arriving=True).tolist() == [True, False, True, False, True]
    assert fresh(path, arriving=False).tolist() == [True, False, False, True, False]


def test_centres_lie_within_the_radius_on_all_sides() -> None:
    centres = np.array([fence_center(np.array([5.0, 7.0]), 3) for _ in range(2000)])
    apart = centres - (5, 7)
    assert (np.hypot(*apart.T) <= 3).all()
    assert len(np.unique(apart, axis=0)) == 29
