"""Bundles with a lattice: what the service tells of them, and what the page is sent."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from geoblanket._geodesy import haversine_m
from geoblanket.cli.main import app
from geoblanket.errors import InputError, MismatchError
from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.facts import BundleFacts, FrameFacts, LatticeFacts
from geoblanket.mechanism.bundle.policy import Policy
from geoblanket.mechanism.lattice.spec import DENOMINATOR
from geoblanket.mechanism.promise import fenced_m, laplace_errors
from geoblanket.roads.graph import RoadGraph
from geoblanket.serve.service.bundles import BundleStore
from geoblanket.serve.service.explorer import ExploredLattice, Explorer
from geoblanket.serve.service.replay import MotionModels, Way, live_at_home, replay
from tests.mechanism.bundles import load_lattice, load_zones
from tests.serve.service.city_lattices import save_city
from tests.serve.service.living import Command, Live, live
from tests.serve.service.small_town import SmallTown
from tests.serve.service.test_canary import LAT, LON, hits

HERE = (41.152, -8.604)


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_city(tmp_path_factory.mktemp("city") / "city.bundle", hold_m=50)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without hold."""
    return save_city(tmp_path_factory.mktemp("bare") / "bare.bundle", epsilon=2.0)


@pytest.fixture(scope="module")
def store(city: Path, bare: Path, town: Path) -> BundleStore:
    return BundleStore([city, bare, town])


@pytest.fixture(scope="module")
def explorer(city: Path, bare: Path) -> Explorer:
    return Explorer(BundleStore([city, bare]))


@pytest.fixture(scope="module")
def explored(explorer: Explorer) -> ExploredLattice:
    return next(iter(explorer.lattices.values()))


@pytest.fixture(scope="module")
def site(store: BundleStore, explorer: Explorer) -> Iterator[Live]:
    with live(store, explorer=explorer) as found:
        yield found


def at(explored: ExploredLattice, **more: Any) -> dict[str, Any]:
    return {"bundle": explored.served.facts.sha256, "lat": HERE[0], "lon": HERE[1], **more}


def heat_at(explored: ExploredLattice, lat: float, lon: float) -> SimpleNamespace:
    heat = SimpleNamespace(**explored.heat(lat, lon))
    heat.per_hectare = np.array(heat.per_hectare)
    return heat


def test_the_list_describes_lattices_beside_zones(site: Live, city: Path) -> None:
    lattice = load_lattice(city).lattice
    first, second, third = site.client.get("/v1/bundles").json()["bundles"]
    facts = first["lattice"]
    assert (facts["cells"], facts["cell_m"], facts["epsilon_per_km"]) == (lattice.cells, 100, 4)
    assert facts["hold_m"] == 50
    assert facts["meaning"] == replace(lattice.promise, interval_s=30).meaning
    assert facts["rounding_m"] == lattice.certificate.rounding_mm / 1000
    frame = facts["frame"]
    lat, lon = lattice.centers()
    assert frame["south"] < lat.min() < lat.max() < frame["north"]
    assert frame["west"] < lon.min() < lon.max() < frame["east"]
    assert (first["epsilon_per_km"], first["eta_km"], first["zones"]) == ([4], [None], [])
    assert second["lattice"]["hold_m"] == 0
    assert third["lattice"] is None


def test_the_interface_describes_lattices(site: Live) -> None:
    schemas = site.client.get("/openapi.json").json()["components"]["schemas"]
    for facts in (BundleFacts, LatticeFacts, FrameFacts):
        assert list(schemas[facts.__name__]["properties"]) == [field.name for field in fields(facts)]
    assert schemas["LatticeFacts"]["properties"]["cell_m"]["description"] == "Metres from edge to edge of a cell."


def test_download_guarantee_and_what_is_not_there(site: Live, city: Path) -> None:
    bundle = load_lattice(city)
    path = f"/v1/bundles/{bundle.sha256}"
    answer = site.client.get(path)
    assert answer.content == city.read_bytes()
    assert site.client.get(path, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    guarantee = site.client.get(f"{path}/guarantee").json()
    assert guarantee["words"] == str(bundle.promise).split("\n")
    assert (guarantee["mechanisms"], guarantee["lattice"]["cells"]) == ([], bundle.lattice.cells)
    for part in ("zones", "places"):
        assert site.client.get(f"{path}/{part}").json()["error"] == "no_zones"


def test_the_policy_holds_for_lattices(city: Path) -> None:
    with pytest.raises(InputError, match=r"its ε is 4 per km, more than 3"):
        BundleStore([city], policy=Policy(largest_epsilon=3.0))


def test_a_lattice_is_replaced_like_any_bundle(tmp_path: Path, city: Path) -> None:
    path = tmp_path / "city.bundle"
    path.write_bytes(city.read_bytes())
    store = BundleStore([path])
    before = store.bundles[0].sha256
    save_city(path, version=2)
    assert store.refresh() == 1
    assert store.bundles[0].sha256 != before
    path.write_bytes(b"nothing")
    assert (store.refresh(), store.refused) == (0, 1)


def test_heat_is_what_the_lattice_weighs(explored: ExploredLattice) -> None:
    lattice = explored.lattice
    heat = heat_at(explored, *HERE)
    weights = lattice.weights(*HERE) / DENOMINATOR
    lat, lon = lattice.centers()
    rows = len(heat.per_hectare) // heat.columns
    for block in (0, len(heat.per_hectare) // 2, len(heat.per_hectare) - 1):
        row, column = divmod(block, heat.columns)
        south, west = heat.south + row * heat.north_step, heat.west + column * heat.east_step
        inside = (south < lat) & (lat < south + heat.north_step) & (west < lon) & (lon < west + heat.east_step)
        assert inside.sum() == heat.cells**2
        assert heat.per_hectare[block] == pytest.approx(weights[inside].mean(), rel=0.01)  # a cell is a hectare
    assert heat.per_hectare.sum() * heat.cells**2 > 0.97
    assert max(rows, heat.columns) <= 75


def test_heat_is_small_and_stays_in_the_frame(explored: ExploredLattice) -> None:
    frame = explored.served.facts.lattice
    assert frame is not None
    for lat in (-89.0, 41.10, *HERE[:1], 41.2, 89.0):
        for lon in (-179.0, -8.66, HERE[1], -8.54, 179.0):
            heat = heat_at(explored, lat, lon)
            rows = len(heat.per_hectare) // heat.columns
            assert len(heat.per_hectare) == rows * heat.columns <= 75**2
            assert heat.south > frame.frame.south - 1e-6
            assert heat.south + rows * heat.north_step < frame.frame.north + 1e-6
            assert heat.west + heat.columns * heat.east_step < frame.frame.east + 1e-6
            assert (heat.per_hectare > 0).all()


def test_a_city_of_many_cells_is_sent_as_few_blocks(tmp_path: Path) -> None:
    path = save_city(tmp_path / "large.bundle", epsilon=1.5, radius_km=20.0)
    explored = next(iter(Explorer(BundleStore([path])).lattices.values()))
    heat = heat_at(explored, *HERE)
    assert explored.lattice.cells > 200_000
    assert heat.cells == 2
    assert len(heat.per_hectare) <= 75**2
    assert len(json.dumps(explored.heat(*HERE))) < 100_000
    assert heat.per_hectare.sum() * heat.cells**2 > 0.95


def test_without_a_fence_nights_find_a_home(explored: ExploredLattice) -> None:
    """With hold a night is one draw: 2/ε for the first, and √(π/n)/ε for many."""
    found = live_at_home(explored.lattice, *HERE, interval_s=30, hold=True, radius_km=None)
    assert (found["fence"], found["draws"], found["lives"]) == (None, 1, 200)
    assert found["error_m"][0] == pytest.approx(500, rel=0.25)
    assert found["error_m"][29] == pytest.approx(1000 * (np.pi / 30) ** 0.5 / 4, rel=0.25)
    every_report = live_at_home(explored.lattice, *HERE, interval_s=600, hold=False, radius_km=None)
    assert every_report["draws"] == 48
    assert every_report["error_m"][0] == pytest.approx(1000 * (np.pi / 48) ** 0.5 / 4, rel=0.25)
    assert every_report["error_m"][29] < 25


def test_with_a_fence_nights_find_its_centre(explored: ExploredLattice) -> None:
    found = live_at_home(explored.lattice, *HERE, interval_s=30, hold=True, radius_km=1.0)
    # Of a point anywhere in a disc, the mean distance from its centre is ⅔ of the radius, and never more than it.
    assert found["error_m"][29] == pytest.approx(667, rel=0.15)
    assert found["error_m"][29] > 0.85 * found["error_m"][6]
    fence, (lon, lat) = found["fence"], found["guesses"][-1]
    assert (fence["radius_m"], round(fence["delta_100_m"], 3)) == (1302, 0.066)
    assert haversine_m(*HERE, *fence["center"][::-1]) <= 1001
    assert haversine_m(lat, lon, *fence["center"][::-1]) < 400
    assert len(found["reports"]) == len(found["guesses"]) == len(found["circle_m"]) == 30


def test_the_page_asks_about_a_home(site: Live, explored: ExploredLattice) -> None:
    asked = at(explored, interval_s=30, hold=True, radius_km=0.5)
    answer = site.client.post("/explore/home", json=asked).json()
    assert answer["bare"]["fence"] is None
    assert answer["fenced"]["fence"]["radius_m"] == 802
    assert answer["fenced"]["error_m"][-1] > 2 * answer["bare"]["error_m"][-1]
    assert site.client.post("/explore/home", json=asked | {"radius_km": None}).json()["fenced"] is None
    pole = site.client.post("/explore/home", json=asked | {"lat": 89.0})
    assert (pole.status_code, pole.json()["error"]) == (422, "no_fence")
    for wrong in ({"radius_km": 0}, {"radius_km": 11}, {"interval_s": 1}, {"hold": "perhaps"}, {"nights": 1}):
        assert site.client.post("/explore/home", json=asked | wrong).status_code == 400


def test_a_replay_holds_reports_at_rest(small_town: SmallTown, tmp_path: Path) -> None:
    graph = RoadGraph.load(small_town.roads)
    lat, lon = float(graph.lat.mean()), float(graph.lon.mean())
    away_m = haversine_m(graph.lat[0], graph.lon[0], graph.lat, graph.lon)
    way = Way(np.linspace(1.7e9, 1.7e9 + 150, 6), np.array([0, 0, 0, *[away_m.argmax()] * 3], np.int32))
    spent = {}
    for hold_m in (50, 0):
        bundle = load_bundle(save_city(tmp_path / f"{hold_m}.bundle", at=(lat, lon), hold_m=hold_m))
        model = MotionModels(graph=graph).of(bundle)
        assert model is not None
        replayed = replay(bundle, graph, way, model)
        spent[hold_m] = replayed["spent"]
        if hold_m:
            assert replayed["reports"][0] == replayed["reports"][2] != replayed["reports"][3] == replayed["reports"][5]
    assert spent == {50: [4, 4, 4, 8, 8, 8], 0: [4, 8, 12, 16, 20, 24]}


def test_only_a_few_replays_run_at_once(
    site: Live, explored: ExploredLattice, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geoblanket.serve.service.explorer._TURN_S", 0.1)
    asked = at(explored, interval_s=30, hold=True, radius_km=None)
    with explorer.replaying(), explorer.replaying():
        answer = site.client.post("/explore/home", json=asked)
        assert (answer.status_code, answer.json()["error"]) == (503, "overloaded")
        assert answer.headers["Retry-After"] == "1"
    assert site.client.post("/explore/home", json=asked).status_code == 200


def test_drives_need_roads(site: Live, explored: ExploredLattice) -> None:
    answer = site.client.post("/explore/replay", json=at(explored, way="drive"))
    assert (answer.status_code, answer.json()["error"]) == (422, "no_roads")


def test_a_device_makes_one_report_in_a_slot() -> None:
    way = Way(np.array([0.0, 10, 31, 59, 60, 95]), np.arange(6, dtype=np.int32))
    assert way.in_slots(30).nodes.tolist() == [0, 2, 4, 5]


def test_zones_and_lattices_on_one_map(small_town: SmallTown, tmp_path: Path) -> None:
    lat, lon = load_zones(small_town.bundles[0]).places_e7.mean(axis=0) / 1e7
    here = save_city(tmp_path / "here.bundle", at=(lat, lon))
    away = save_city(tmp_path / "away.bundle", at=(lat + 5, lon))
    store = BundleStore([away, here, *small_town.bundles])
    explorer = Explorer(store, roads=small_town.roads, walks=small_town.walks)
    overview = explorer.overview()
    assert [bundle["kind"] for bundle in overview["bundles"]] == ["lattice", "zones", "zones", "zones"]
    assert overview["left_out"] == 1
    lattice, zones = overview["bundles"][0]["sha256"], overview["bundles"][1]["sha256"]
    place = {"place": 0, "previous": None, "regime": "start"}
    with live(store, explorer=explorer) as site:
        answer = site.client.post("/explore/place", json={"bundle": lattice, **place})
        assert answer.json()["error"] == "no_zones"
        asked = {"bundle": zones, "lat": lat, "lon": lon}
        assert site.client.post("/explore/coordinate", json=asked).json()["error"] == "no_lattice"
        trip = overview["trips"][0]
        walk = {"bundle": lattice, "lat": lat, "lon": lon, "way": trip["number"]}
        replayed = site.client.post("/explore/replay", json=walk).json()
        assert len(replayed["true"]) == trip["steps"]
        assert replayed["model"]["from"] == "roads and walks"
        assert np.mean(replayed["tracked"]["error_m"]) < replayed["without_m"]
        drive = site.client.post("/explore/replay", json={**walk, "way": "drive"}).json()
        assert len(drive["lines"]) == 90
        assert site.client.post("/explore/replay", json={**walk, "way": 10**9}).json()["error"] == "no_such_trip"


def test_walks_are_replayed_by_a_lattice_alone(small_town: SmallTown, tmp_path: Path) -> None:
    lat, lon = load_zones(small_town.bundles[0]).places_e7.mean(axis=0) / 1e7
    here = save_city(tmp_path / "here.bundle", at=(lat, lon))
    explorer = Explorer(BundleStore([here]), roads=small_town.roads, walks=small_town.walks)
    assert explorer.overview()["trips"]
    away = save_city(tmp_path / "away.bundle", at=(lat + 5, lon))
    with pytest.raises(MismatchError, match="another city"):
        Explorer(BundleStore([away]), roads=small_town.roads, walks=small_town.walks)


@pytest.mark.parametrize(
    "change",
    [{"lat": 91}, {"lon": "8"}, {"lat": None}, {"bundle": "x"}, {"more": 1}],
)
def test_bad_questions_are_refused(site: Live, explored: ExploredLattice, change: dict[str, Any]) -> None:
    asked = at(explored) | change
    answer = site.client.post("/explore/coordinate", json=asked)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")


def test_a_coordinate_outside_the_frame_counts_as_its_nearest(site: Live, explored: ExploredLattice) -> None:
    asked = at(explored) | {"lat": 50.0}
    answer = site.client.post("/explore/coordinate", json=asked).json()
    assert answer["inside"] is False
    assert answer["heat"]["per_hectare"]


def test_a_running_service_tells_no_coordinate_that_was_asked_about(tmp_path: Path) -> None:
    city = save_city(tmp_path / "city.bundle", at=(LAT + 0.01, LON + 0.01))
    sha256 = load_bundle(city).sha256
    asked = {"bundle": sha256, "lat": LAT, "lon": LON}
    with (
        Command([city, "--set", "access_log=true"]) as command,
        httpx.Client(base_url=command.url, timeout=60) as client,
    ):
        for path, more in (
            ("coordinate", {}),
            ("home", {"interval_s": 30, "hold": True, "radius_km": 1}),
            ("replay", {"way": "drive"}),
        ):
            url = f"/explore/{path}"
            assert client.post(url, json=asked | more).status_code == (422 if path == "replay" else 200)  # no roads
            for wrong in (asked | more | {"extra": LAT}, asked | more | {"lat": str(LAT)}, [LAT, LON]):
                answer = client.post(url, json=wrong)
                assert answer.status_code == 400
                assert not hits(answer.text + str(answer.headers))
            unknown = client.post(url, json=asked | more | {"bundle": "0" * 64})
            assert unknown.status_code == 404
            assert not hits(unknown.text)
            client.get(f"{url}?lat={LAT}&lon={LON}")
        assert not hits(client.get("/metrics").text + client.get("/explore/overview").text)
        _, written = command.stop()
    assert written.count("geoblanket.access") > 10
    assert not hits(written)


def test_the_log_of_a_fault_has_no_coordinate(
    site: Live, explored: ExploredLattice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*place: float, **_options: Any) -> None:
        raise ValueError(f"cannot place {place}")

    monkeypatch.setattr(ExploredLattice, "heat", fail)
    with caplog.at_level(logging.INFO):
        answer = site.client.post("/explore/coordinate", json=at(explored) | {"lat": LAT, "lon": LON})
    assert (answer.status_code, answer.json()["error"]) == (500, "internal")
    assert not hits(answer.text)


def test_a_wish_in_metres_is_answered_for_this_city(
    site: Live, store: BundleStore, city: Path, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = {"off_m": 500, "interval_s": 120, "home": True}
    home = site.client.post("/explore/start", json=wish).json()
    errors = laplace_errors(home["epsilon"])
    assert home["median_m"] == pytest.approx(1000 * errors.median_km) == pytest.approx(500, rel=0.02)
    assert home["hour_cost"] == pytest.approx(30 * home["epsilon"])
    assert home["home_m"] == pytest.approx({"1": 2000 / 3.3, "7": 203, "30": 98}, rel=0.01)
    assert home["fence"] == {"radius_km": 1, "home_m": fenced_m(1)}
    passing = site.client.post("/explore/start", json={**wish, "off_m": 1000, "home": False}).json()
    assert (passing["fence"], len(passing["commands"]), len(home["commands"])) == (None, 2, 3)
    stored = {served.path: served.sha256 for served in store.bundles}
    assert (home["nearest"], passing["nearest"]) == (stored[city], stored[bare])
    monkeypatch.chdir(tmp_path)
    for command in home["commands"]:
        done = CliRunner().invoke(app, shlex.split(command)[1:], input=f"{HERE[0]}, {HERE[1]}\n")
        assert done.exit_code == 0, done.output
    made = load_lattice("city.bundle")
    assert (made.lattice.epsilon, made.lattice.hold_m, made.needed_clock().interval_s) == (home["epsilon"], 50, 120)
    assert made.lattice.spec.plane.holds(*HERE)


def test_wishes_that_nothing_meets_are_refused(site: Live) -> None:
    near = site.client.post("/explore/start", json={"off_m": 50, "interval_s": 60, "home": True})
    assert (near.status_code, near.json()["error"]) == (422, "too_near")
    for wish in ({"off_m": 0}, {"off_m": 1e9}, {"interval_s": 0}, {"home": "perhaps"}, {"place": 1}):
        answer = site.client.post("/explore/start", json={"off_m": 500, "interval_s": 60, "home": True, **wish})
        assert answer.status_code == 400
