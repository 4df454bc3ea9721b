from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import ConvexHull, cKDTree

from geoblanket._arrays import Indices
from geoblanket._geodesy import haversine_m, local_metres
from geoblanket.mechanism.bundle.zones import snapping_radius_m, zone_facts, zone_in_words, zone_name, zone_order

LAT_E7, LON_E7 = 411_500_000, -86_200_000
METRE_E7 = 89.93  # of latitude


@dataclass(frozen=True)
class Table:
    zone: str
    regime: str
    eta_mm: int
    histories: Indices


def places_e7(metres: npt.ArrayLike) -> Indices:
    """Places at metres north and east of a point."""
    north, east = np.asarray(metres, float).T
    lat = LAT_E7 + north * METRE_E7
    lon = LON_E7 + east * METRE_E7 / np.cos(np.radians(LAT_E7 * 1e-7))
    result: Indices = np.rint(np.column_stack([lat, lon])).astype(np.int32)
    return result


def table(places: list[int], *, eta_m: float = 5000.0) -> Table:
    return Table("a", "day", int(eta_m * 1000), np.array(places, np.int32)[:, None])


def test_facts_of_a_zone() -> None:
    places = places_e7([[0, 0], [0, 300], [0, 600], [0, 5000]])
    (facts,) = zone_facts([table([0, 1, 2])], places)
    assert (facts.places, facts.fewest_sharing) == (3, 3)
    assert facts.extent_m == facts.smallest_part_m == pytest.approx(600, abs=1)
    # The best guess is the middle one.
    assert facts.error_m == pytest.approx(200, abs=1)


def test_between_parts_beyond_eta_nothing_is_shared() -> None:
    places = places_e7([[0, 0], [0, 300], [0, 600], [0, 5000], [0, 5100]])
    (facts,) = zone_facts([table([0, 1, 2, 3, 4], eta_m=400.0)], places)
    assert (facts.places, facts.fewest_sharing) == (5, 2)
    assert facts.smallest_part_m == pytest.approx(100, abs=1)
    (alone,) = zone_facts([table([0, 1, 2], eta_m=0.0)], places)
    assert (alone.fewest_sharing, alone.smallest_part_m) == (1, 0.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 60))
def test_no_coordinate_amid_the_places_is_further_from_one(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    places = places_e7(rng.uniform(0, 4000, (count, 2)))
    zone = sorted(rng.choice(count, rng.integers(1, count + 1), replace=False).tolist())
    radius = snapping_radius_m([table(zone)], places)
    lat, lon = places.T * 1e-7
    x, y = local_metres(lat, lon, origin_lat=float(lat.mean()), origin_lon=float(lon.mean()))
    hull = ConvexHull(np.column_stack([x, y]))
    points = rng.uniform([x.min(), y.min()], [x.max(), y.max()], (20_000, 2))
    inside = points[(hull.equations[:, :2] @ points.T + hull.equations[:, 2:] <= 0).all(axis=0)]
    inside = np.concatenate([inside, np.column_stack([x, y])])
    largest = float(np.max(cKDTree(np.column_stack([x, y])[zone]).query(inside)[0]))
    assert largest <= radius <= largest * 1.15 + 60


def test_a_zone_that_leaves_places_out_snaps_from_further_away() -> None:
    places = places_e7([[0, 0], [0, 1000], [1000, 0], [1000, 1000]])
    whole, part = (snapping_radius_m([table(zone)], places) for zone in ([0, 1, 2, 3], [0]))
    assert whole == pytest.approx(np.hypot(500, 500), rel=0.02)
    lat, lon = places.T * 1e-7
    assert part == pytest.approx(float(haversine_m(lat[0], lon[0], lat[3], lon[3])), rel=0.02)


def test_a_zone_is_called_by_its_number_or_by_the_name_that_it_was_given() -> None:
    assert zone_in_words(zone_name(3)) == zone_in_words(3) == "zone 3"
    assert zone_in_words("centre") == "zone 'centre'"


def test_zones_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["10", "b", "2", "a", "0"], key=zone_order) == ["0", "2", "10", "a", "b"]
