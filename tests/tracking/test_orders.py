from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from geoblanket._arrays import Ints
from geoblanket._geodesy import MPH_M_S, haversine_m
from geoblanket._tables import write_table
from geoblanket.build.blanket_lengths import FoundOrigin
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.roads.places import choose_places
from geoblanket.roads.regions import RegionGrid
from geoblanket.roads.zones import partition_zones
from geoblanket.tracking.learning import BlanketOrders, learn_motion, read_orders
from tests.blanket.made_findings import ABOUT, learnable, make_findings
from tests.roads.graphs import grid_graph

GRAPH = grid_graph(6, 8, step_deg=0.004)
PLACES = choose_places(GRAPH)
SOUTH = (PLACES.lat < np.median(PLACES.lat)).astype(np.int32)


@dataclass
class Source:
    """Blankets of 4 in the slow south in the morning, of 2 in the fast north, of 0 elsewhere."""

    regions: str = "null"
    interval_s: float = 30.0

    @property
    def origin(self) -> FoundOrigin:
        return FoundOrigin("hour+speed+region", self.interval_s, "Asia/Tokyo", self.regions)

    def lengths(self, *, hour: npt.ArrayLike, speed_mph: npt.ArrayLike, region: npt.ArrayLike) -> Ints:
        hour, speed, region = np.broadcast_arrays(hour, speed_mph, region)
        slow_south = (hour == 8) & (speed < 10) & (region == 0)
        return np.where(slow_south, 4, np.where((speed >= 10) & (region == 1), 2, 0)).astype(np.int64)


def grid() -> str:
    """Two regions: the south, and the north."""
    lat, lon = PLACES.lat, PLACES.lon
    middle = float(np.median(lat))
    half = float(np.ptp(lat))
    around = RegionGrid(
        south=middle - half, north=middle + half, west=lon.min() - 1, east=lon.max() + 1, rows=2, columns=1
    )
    return json.dumps({"kind": "grid", **asdict(around)})


def test_orders_follow_speed_and_region_over_all_hours() -> None:
    orders = BlanketOrders.of(Source(grid()), PLACES, interval_s=30.0)
    now, before = (axis.ravel().astype(np.int32) for axis in np.indices((len(PLACES), len(PLACES))))
    metres = haversine_m(PLACES.lat[now], PLACES.lon[now], PLACES.lat[before], PLACES.lon[before])
    slow, south = metres / 30 < 10 * MPH_M_S, SOUTH[now] == 1
    expected = np.where(slow & south, 3, np.where(~slow & ~south, 2, 1))
    assert np.array_equal(orders(now, before), expected)
    assert set(expected.tolist()) == {1, 2, 3}


def test_a_model_has_the_memory_that_blankets_ask_for() -> None:
    orders = BlanketOrders.of(Source(grid()), PLACES, interval_s=30.0)
    model = learn_motion(GRAPH, PLACES, order=orders)
    assert model.learned["order"] == "by blanket"
    known = (model.states >= 0).sum(axis=1)
    now, before = model.states[:, 0], model.states[:, 1]
    assert set(known.tolist()) == {1, 2, 3}
    pairs = known >= 2
    assert (orders(now[pairs], before[pairs]) >= known[pairs]).all()


def test_blankets_for_something_else_are_refused() -> None:
    zones = partition_zones(GRAPH, PLACES, max_places=12)
    by_zone = Source(json.dumps({"kind": "zones", "identity": zones.identity}))
    assert np.array_equal(BlanketOrders.of(by_zone, PLACES, interval_s=30, zones=zones).lengths.region, zones.zone)
    with pytest.raises(MismatchError, match="Give the zones that the findings were made with"):
        BlanketOrders.of(by_zone, PLACES, interval_s=30)
    with pytest.raises(MismatchError, match="Give the zones"):
        BlanketOrders.of(by_zone, PLACES, interval_s=30, zones=partition_zones(GRAPH, PLACES, max_places=9))
    with pytest.raises(MismatchError, match="every 60 s"):
        BlanketOrders.of(Source(interval_s=60.0), PLACES, interval_s=30)


def test_findings_are_read(tmp_path: Path) -> None:
    about = ABOUT | {"regions": json.loads(grid())}
    write_table(make_findings(learnable, hours=3, speeds=3, regions=2), tmp_path / "f", kind="findings", about=about)
    orders = read_orders(PLACES, interval_s=30.0, findings=tmp_path / "f")
    assert orders(np.array([3], np.int32), np.array([4], np.int32)).tolist()[0] in (1, 2, 3)
    for file in (None, tmp_path / "f"):
        with pytest.raises(ParameterError, match="either findings or a predictor"):
            read_orders(PLACES, interval_s=30.0, findings=file, predictor=file)
