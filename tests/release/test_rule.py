from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket._arrays import Indices
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism import BundledMechanism, save_bundle
from geoblanket.release.rule import NearestPlace, PlaceRaster, ReleaseRule
from tests.mechanism.bundles import load_zones, save_plain
from tests.release.worlds import PLACES, certain, report, save_certain

TOWN = np.rint(np.column_stack([PLACES.lat, PLACES.lon]) * 1e7).astype(np.int32)


def test_a_place_in_no_zone_counts_as_the_nearest_that_is_in_one(tmp_path: Path) -> None:
    rule = ReleaseRule(load_zones(save_certain(tmp_path / "a.bundle")))
    drawn = rule.draw(np.array([[5, 2], [4, 2], [4, 5]], np.int32), "day")
    assert drawn.tolist() == [report("day", 4, 2), report("day", 4, 2), report("day", 4, 5)]
    assert rule.outside(np.array([5, 4, 0], np.int32), "day").tolist() == [True, False, False]


def test_draws_follow_the_weights(tmp_path: Path) -> None:
    """With a small ε a row has many outputs: a χ² test of 40,000 draws, at one in a million."""
    bundled = certain("day", "east", epsilon=2.0)
    save_bundle(tmp_path / "a.bundle", [bundled], version=1, places_e7=PLACES.coordinates_e7)
    rule = ReleaseRule(load_zones(tmp_path / "a.bundle"))
    row = int(np.flatnonzero((bundled.histories == (9, 2)).all(axis=1))[0])
    drawn = rule.draw(np.tile(np.array([[9, 2]], np.int32), (40_000, 1)), "day")
    expected = bundled.mechanism.probabilities[row] * 40_000
    counts = np.bincount(np.searchsorted(bundled.output_places, drawn), minlength=len(expected))
    assert len(expected) == 8
    assert ((counts - expected) ** 2 / expected).sum() < 40.5


def test_bundles_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(MismatchError, match="has no places"):
        ReleaseRule(load_zones(save_plain(tmp_path / "a.bundle")))
    rule = ReleaseRule(load_zones(save_certain(tmp_path / "b.bundle")))
    with pytest.raises(MismatchError, match="no mechanism for the regime 'dusk'"):
        rule.draw(np.array([[0, 0]], np.int32), "dusk")


def test_zones_that_share_places_are_refused(tmp_path: Path) -> None:
    east = certain("start", "east")
    again = BundledMechanism.of(
        east.mechanism, zone="other", regime="start", histories=east.histories, output_places=east.output_places
    )
    with pytest.raises(ParameterError, match="zone 'east' and zone 'other' share 8 place"):
        save_bundle(tmp_path / "a.bundle", [east, again], version=1, places_e7=PLACES.coordinates_e7)


def nearest(places_e7: Indices, lat_e7: int, lon_e7: int) -> int:
    """The rule in exact arithmetic."""
    scale = Fraction(round(math.cos(math.radians(lat_e7 * 1e-7)) * 2**20), 2**20)
    squared = []
    for lat, lon in places_e7.tolist():
        east = (lon - lon_e7 + 1_800_000_000) % 3_600_000_000 - 1_800_000_000
        squared.append((lat - lat_e7) ** 2 + (east * scale) ** 2)
    return squared.index(min(squared))


@given(st.integers(-9_000, 9_000), st.integers(-9_000, 9_000))
def test_all_machines_agree_with_exact_arithmetic(north: int, east: int) -> None:
    """On a lattice of 1e-6 degrees, where many locations lie between places."""
    lat_e7, lon_e7 = int(TOWN[0, 0]) + 10 * north, int(TOWN[0, 1]) + 10 * east
    assert NearestPlace(TOWN).of(lat_e7, lon_e7) == nearest(TOWN, lat_e7, lon_e7)


def test_of_equally_near_places_the_first_counts() -> None:
    corners = np.array([[0, 0], [0, 200], [200, 0], [200, 200]], np.int32)
    assert NearestPlace(corners).of(0, 100) == 0
    assert NearestPlace(corners).of(200, 100) == 2
    assert NearestPlace(corners[::-1].copy()).of(0, 100) == 2


@pytest.mark.parametrize("lat_e7", [0, 450_000_000, -899_999_999])
def test_the_date_line_is_no_border(lat_e7: int) -> None:
    places = np.array([[lat_e7, 1_799_999_000], [lat_e7, -1_799_990_000]], np.int32)
    for lon_e7 in (1_799_999_900, -1_800_000_000, -1_799_999_000, -1_799_995_000, -1_799_991_000, 0):
        assert NearestPlace(places).of(lat_e7, lon_e7) == nearest(places, lat_e7, lon_e7)


def test_a_location_anywhere_on_earth_has_a_place() -> None:
    rng = np.random.default_rng(0)
    for lat, lon in zip(
        rng.integers(-9 * 10**8, 9 * 10**8, 50), rng.integers(-18 * 10**8, 18 * 10**8, 50), strict=True
    ):
        assert 0 <= NearestPlace(TOWN).of(int(lat), int(lon)) < len(TOWN)


def test_exchanged_coordinates_are_noticed_only_where_no_vehicle_can_be() -> None:
    finder = NearestPlace(TOWN)
    lat, lon = TOWN[9].tolist()
    assert finder.seems_exchanged(lon, lat)
    for vehicle in ((lat, lon), (lat + 90_000_000, lon), (-lat, -lon)):
        assert not finder.seems_exchanged(*vehicle)
    near_diagonal = NearestPlace(np.array([[400_000_000, 410_000_000]], np.int32))
    assert not near_diagonal.seems_exchanged(410_000_000, 400_000_000)


def scattered(count: int, *, lat: float, width: float, seed: int = 0) -> Indices:
    rng = np.random.default_rng(seed)
    return np.rint(np.column_stack([rng.normal(lat, width, count), rng.normal(-8.6, width, count)]) * 1e7).astype(
        np.int32
    )


@pytest.mark.parametrize(
    "places",
    [TOWN, TOWN[:1], TOWN[:2], scattered(300, lat=41, width=0.05), scattered(300, lat=-59.5, width=0.2, seed=1),
     scattered(300, lat=70, width=0.05), scattered(100, lat=20, width=5)],
    ids=["town", "one", "two", "city", "far south", "far north", "country"],
)  # fmt: skip
def test_many_at_once_are_as_one_by_one(places: Indices) -> None:
    rng = np.random.default_rng(2)
    spread = np.ptp(places, axis=0).max() + 1000
    near = places[rng.integers(0, len(places), 3_000)] + rng.normal(0, 0.1 * spread, (3_000, 2))
    pairs = places[rng.integers(0, len(places), (500, 2))].astype(np.int64)
    halfway = pairs.sum(axis=1) // 2
    lat, lon = np.concatenate([np.rint(near).astype(np.int64), halfway, [[0, 17], [-8 * 10**8, 10**9]]]).T
    finder = NearestPlace(places)
    expected = [finder.of(int(a), int(b)) for a, b in zip(lat, lon, strict=True)]
    assert PlaceRaster(places).of(lat, lon).tolist() == expected
