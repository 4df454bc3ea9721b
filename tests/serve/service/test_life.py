"""The life of a vehicle: its motion models, ways along streets, drives home and nights there."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely
from typer.testing import CliRunner

from geoblanket._geodesy import haversine_m
from geoblanket.cli.main import app
from geoblanket.errors import MismatchError
from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.storage import save_lattice
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mobility.walks import MatchedWalks
from geoblanket.release.fence import NO_FENCES
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places
from geoblanket.serve.service.bundles import BundleStore
from geoblanket.serve.service.city_map import roads_geojson, street_lines
from geoblanket.serve.service.explorer import Explorer
from geoblanket.serve.service.life import (
    MotionModels,
    Way,
    commute,
    drive,
    model_facts,
    nights,
    unreported_error_m,
)
from geoblanket.tracking.motion_model import MotionModel
from tests.mechanism.bundles import load_lattice
from tests.serve.service.city_lattices import save_city
from tests.towns import Town


@pytest.fixture(scope="module")
def graph(small_town: Town) -> RoadGraph:
    return RoadGraph.load(small_town.roads)


@pytest.fixture(scope="module")
def near(graph: RoadGraph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lattice of the small town."""
    at = float(graph.lat.mean()), float(graph.lon.mean())
    return save_city(tmp_path_factory.mktemp("near") / "near.bundle", at=at, hold_m=50)


@pytest.fixture(scope="module")
def by_distance(graph: RoadGraph) -> MotionModel:
    return MotionModel.by_distance(choose_places(graph, spacing_m=300).coordinates_e7, interval_s=30)


def test_without_a_report_one_is_off_by_the_mean_distance_of_vehicles(by_distance: MotionModel) -> None:
    usual = by_distance.usual.astype(np.float64)
    lat, lon = by_distance.lat, by_distance.lon
    best = (haversine_m(lat[:, None], lon[:, None], lat, lon) @ usual / usual.sum()).min()
    assert unreported_error_m(by_distance) == pytest.approx(best, rel=0.02)


def test_models_are_learned_for_what_they_fit(small_town: Town, graph: RoadGraph, near: Path, tmp_path: Path) -> None:
    lattice = load_bundle(near)
    far = load_bundle(save_city(tmp_path / "far.bundle", at=(10.0, 10.0)))
    assert MotionModels().of(lattice) is None
    roads = MotionModels(graph=graph)
    learned = roads.of(lattice)
    assert learned is not None
    assert roads.of(lattice) is learned
    assert (model_facts(learned)["from"], learned.interval_s) == ("roads", 30)
    assert roads.of(far) is None
    walks = MatchedWalks.open(small_town.walks, graph)
    both = MotionModels(graph=graph, walks=walks).of(lattice)
    assert both is not None
    assert (model_facts(both)["from"], both.learned["part"]) == ("roads and walks", "train")


def test_a_model_that_is_given_is_used_where_it_fits(
    small_town: Town, near: Path, by_distance: MotionModel, tmp_path: Path
) -> None:
    path = tmp_path / "town.model"
    by_distance.save(path)
    store = BundleStore([near])
    explorer = Explorer(store, roads=small_town.roads, walks=small_town.walks, model=path)
    for served in store.bundles:
        model = explorer.motion.of(served.bundle)
        assert model is not None
        assert model.identity == by_distance.identity
    slow = tmp_path / "slow.model"
    MotionModel.by_distance(by_distance.places_e7, interval_s=70).save(slow)
    with pytest.raises(MismatchError, match="motion model of another city"):
        Explorer(store, model=slow)
    result = CliRunner().invoke(app, ["serve", str(near), "--port", "0", "--model", str(slow)])
    assert isinstance(result.exception, MismatchError)


def test_few_models_are_kept_and_most_intervals_share_one(graph: RoadGraph, tmp_path: Path) -> None:
    at = float(graph.lat.mean()), float(graph.lon.mean())
    models = MotionModels(graph=graph)
    lattice = load_lattice(save_city(tmp_path / "city.bundle", at=at)).lattice
    every = {
        seconds: models.of(save_lattice(tmp_path / f"{seconds}.bundle", lattice.spec, version=1, interval_s=seconds))
        for seconds in (30, 60, 600, 3600, 45)
    }
    assert every[30] is every[60] is every[600] is every[3600] is not every[45]
    assert models._of_step.cache_info().maxsize == 4


def test_the_page_does_not_wait_for_a_model(small_town: Town, near: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    monkeypatch.setattr(MotionModels, "of", lambda *_: asked.set())
    explorer = Explorer(BundleStore([near]), roads=small_town.roads)
    assert not asked.is_set()
    explorer.overview()
    assert asked.wait(60)


def test_what_a_file_says_of_itself_is_not_repeated(by_distance: MotionModel) -> None:
    odd = replace(by_distance, learned={"from": "<img src=x>", "part": "all"})
    words = "learned from what its file does not say"
    facts = {"from": "a file", "order": 1, "saw_all": True, "learned": words}
    assert model_facts(odd) == facts


def test_lines_follow_streets(graph: RoadGraph) -> None:
    nodes = choose_places(graph, spacing_m=300).nodes[[3, 9, 9, 30, 4]]
    lines = street_lines(graph, nodes)
    roads = shapely.union_all(
        [shapely.LineString(road["geometry"]["coordinates"]) for road in json.loads(roads_geojson(graph))["features"]]
    )
    assert len(lines) == 5
    assert [len(lines[0]), len(lines[2])] == [1, 1]
    for number in (1, 3, 4):
        assert lines[number][0] == pytest.approx([graph.lon[nodes[number - 1]], graph.lat[nodes[number - 1]]], abs=1e-6)
        assert lines[number][-1] == pytest.approx([graph.lon[nodes[number]], graph.lat[nodes[number]]], abs=1e-6)
        # Roads are drawn to a metre.
        assert shapely.within(shapely.LineString(lines[number]), shapely.buffer(roads, 2e-5))


def test_a_drive_home_keeps_to_the_roads_and_parks(graph: RoadGraph) -> None:
    lat, lon = float(graph.lat[7]), float(graph.lon[7])
    way = commute(graph, lat, lon, interval_s=30)
    assert way.nodes[-20:].tolist() == [7] * 20  # ten minutes
    way_lat, way_lon = graph.lat[way.nodes], graph.lon[way.nodes]
    assert haversine_m(lat, lon, way_lat[0], way_lon[0]) > 1000
    assert haversine_m(way_lat[:-1], way_lon[:-1], way_lat[1:], way_lon[1:]).max() < 900
    lines = street_lines(graph, way.nodes)
    roads = shapely.union_all(
        [shapely.LineString(road["geometry"]["coordinates"]) for road in json.loads(roads_geojson(graph))["features"]]
    )
    whole = shapely.LineString([point for line in lines for point in line])
    assert shapely.within(whole, shapely.buffer(roads, 2e-5))
    again = commute(graph, lat, lon, interval_s=60)
    assert again.nodes.tolist() == way.nodes[::2][: len(again.nodes)].tolist()  # the same drive for any interval
    assert len(commute(graph, lat, lon, interval_s=3600).nodes) == 2


def test_a_device_makes_one_report_in_a_slot() -> None:
    way = Way(np.array([0.0, 10, 31, 59, 60, 95]), np.arange(6, dtype=np.int32))
    assert way.in_slots(30).nodes.tolist() == [0, 2, 4, 5]


def test_a_drive_holds_reports_at_rest_and_keeps_to_its_fence(graph: RoadGraph, near: Path, tmp_path: Path) -> None:
    at = float(graph.lat.mean()), float(graph.lon.mean())
    away_m = haversine_m(graph.lat[0], graph.lon[0], graph.lat, graph.lon)
    way = Way(np.linspace(1.7e9, 1.7e9 + 150, 6), np.array([0, 0, 0, *[away_m.argmax()] * 3], np.int32))
    spent = {}
    for hold_m in (50, 0):
        bundle = load_lattice(save_city(tmp_path / f"{hold_m}.bundle", at=at, hold_m=hold_m))
        model = MotionModels(graph=graph).of(bundle)
        assert model is not None
        driven = drive(bundle, graph, way, model, NO_FENCES)
        spent[hold_m] = driven["spent"]
        if hold_m:
            assert driven["reports"][0] == driven["reports"][2] != driven["reports"][3] == driven["reports"][5]
    assert spent == {50: [4, 4, 4, 8, 8, 8], 0: [4, 8, 12, 16, 20, 24]}
    fences, _ = NO_FENCES.with_place(float(graph.lat[0]), float(graph.lon[0]), radius_km=10.0)
    held = load_lattice(near)
    model = MotionModels(graph=graph).of(held)
    assert model is not None
    assert drive(held, graph, way, model, fences)["spent"] == [4] * 6  # all of the town is inside: one stay


def test_without_a_fence_nights_find_a_home(near: Path, graph: RoadGraph) -> None:
    """With hold a night is one draw: 2/ε for the first, and √(π/n)/ε for many."""
    lattice, home = load_lattice(near).lattice, (float(graph.lat[3]), float(graph.lon[3]))
    found = nights(lattice, *home, interval_s=30, radius_km=None)
    assert (found["draws"], found["lives"]) == (1, 200)
    assert found["error_m"][0] == pytest.approx(500, rel=0.25)
    assert found["error_m"][29] == pytest.approx(1000 * (np.pi / 30) ** 0.5 / 4, rel=0.25)
    every_report = nights(Lattice.verified(lattice.spec), *home, interval_s=600, radius_km=None, graph=graph)
    assert every_report["draws"] == 48
    assert every_report["error_m"][0] == pytest.approx(1000 * (np.pi / 48) ** 0.5 / 4, rel=0.25)
    assert every_report["error_m"][29] < 25


def test_with_a_fence_nights_find_its_centre(near: Path, graph: RoadGraph) -> None:
    lattice, home = load_lattice(near).lattice, (float(graph.lat[3]), float(graph.lon[3]))
    fences, fence = NO_FENCES.with_place(*home, radius_km=1.0)
    found = nights(lattice, *home, interval_s=30, radius_km=1.0, fences=fences)
    # Of a point anywhere in a disc, the mean distance from its centre is ⅔ of the radius, and never more than it.
    assert found["error_m"][29] == pytest.approx(667, rel=0.15)
    assert found["error_m"][29] > 0.85 * found["error_m"][6]
    lon, lat = found["guesses"][-1]
    assert haversine_m(lat, lon, fence.lat_e7 / 1e7, fence.lon_e7 / 1e7) < 400
    assert len(found["reports"]) == len(found["guesses"]) == len(found["circle_m"]) == 30
    # Streets help: nobody lives outside of the town.
    knowing = nights(lattice, *home, interval_s=30, radius_km=1.0, fences=fences, graph=graph)
    assert 250 < knowing["error_m"][29] < 667
