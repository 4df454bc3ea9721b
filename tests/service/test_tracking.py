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
from geoblanket.errors import InputError, MismatchError
from geoblanket.mechanism import load_bundle
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places
from geoblanket.service.explore_map import Streets, roads_geojson
from geoblanket.service.explore_replay import street_drive
from geoblanket.service.explore_tracking import (
    MotionModels,
    ZoneAlone,
    model_facts,
    track,
    typical_error_m,
    unreported,
)
from geoblanket.service.explorer import Explorer
from geoblanket.service.store import BundleStore
from geoblanket.tracking.filtering import BeliefFilter
from geoblanket.tracking.motion_model import MotionModel
from tests.service.city_lattices import save_city
from tests.service.small_town import SmallTown


@pytest.fixture(scope="module")
def graph(small_town: SmallTown) -> RoadGraph:
    return RoadGraph.load(small_town.roads)


@pytest.fixture(scope="module")
def near(small_town: SmallTown, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lattice of the small town."""
    lat, lon = load_bundle(small_town.bundles[0]).places_e7.mean(axis=0) / 1e7
    return save_city(tmp_path_factory.mktemp("near") / "near.bundle", at=(lat, lon))


@pytest.fixture(scope="module")
def by_distance(small_town: SmallTown) -> MotionModel:
    return MotionModel.by_distance(load_bundle(small_town.bundles[0]).places_e7, interval_s=30)


def test_zones_alone_are_tracked_by_bayes_rule(by_distance: MotionModel) -> None:
    model = by_distance
    zone = (model.lon > np.median(model.lon)).astype(np.int32)
    beliefs = BeliefFilter(model, ZoneAlone(zone, model, interval_s=30))
    east, west = np.flatnonzero(zone)[0], np.flatnonzero(zone == 0)[0]
    slots, outputs = np.arange(5), np.array([east, west, -1, -1, west])
    estimates = track(beliefs, slots, outputs)
    moves, belief = model.moves.toarray().astype(np.float64), model.start.astype(np.float64)
    for slot, output in enumerate(outputs.tolist()):
        belief = belief if slot == 0 else belief @ moves
        belief = belief * (zone == zone[output]) if output >= 0 else belief
        belief = belief / belief.sum()
        off_m = haversine_m(estimates.lat[slot], estimates.lon[slot], model.lat, model.lon)
        best = min(
            float(haversine_m(*at, model.lat, model.lon) @ belief) for at in zip(model.lat, model.lon, strict=True)
        )
        assert off_m @ belief < best + 2
        radius_m = estimates.radius_m[slot]
        assert belief[off_m <= radius_m].sum() > 0.89
        assert belief[off_m <= radius_m - 45].sum() < 0.91
    nothing = unreported(beliefs, slots)
    assert nothing.radius_m[0] > estimates.radius_m[0]


def test_without_a_report_one_is_off_by_the_mean_distance_of_vehicles(by_distance: MotionModel) -> None:
    usual = by_distance.usual.astype(np.float64)
    lat, lon = by_distance.lat, by_distance.lon
    best = (haversine_m(lat[:, None], lon[:, None], lat, lon) @ usual / usual.sum()).min()
    assert typical_error_m(by_distance) == pytest.approx(best, rel=0.02)


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
    places = choose_places(graph, spacing_m=300)
    both = MotionModels(graph=graph, places=places, walks=small_town.walks).of(zones)
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
    facts = {"from": "a file", "order": 1, "places": odd.place_count, "saw_all": True, "learned": words}
    assert model_facts(odd) == facts


PLAN = {
    "epsilon_by_interval": [
        {
            "epsilon_per_km": epsilon,
            "interval_s": interval_s,
            "cost_per_km": {"report": epsilon, "hour": epsilon * 3600 / interval_s, "night": 1.0},
            "on_the_road": {"error_m": 100.0 * interval_s / epsilon, "trips": 3},
        }
        for epsilon in (2, 8)
        for interval_s in (30, 60)
    ],
    "without_any_report": {"on_the_road": {"error_m": 4000.0}},
    "in_words": ["more that the page does not show"],
}


def test_a_plan_is_read_or_refused(near: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(PLAN))
    plan = Explorer(BundleStore([near]), plan=path).overview()["plan"]
    assert plan["without_m"] == 4000
    assert plan["schedules"][1] == {"epsilon": 2, "interval_s": 60, "hour": 120, "error_m": 3000}
    bad: list[object] = [[], {}, {**PLAN, "epsilon_by_interval": []}, {**PLAN, "without_any_report": {"error_m": -1}}]
    schedule = PLAN["epsilon_by_interval"][0]  # type: ignore[index]
    bad.append({**PLAN, "epsilon_by_interval": [{**schedule, "interval_s": 0}]})
    for content in bad:
        path.write_text(json.dumps(content))
        with pytest.raises(InputError, match="is not a plan"):
            Explorer(BundleStore([near]), plan=path)
    with pytest.raises(InputError, match="cannot be read"):
        Explorer(BundleStore([near]), plan=tmp_path / "none.json")


def test_lines_follow_streets(graph: RoadGraph) -> None:
    nodes = choose_places(graph, spacing_m=300).nodes[[3, 9, 9, 30, 4]]
    lines = Streets(graph).lines(nodes)
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
    lattice = load_bundle(near).lattice
    assert lattice is not None
    lat, lon = float(graph.lat.mean()), float(graph.lon.mean())
    way = street_drive(lattice, graph, lat, lon, interval_s=30)
    assert way is not None
    assert way.lines is not None
    assert len(way.lat) == len(way.lines) == 90
    moved_m = haversine_m(way.lat[:-1], way.lon[:-1], way.lat[1:], way.lon[1:])
    assert 50 < moved_m.mean() < 600
    for at, line in zip(zip(way.lon, way.lat, strict=True), way.lines, strict=True):
        assert line[-1] == pytest.approx(at, abs=1e-6)
    roads = shapely.union_all(
        [shapely.LineString(road["geometry"]["coordinates"]) for road in json.loads(roads_geojson(graph))["features"]]
    )
    whole = shapely.LineString([point for line in way.lines for point in line])
    assert shapely.within(whole, shapely.buffer(roads, 2e-5))
    again = street_drive(lattice, graph, lat, lon, interval_s=30)
    assert again is not None
    assert again.lines == way.lines
    assert street_drive(lattice, graph, lat + 1, lon, interval_s=30) is None
