"""Bundles whose promise is by road or in an ℓ_p: over all histories of a small town, against networkx."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from geoblanket._arrayfile import read_arrays, write_arrays
from geoblanket._geodesy import haversine_m
from geoblanket.errors import InputError, ParameterError, PolicyError
from geoblanket.mechanism import BundledMechanism, Mechanism, Problem, load_bundle, save_bundle
from geoblanket.mechanism.bundle.header import Clock
from geoblanket.mechanism.bundle.policy import Policy
from geoblanket.mechanism.bundle.storage import MAGIC
from geoblanket.mechanism.history_table import HistoryTable
from geoblanket.mechanism.metric import Metric
from geoblanket.mechanism.place_metric import PlaceMetric, check_count, unit_of
from geoblanket.mechanism.row_distances import row_distances
from geoblanket.roads.distances import road_distances
from geoblanket.roads.graph import Edges, Nodes, RoadGraph
from tests.mechanism.brute_force import exponential_interval
from tests.mechanism.bundles import load_zones
from tests.roads.graphs import to_multigraph

Array = np.ndarray[Any, Any]

COUNT = 8
RING = np.arange(COUNT)
TOWN = RoadGraph.from_edges(
    Nodes(ids=RING, lat=41.0 + 0.01 * np.sin(RING), lon=-8.6 + 0.01 * np.cos(RING)),
    Edges(
        sources=np.concatenate([RING, [1, 4]]),
        targets=np.concatenate([(RING + 1) % COUNT, [0, 2]]),
        length_m=1500.0 + 37.25 * np.arange(COUNT + 2),
        speed_m_s=np.full(COUNT + 2, 10.0),
        road_class=np.zeros(COUNT + 2),
    ),
    length_model="given",
)
"""A ring road, one way but for two stretches."""
PLACES_E7 = np.rint(np.column_stack([TOWN.lat, TOWN.lon]) * 1e7).astype(np.int32)
ZONE = RING.astype(np.int32)
HISTORIES = np.array([[now, before] for now in ZONE for before in (now, (now + 3) % COUNT)], np.int32)
ROWS = np.arange(len(HISTORIES), dtype=np.int32)
WEIGHT = 0.5
CLOCK = Clock(30_000, "UTC", (("day", tuple(range(24))),), start="start")


def by_road() -> PlaceMetric:
    return PlaceMetric.by_road(PLACES_E7, road_distances(TOWN, RING, RING))


def longer_way_m(one: int, other: int) -> float:
    roads = to_multigraph(TOWN)
    ways = ((one, other), (other, one))
    return max(float(nx.shortest_path_length(roads, *ends, weight="length")) for ends in ways)


def parts(metric: Metric, epsilon: float = 2.0) -> list[BundledMechanism]:
    """Mechanisms with a tight constraint for each row."""
    result = []
    for regime, past in (("start", 0), ("day", 1)):
        histories = HISTORIES if past else ZONE[:, None]
        rows = np.arange(len(histories), dtype=np.int32)
        mm = row_distances(HistoryTable(PLACES_E7, histories, rows), [metric] * (1 + past), [int(WEIGHT * 1e6)] * past)
        loss = metric.between(histories[:, 0], ZONE) / 1e6
        problem = Problem.in_millimetres(
            loss=loss, prior=np.full(len(loss), 1 / len(loss)), distance_mm=mm, epsilon=epsilon, unit=metric.unit
        )
        made = Mechanism.from_probabilities(np.exp(-epsilon * loss), problem)
        options = {"history_weights": [WEIGHT] * past, "histories": histories, "output_places": ZONE}
        result.append(BundledMechanism.of(made, zone="a", regime=regime, **options))  # type: ignore[arg-type]
    return result


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("road") / "a.bundle"
    save_bundle(path, parts(by_road()), version=1, places_e7=by_road(), clock=CLOCK)
    return path


def test_distances_by_road_are_those_of_the_longer_direction() -> None:
    metric = by_road()
    for one, other in itertools.product(range(COUNT), repeat=2):
        true_mm = 1000 * longer_way_m(one, other)
        assert true_mm - 1.1 <= metric.mm[one, other] <= true_mm


@pytest.mark.parametrize("seed", range(20))
def test_the_longer_direction_is_a_metric_and_the_shorter_is_none(seed: int) -> None:
    rng = np.random.default_rng(seed)
    roads = nx.gnp_random_graph(9, 0.4, seed=seed, directed=True)
    nx.add_cycle(roads, range(9))
    for _, _, edge in roads.edges(data=True):
        edge["weight"] = int(rng.integers(1, 100))
    way = np.array([[nx.dijkstra_path_length(roads, a, b) for b in range(9)] for a in range(9)])
    longer, shorter = np.maximum(way, way.T), np.minimum(way, way.T)
    assert (longer[:, None] <= longer[:, :, None] + longer[None]).all()
    assert (shorter[:, None] > shorter[:, :, None] + shorter[None]).any()


def test_the_promise_holds_between_all_histories_by_road(path: Path) -> None:
    bundle = load_zones(path)
    one = bundle.get("a", "day")
    table = HistoryTable(bundle.places_e7, one.histories, one.history_rows)
    every = list(itertools.product(ZONE.tolist(), range(COUNT)))
    rows = table.row_of(np.array(every)).tolist()
    road = {(a, b): 1000 * longer_way_m(a, b) for a, b in itertools.product(range(COUNT), repeat=2)}
    weights = one.mechanism.weights.tolist()
    tight = 0
    for (now, before), row in zip(every, rows, strict=True):
        for (other_now, other_before), other in zip(every, rows, strict=True):
            mm = road[now, other_now] + WEIGHT * road[before, other_before]
            upper = exponential_interval(one.epsilon_micro, int(mm) + 1)[1]
            for weight, other_weight in zip(weights[row], weights[other], strict=True):
                assert weight <= upper * other_weight
                tight += weight > upper * other_weight * 9 / 10
    assert tight > len(every) * len(ZONE)  # equal rows, and more


def test_a_table_with_a_millimetre_less_is_refused(tmp_path: Path) -> None:
    metric = by_road()
    for one, other in ((0, 1), (2, 5)):
        mm = metric.mm.copy()
        mm[one, other] = mm[other, one] = mm[one, other] - 1
        with pytest.raises(ParameterError, match="said to be further apart"):
            save_bundle(
                tmp_path / "a.bundle",
                parts(metric),
                version=1,
                places_e7=PlaceMetric("road", PLACES_E7, mm),
                clock=CLOCK,
            )


def test_mechanisms_by_road_are_no_mechanisms_on_the_map(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="said to be further apart"):
        save_bundle(tmp_path / "a.bundle", parts(by_road()), version=1, places_e7=PLACES_E7, clock=CLOCK)


def test_the_promise_says_which_metric_it_is_in(path: Path) -> None:
    bundle = load_zones(path)
    promise = bundle.promise
    assert (bundle.unit, promise.unit, promise.as_json()["unit"]) == ("km of road",) * 3
    assert promise.meaning[0].startswith(
        "The best guess between two places of one zone, 100 m of road apart, is right "
    )
    assert promise.meaning[1].endswith("1 km of road.")
    assert "d km of road apart" in promise.terms[0]
    assert "ε = 2 per km of road" in promise.terms[0]
    assert "per km of road" in promise.verified[0]
    assert bundle.get("a", "day").mechanism.certificate.unit == "km of road"
    lat, lon = PLACES_E7[ZONE].T * 1e-7
    on_map = haversine_m(lat[:, None], lon[:, None], lat, lon)
    detour = max(
        longer_way_m(a, b) / on_map[i, j] for (i, a), (j, b) in itertools.combinations(enumerate(ZONE.tolist()), 2)
    )
    assert bundle.zone_facts[0].detour == pytest.approx(detour, rel=1e-5)
    assert f"up to {detour:.3g} times as far apart" in " ".join(promise.not_promised)
    with pytest.raises(PolicyError, match="largest_detour"):
        Policy(largest_detour=detour * 0.99).check(bundle)
    Policy(largest_detour=detour * 1.01).check(bundle)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda fields, _: fields.update(metric="great circle"), "or left out"),
        (lambda fields, _: fields.update(metric="moon"), "newer software may know more"),
        (lambda fields, _: fields.update(metric=1), "newer software may know more"),
        (lambda fields, _: fields.pop("metric"), "not those of a bundle"),
        (lambda _, arrays: arrays.pop("place_distances_mm"), "not those of a bundle"),
        (lambda _, arrays: arrays.update(place_distances_mm=np.zeros(27, np.uint32)), "one for each pair"),
        (lambda _, arrays: arrays.update(place_distances_mm=arrays["place_distances_mm"] - 1), "its domain is not"),
    ],
)
def test_files_with_a_wrong_table_are_refused(path: Path, tmp_path: Path, change: Any, match: str) -> None:
    fields, arrays = read_arrays(path, magic=MAGIC, kind="a bundle", hint="", largest_bytes=1 << 30)
    arrays = dict(arrays)
    change(fields, arrays)
    write_arrays(tmp_path / "a.bundle", magic=MAGIC, fields=fields, arrays=arrays)
    with pytest.raises(InputError, match=match):
        load_bundle(tmp_path / "a.bundle")


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 7.0, np.inf])
def test_a_norm_is_that_of_the_plane(p: float) -> None:
    name = f"norm:{p:g}"
    metric = PlaceMetric.by_norm(PLACES_E7, name)
    lat, lon = PLACES_E7.T * 1e-7
    degree_km = 6371.0088 * np.pi / 180
    plane = np.column_stack([lon * degree_km * np.cos(np.radians(lat.mean())), lat * degree_km])
    true_mm = np.linalg.norm(plane[:, None] - plane, ord=p, axis=2) * 1e6
    assert (metric.mm <= true_mm + 1e-3).all()
    assert (metric.mm >= true_mm - 1.1).all()
    assert metric.unit == unit_of(name) == f"km in ℓ_{p:g}"


def test_what_is_no_metric_is_refused() -> None:
    for name in ("norm:0.5", "norm:", "norm:100", "roads", ""):
        with pytest.raises(ParameterError, match="The metric must be"):
            PlaceMetric(name, PLACES_E7, by_road().mm)
    length = road_distances(TOWN, RING, RING)
    length[0, 1] = np.inf
    with pytest.raises(ParameterError, match="no way by road"):
        PlaceMetric.by_road(PLACES_E7, length)
    with pytest.raises(ParameterError, match="for 4,000 places at most. Got 4,001".replace(".", r"\.")):
        check_count(4001)
