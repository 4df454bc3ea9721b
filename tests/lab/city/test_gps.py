from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from geoblanket._geodesy import haversine_m, local_metres
from geoblanket.lab.city.fleet import Walks
from geoblanket.lab.city.gps import NOISE_M, IrregularPoints, RegularPoints, irregular_points, regular_points
from geoblanket.lab.city.model import City
from geoblanket.lab.city.streets import CENTRE_LAT, CENTRE_LON
from tests.towns import simulate


@pytest.fixture(scope="module")
def regular(small_city: City, walks: Walks) -> RegularPoints:
    return regular_points(small_city, walks, seed=3)


@pytest.fixture(scope="module")
def irregular(small_city: City, walks: Walks) -> IrregularPoints:
    return irregular_points(small_city, walks, seed=3)


def nodes_at_ticks(points: RegularPoints) -> tuple[np.ndarray, np.ndarray]:
    tick = points.index % 2 == 0
    trip = np.repeat(np.arange(len(points.walks.trip)), np.diff(points.offsets))[tick]
    return tick, points.walks.node[points.walks.offsets[trip] + points.index[tick] // 2]


def test_every_second_point_is_at_a_node(small_city: City, regular: RegularPoints) -> None:
    graph = small_city.graph
    tick, node = nodes_at_ticks(regular)
    away = haversine_m(regular.true_lat[tick], regular.true_lon[tick], graph.lat[node], graph.lon[node])
    assert away.max() < 0.05
    assert (regular.time_s[tick] % 30 == 0).all()


def test_noise_is_as_said_and_jumps_are_wild(regular: RegularPoints) -> None:
    away = haversine_m(regular.lat, regular.lon, regular.true_lat, regular.true_lon)
    assert np.sqrt(np.square(away[~regular.jump]).mean() / 2) == pytest.approx(NOISE_M, rel=0.02)
    assert away[~regular.jump].max() < 8 * NOISE_M
    assert away[regular.jump].min() > 500
    assert regular.jump.sum() == regular.faults["jumps"] > 0


def test_true_edges_come_to_and_leave_the_nodes(small_city: City, regular: RegularPoints) -> None:
    graph = small_city.graph
    tick, node = nodes_at_ticks(regular)
    came, goes = regular.edge_in[tick], regular.edge_out[tick]
    assert (graph.targets[came] == node)[came >= 0].all()
    assert (graph.sources[goes] == node)[goes >= 0].all()
    assert (came >= 0).mean() > 0.9
    assert (goes >= 0).mean() > 0.9


def test_points_between_ticks_are_on_their_edge(small_city: City, regular: RegularPoints) -> None:
    graph = small_city.graph
    between = np.flatnonzero((regular.index % 2 == 1) & (regular.edge_in == regular.edge_out) & (regular.edge_in >= 0))
    x, y = local_metres(regular.true_lat, regular.true_lon, origin_lat=CENTRE_LAT, origin_lon=CENTRE_LON)
    for point in between[:500]:
        lat, lon = graph.edge_line(regular.edge_in[point])
        line = np.stack(local_metres(lat, lon, origin_lat=CENTRE_LAT, origin_lon=CENTRE_LON), 1)
        line -= (x[point], y[point])
        along = np.diff(line, axis=0)
        share = np.clip(-(line[:-1] * along).sum(1) / np.square(along).sum(1), 0.0, 1.0)
        assert np.hypot(*(line[:-1] + share[:, None] * along).T).min() < 0.05


def test_lost_points_are_counted(walks: Walks, regular: RegularPoints) -> None:
    full, left = 2 * walks.ticks - 1, np.diff(regular.offsets)
    faults = regular.faults
    assert (left == 0).sum() == faults["trips_empty"] > 0
    assert ((left == 1) & (full > 1)).sum() == faults["trips_single_point"] > 0
    assert regular.missing_data.sum() == faults["trips_missing_data"] > 0
    assert (full - left)[regular.missing_data].sum() == faults["points_missing"]
    assert ((full == left) | regular.missing_data | (left <= 1)).all()


def test_irregular_points_come_every_7_to_15_s(irregular: IrregularPoints) -> None:
    table = pl.DataFrame({"trip": irregular.trip, "time": irregular.time_us}).unique().sort("trip", "time")
    step = table.select((pl.col("time").diff() / 1e6).filter(pl.col("trip").diff() == 0)).to_series().to_numpy()
    assert np.median(step) == pytest.approx(11, abs=0.5)
    assert np.quantile(step, 0.01) > 6.9
    assert (step < 15.1).mean() > 0.95


def test_irregular_faults_are_counted(irregular: IrregularPoints) -> None:
    table = pl.DataFrame(
        {"trip": irregular.trip, "time": irregular.time_us, "lat": irregular.lat, "lon": irregular.lon}
    )
    assert len(table) - len(table.unique()) == irregular.faults["duplicates"] > 0
    late = table.select((pl.col("time") < pl.col("time").cum_max().over("trip")).sum()).item()
    assert late == irregular.faults["out_of_order"] > 0
    assert irregular.faults["jumps"] > 0


def test_irregular_points_lie_near_the_roads(small_city: City, walks: Walks, irregular: IrregularPoints) -> None:
    """At a whole tick the position is the node's."""
    tick = np.abs((irregular.time_us / 1e6) % 30) < 0.2
    first = walks.trip[0]
    trip = irregular.trip[tick] - first
    at = walks.offsets[trip] + np.round((irregular.time_us[tick] / 1e6 - walks.start_s[trip]) / 30).astype(int)
    node = walks.node[np.minimum(at, walks.offsets[trip + 1] - 1)]
    graph = small_city.graph
    away = haversine_m(irregular.lat[tick], irregular.lon[tick], graph.lat[node], graph.lon[node])
    assert np.quantile(away, 0.99) < 5 * NOISE_M


def test_simulate_is_deterministic(small_city: City) -> None:
    first, again = ([block.lat for block in simulate(small_city, trips=9000, seed=1)] for _ in range(2))
    assert len(first) == 2
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
