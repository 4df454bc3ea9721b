from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket.blanket.findings import write_findings
from geoblanket.blanket.predictor import Predictor
from geoblanket.build.blanket_lengths import (
    KnownLengths,
    check_source,
    read_found_blankets,
    regions_of_source,
)
from geoblanket.build.row_tree import FixedLengths
from geoblanket.errors import InputError, MismatchError
from geoblanket.roads.places import Places
from geoblanket.roads.zones import Zones
from tests.blanket.made_findings import ABOUT, learnable, make_findings
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
    found = KnownLengths(PREDICTOR, TOWN, region, hours, 30.0)(now, before)
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
    found = regions_of_source(from_regions({"kind": "grid", **box, "rows": 1, "columns": 2}), TOWN, zones_of(TOWN))
    # Columns are numbered from west to east.
    assert (found == (lon >= (box["west"] + box["east"]) / 2)).all()
    zones = zones_of(TOWN)
    by_zone = from_regions({"kind": "zones", "identity": zones.identity})
    assert regions_of_source(by_zone, TOWN, zones).tolist() == zones.zone.tolist()
    assert set(regions_of_source(from_regions(None), TOWN, zones).tolist()) == {-1}


def test_a_predictor_for_something_else_is_refused() -> None:
    with pytest.raises(MismatchError, match="other regions"):
        regions_of_source(from_regions({"kind": "zones", "identity": "ab" * 32}), TOWN, zones_of(TOWN))
    check_source(PREDICTOR, interval_s=30.0, time_zone="Europe/Lisbon")
    with pytest.raises(MismatchError, match="every 30 s, the walks have one every 15 s"):
        check_source(PREDICTOR, interval_s=15.0, time_zone="Europe/Lisbon")
    with pytest.raises(MismatchError, match="time zone Europe/Lisbon"):
        check_source(PREDICTOR, interval_s=30.0, time_zone="UTC")
    check_source(from_regions(None, by="speed+region"), interval_s=30.0, time_zone="UTC")


def test_findings_tell_lengths_too(tmp_path: Path) -> None:
    findings = make_findings(learnable, hours=24, speeds=16, regions=3)
    write_findings(findings, tmp_path / "findings.parquet", about=ABOUT)
    found = read_found_blankets(tmp_path / "findings.parquet")
    for hour, speed, region in ((8, 22.0, 1), (8, 22.0, 0), (3, 79.9, 1), (3, 4.0, 2)):
        assert found.lengths(hour=hour, speed_mph=speed, region=region) == learnable(hour, int(speed), region)
    # Nothing was found at such speeds, and in other regions.
    assert found.lengths(hour=[8, 8], speed_mph=[110.0, 22.0], region=[1, -1]).tolist() == [1, 1]
    check_source(found, interval_s=30.0, time_zone="Europe/Lisbon")
    with pytest.raises(MismatchError, match="time zone"):
        check_source(found, interval_s=30.0, time_zone="UTC")


def test_features_that_do_not_define_groups_do_not_matter(tmp_path: Path) -> None:
    write_findings(make_findings(learnable, by="speed"), tmp_path / "findings.parquet", about=ABOUT)
    found = read_found_blankets(tmp_path / "findings.parquet")
    speeds = np.array([2.0, 22.0, 61.0])
    expected = [learnable(0, int(speed), 0) for speed in speeds]
    assert len(set(expected)) > 1
    for hour, region in ((0, -1), (17, 5)):
        assert found.lengths(hour=hour, speed_mph=speeds, region=region).tolist() == expected


def test_findings_by_several_groupings_are_refused(tmp_path: Path) -> None:
    by_hour = make_findings(learnable, by="hour").with_columns(pl.col("group") + 100)
    both = pl.concat([make_findings(learnable, by="speed"), by_hour])
    write_findings(both, tmp_path / "findings.parquet", about=ABOUT)
    with pytest.raises(InputError, match="2 groupings"):
        read_found_blankets(tmp_path / "findings.parquet")
