from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket.blanket.predictor import Predictor
from geoblanket.build.blanket_lengths import FixedLengths, PredictedLengths, check_predictor, regions_of_predictor
from geoblanket.errors import MismatchError
from geoblanket.roads.places import Places
from geoblanket.roads.zones import Zones
from tests.blanket.test_predictor import trained
from tests.build.worlds import grid

TOWN = grid(5, 4)
PREDICTOR = trained()[0]


def zones_of(places: Places) -> Zones:
    zone = (np.arange(len(places)) >= 10).astype(np.int32)
    return Zones(zone, ("a", "b"), np.array([[0, 1]], np.int32), 10, places.identity)


def from_regions(about: object, *, by: str = "hour+speed+region") -> Predictor:
    origin = replace(PREDICTOR.origin, regions=json.dumps(about), by=by)
    return Predictor(PREDICTOR.encoding, PREDICTOR.network, origin)


def test_a_fixed_order_is_the_same_everywhere() -> None:
    assert FixedLengths(2)(np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32)).tolist() == [2] * 4


def test_the_longest_blanket_of_the_hours_of_a_regime_counts() -> None:
    region = (np.arange(len(TOWN)) % 3).astype(np.int32)
    hours = (3, 8, 17)
    now, before = (np.ravel(each).astype(np.int32) for each in np.indices((len(TOWN), len(TOWN))))
    found = PredictedLengths(PREDICTOR, TOWN, region, hours, 30.0)(now, before)
    expected = []
    for one, other in zip(now, before, strict=True):
        metres = float(haversine_m(TOWN.lat[one], TOWN.lon[one], TOWN.lat[other], TOWN.lon[other]))
        mph = metres / 30 * 3600 / 1609.344
        expected.append(max(PREDICTOR.length(hour=h, speed_mph=mph, region=int(region[one])) for h in hours))
    assert found.tolist() == expected
    assert len(set(expected)) > 1


def test_regions_are_those_of_the_predictor() -> None:
    lat, lon = TOWN.lat, TOWN.lon
    box = {"south": lat.min() - 0.01, "north": lat.max() + 0.01, "west": lon.min() - 0.01, "east": lon.max() + 0.01}
    found = regions_of_predictor(from_regions({"kind": "grid", **box, "rows": 1, "columns": 2}), TOWN, zones_of(TOWN))
    # Columns are numbered from west to east.
    assert (found == (lon >= (box["west"] + box["east"]) / 2)).all()
    zones = zones_of(TOWN)
    by_zone = from_regions({"kind": "zones", "identity": zones.identity})
    assert regions_of_predictor(by_zone, TOWN, zones).tolist() == zones.zone.tolist()
    assert set(regions_of_predictor(from_regions(None), TOWN, zones).tolist()) == {-1}


def test_a_predictor_for_something_else_is_refused() -> None:
    with pytest.raises(MismatchError, match="other regions"):
        regions_of_predictor(from_regions({"kind": "zones", "identity": "ab" * 32}), TOWN, zones_of(TOWN))
    check_predictor(PREDICTOR, interval_s=30.0, time_zone="Europe/Lisbon")
    with pytest.raises(MismatchError, match="every 30 s, the walks have one every 15 s"):
        check_predictor(PREDICTOR, interval_s=15.0, time_zone="Europe/Lisbon")
    with pytest.raises(MismatchError, match="time zone Europe/Lisbon"):
        check_predictor(PREDICTOR, interval_s=30.0, time_zone="UTC")
    check_predictor(from_regions(None, by="speed+region"), interval_s=30.0, time_zone="UTC")
