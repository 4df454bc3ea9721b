"""The page's tracker: its motion models, and ways along streets."""

from __future__ import annotations

import json
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
from geoblanket.mobility.walks import MatchedWalks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places
from geoblanket.serve.service.bundles import BundleStore
from geoblanket.serve.service.city_map import roads_geojson, street_lines
from geoblanket.serve.service.explorer import Explorer
from geoblanket.serve.service.replay import MotionModels, made_up_drive, model_facts, unreported_error_m
from geoblanket.tracking.motion_model import MotionModel
from tests.mechanism.bundles import load_lattice, load_zones
from tests.serve.service.city_lattices import save_city
from tests.serve.service.small_town import SmallTown


@pytest.fixture(scope="module")
def graph(small_town: SmallTown) -> RoadGraph:
    return RoadGraph.load(small_town.roads)


@pytest.fixture(scope="module")
def near(small_town: SmallTown, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lattice of the small town."""
    lat, lon = load_zones(small_town.bundles[0]).places_e7.mean(axis=0) / 1e7
    return save_city(tmp_path_factory.mktemp("near") / "near.bundle", at=(lat, lon))


@pytest.fixture(scope="module")
def by_distance(small_town: SmallTown) -> MotionModel:
    return MotionModel.by_distance(load_zones(small_town.bundles[0]).places_e7, interval_s=30)


def test_without_a_report_one_is_off_by_the_mean_distance_of_vehicles(by_distance: MotionModel) -> None:
    usual = by_distance.usual.astype(np.float64)
    lat, lon = by_distance.lat, by_distance.lon
    best = (haversine_m(lat[:, None], lon[:, None], lat, lon) @ usual / usual.sum()).min()
    assert unreported_error_m(by_distance) == pytest.approx(best, rel=0.02)


def test_models_are_learned_for_what_they_fit(
    small_town: SmallTown, graph: RoadGraph, near: Path, tmp_path: Path
) -> None:
    zones, lattice = load_bundle(small_town.bundles[0]), load_bundle(near)
    far = load_bundle(save_city(tmp_path / "far.bundle", at=(10.0, 10.0)))
    assert MotionModels().of(lattice) is None
    roads = MotionModels(graph=graph)
    learned = roads.of(lattice)
    assert learned is not None
    assert roads.of(lattice) is learned
    assert (model_facts(learned)["from"], learned.interval_s) == ("roads", 30)
    assert roads.of(far) is None
    walks = MatchedWalks.open(small_town.walks, graph)
    both = MotionModels(graph=graph, walks=walks).of(zones)
    assert both is not None
    assert (model_facts(both)["from"], both.learned["part"]) == ("roads and walks", "train")


def test_a_model_that_is_given_is_used_where_it_fits(
    small_town: SmallTown, near: Path, by_distance: MotionModel, tmp_path: Path
) -> None:
    path = tmp_path / "town.model"
    by_distance.save(path)
    store = BundleStore([small_town.bundles[0], near])
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


def test_the_page_does_not_wait_for_a_model(small_town: SmallTown, near: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(MotionModels, "begin", lambda _self, bundles: asked.append(len(bundles)))
    monkeypatch.setattr(MotionModels, "of", lambda *_: pytest.fail("nothing was replayed"))
    explorer = Explorer(BundleStore([near]), roads=small_town.roads)
    assert not asked
    explorer.overview()
    explorer.overview()
    assert asked == [1]


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


def test_a_made_up_drive_keeps_to_the_roads(graph: RoadGraph, near: Path) -> None:
    lattice = load_lattice(near).lattice
    lat, lon = float(graph.lat.mean()), float(graph.lon.mean())
    way = made_up_drive(lattice, graph, lat, lon, interval_s=30)
    assert way is not None
    assert len(way.nodes) == 90
    way_lat, way_lon = graph.lat[way.nodes], graph.lon[way.nodes]
    assert haversine_m(lat, lon, way_lat, way_lon).max() < 5000
    assert 50 < haversine_m(way_lat[:-1], way_lon[:-1], way_lat[1:], way_lon[1:]).mean() < 600
    lines = street_lines(graph, way.nodes)
    for at, line in zip(zip(way_lon, way_lat, strict=True), lines, strict=True):
        assert line[-1] == pytest.approx(at, abs=1e-6)
    roads = shapely.union_all(
        [shapely.LineString(road["geometry"]["coordinates"]) for road in json.loads(roads_geojson(graph))["features"]]
    )
    whole = shapely.LineString([point for line in lines for point in line])
    assert shapely.within(whole, shapely.buffer(roads, 2e-5))
    again = made_up_drive(lattice, graph, lat, lon, interval_s=30)
    assert again is not None
    assert again.nodes.tolist() == way.nodes.tolist()
    assert made_up_drive(lattice, graph, lat + 1, lon, interval_s=30) is None
