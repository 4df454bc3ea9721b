"""What the web page is told, against sums and commands that share no code with it."""

from __future__ import annotations

import gzip
import json
import logging
import shlex
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from geoblanket._geodesy import haversine_m
from geoblanket.cli.main import app
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.certainty import certainty, times_in_100
from geoblanket.mechanism.lattice.making import spec_over
from geoblanket.mechanism.promise import AtRest, fenced_m
from geoblanket.planning import Judges, Wishes, make_plan
from geoblanket.roads.graph import RoadGraph
from geoblanket.serve.service import settings
from geoblanket.serve.service.bundles import BundleStore
from geoblanket.serve.service.city_map import roads_geojson
from geoblanket.serve.service.explorer import Explorer
from geoblanket.serve.service.page import PAGE_POLICY
from geoblanket.serve.service.settings import MOST_LATTICES, Setting
from tests.serve.service.city_lattices import save_city
from tests.serve.service.living import Command, Live, live
from tests.serve.service.test_canary import LAT, LON, hits
from tests.towns import Town

SETTING = {"epsilon": 4.0, "interval_s": 60, "hold_m": 50.0, "fence_km": 1.0}
WISH = {"home_m": 350.0, "sure": 0.8, "road_m": None, "simulate": False}


@pytest.fixture(scope="module")
def explorer(small_town: Town) -> Explorer:
    """Plans are judged by few trips."""
    explorer = Explorer(BundleStore([]), roads=small_town.roads, walks=small_town.walks)
    explorer.__dict__["_judges"] = Judges.of_roads(small_town.roads, walks=small_town.walks, trips=40, order=1)
    return explorer


@pytest.fixture(scope="module")
def site(explorer: Explorer) -> Iterator[Live]:
    with live(BundleStore([]), explorer=explorer) as found:
        yield found


def life(**changes: Any) -> dict[str, Any]:
    return {"setting": SETTING, "home": None, "trip": None} | changes


def test_each_road_is_drawn_once(small_town: Town) -> None:
    graph = RoadGraph.load(small_town.roads)
    features = json.loads(roads_geojson(graph))["features"]
    ends = {
        frozenset([tuple(feature["geometry"]["coordinates"][0]), tuple(feature["geometry"]["coordinates"][-1])])
        for feature in features
    }
    points = np.round(np.column_stack([graph.lon, graph.lat]), 5).tolist()
    expected = {
        frozenset([tuple(points[source]), tuple(points[target])])
        for source, target in zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)
    }
    assert ends == expected
    assert len(features) == len(graph.one_of_each_road())
    assert {feature["properties"]["rank"] for feature in features} <= {0, 1, 2, 3}


def test_consequences_are_those_that_commands_print(
    site: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands on the page make a bundle with the same certainty, home and cost."""
    told = site.client.post("/explore/consequences", json=SETTING).json()
    monkeypatch.chdir(tmp_path)
    home = site.client.get("/explore/overview").json()["area"]
    for command in told["commands"]:
        done = CliRunner().invoke(app, shlex.split(command)[1:], input=f"{home[0]}, {home[1]}\n")
        assert done.exit_code == 0, done.output
    bundle = load_bundle("city.bundle")
    for what, reports in (("one report", 1), ("an hour on the road", 60), ("a month of nights at one of them", 30)):
        assert told["certainty"][what] == times_in_100(certainty(bundle, apart_m=100, reports=reports).right)
    assert told["found_m"] == AtRest(4.0, 60, 50).found_m
    assert told["fence"]["home_m"] == fenced_m(1.0)
    assert told["hour_cost"] == 240
    assert told["in_one_sentence"] == bundle.promise.in_one_sentence
    assert site.client.post("/explore/consequences", json=SETTING | {"fence_km": None}).json()["fence"] is None


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"epsilon": 0.09}, 400),
        ({"epsilon": 20.1}, 400),
        ({"epsilon": "4"}, 400),
        ({"epsilon": True}, 400),
        ({"interval_s": 9}, 400),
        ({"interval_s": 3601}, 400),
        ({"interval_s": 30.5}, 400),
        ({"hold_m": -1.0}, 400),
        ({"hold_m": 501.0}, 422),  # more than a report is off
        ({"hold_m": 0.5}, 422),  # less than what coordinates are rounded to
        ({"fence_km": 0.0}, 400),
        ({"fence_km": 10.1}, 400),
        ({"more": 1}, 400),
    ],
)
def test_settings_out_of_bounds_are_refused(site: Live, change: dict[str, Any], status: int) -> None:
    for path, asked in (("consequences", SETTING | change), ("life", life(setting=SETTING | change))):
        answer = site.client.post(f"/explore/{path}", json=asked)
        assert answer.status_code == status
        assert set(answer.json()) == {"error", "message"}
    assert site.client.post("/explore/bundle", json=SETTING | change).status_code == status
    query = {name: str(value) for name, value in (SETTING | change).items()}
    if change not in ({"epsilon": "4"}, {"epsilon": True}):  # a query has no types
        assert site.client.get("/explore/handout/drivers", params=query).status_code == status


def test_other_questions_out_of_bounds_are_refused(site: Live) -> None:
    for wrong in ({"home": [1, 2]}, {"home": {"lat": 91.0, "lon": 0.0}}, {"trip": -1}, {"trip": "x"}, {"way": 1}):
        assert site.client.post("/explore/life", json=life(**wrong)).status_code == 400
    assert site.client.post("/explore/life", json=life(trip=2**40)).json()["error"] == "no_such_trip"
    for wish in ({"sure": 0.5}, {"sure": 1.0}, {"home_m": 0.0}, {"road_m": -1.0}, {"apart_m": 0.0}, {"place": 1}):
        assert site.client.post("/explore/plan", json=WISH | wish).status_code == 400
    assert site.client.post("/explore/plan", json=WISH | {"home_m": 9000.0}).json()["error"] == "no_plan"
    assert site.client.get("/explore/handout/boss", params=SETTING).status_code == 400


def test_few_lattices_are_kept_and_each_is_made_once(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []

    def making(area: Any, *, epsilon: float) -> Any:
        made.append(epsilon)
        return original(area, epsilon=epsilon)

    original = spec_over
    monkeypatch.setattr(settings, "spec_over", making)
    lattices = settings.MadeLattices(explorer.lattices.area)
    for hold_m, interval_s in product((0.0, 50.0), (30, 60)):
        setting = Setting(epsilon=16.0, interval_s=interval_s, hold_m=hold_m)
        bundle, content = lattices.bundle(setting)
        assert load_bundle("made.bundle", content=content).sha256 == bundle.sha256  # it verifies
        assert (bundle.lattice.hold_m, bundle.needed_clock().interval_s) == (hold_m, interval_s)
    assert made == [16.0]
    for number in range(MOST_LATTICES + 1):
        lattices.promise(Setting(epsilon=17.0 + number / 10, interval_s=30, hold_m=0.0))
    lattices.promise(Setting(epsilon=16.0, interval_s=31, hold_m=0.0))
    assert made.count(16.0) == 2  # it was forgotten


def test_a_plan_says_what_the_command_says(site: Live, explorer: Explorer) -> None:
    first = site.client.post("/explore/plan", json=WISH).json()
    assert (first["simulated"], first["home"]["fence_radius_km"]) == (False, 0.62)
    assert first["recommended"]["on_the_road"] is None
    made = site.client.post("/explore/plan", json=WISH | {"simulate": True}).json()
    wishes = Wishes(home_m=350, sure=0.8)
    expected = make_plan(explorer._judges, wishes, grid=False, workers=1)
    assert made["simulated"]
    assert made["in_words"] == str(expected).split("\n")
    assert made["recommended"]["epsilon_per_km"] == expected.schedule.epsilon
    assert [wish["kept"] for wish in made["wishes"]] == [True, True]


def test_pages_to_hand_on_have_no_script(site: Live) -> None:
    for reader, words in (("drivers", "What your vehicle tells about you"), ("officer", "For the impact assessment")):
        answer = site.client.get(f"/explore/handout/{reader}", params=SETTING)
        assert words in answer.text
        assert "570 m" in answer.text
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert "script" not in answer.headers["Content-Security-Policy"]
        assert "<script" not in answer.text


def test_a_life_ends_at_home(site: Live, explorer: Explorer) -> None:
    answer = site.client.post("/explore/life", json=life()).json()
    drive, home = answer["drive"], answer["home"]
    count = len(drive["true"])
    assert drive["true"][-1] == pytest.approx(home, abs=1e-6)
    assert drive["true"][-2] == drive["true"][-1]  # it is parked
    assert [len(drive[part]) for part in ("times", "lines", "reports", "spent")] == [count] * 4
    assert drive["spent"][-1] < 4 * count  # some reports were held
    for (lon, lat), (true_lon, true_lat), off_m in zip(
        drive["tracked"]["at"], drive["true"], drive["tracked"]["error_m"], strict=True
    ):
        assert off_m == pytest.approx(float(haversine_m(true_lat, true_lon, lat, lon)), abs=0.5)
    fence = answer["fence"]
    # A fence measures in its frame, a plane in which distances are up to 1 % shorter than on the sphere.
    assert haversine_m(home[1], home[0], *fence["center"][::-1]) <= 1010
    assert fence["radius_m"] == 1302
    assert answer["fenced"]["error_m"][-1] > 2 * answer["bare"]["error_m"][-1]
    number, trip = next(iter(explorer.trips.items()))
    driven = site.client.post("/explore/life", json=life(trip=number)).json()
    assert len(driven["drive"]["true"]) == len(trip.in_slots(60).nodes)
    assert driven["drive"]["model"]["from"] == "roads and walks"


def test_without_roads_there_are_nights_only(tmp_path: Path) -> None:
    store = BundleStore([save_city(tmp_path / "city.bundle", hold_m=50)])
    explorer = Explorer(store)
    with live(store, explorer=explorer) as site:
        overview = site.client.get("/explore/overview").json()
        assert (overview["roads"], overview["setting"]["epsilon"], overview["setting"]["hold_m"]) == (False, 4, 50)
        assert site.client.get("/explore/roads").status_code == 404
        answer = site.client.post("/explore/life", json=life(home={"lat": 41.15, "lon": -8.6})).json()
        assert answer["drive"] is None
        assert answer["bare"]["error_m"][29] == pytest.approx(81, rel=0.3)
        assert site.client.post("/explore/plan", json=WISH | {"simulate": True}).json()["simulated"] is False
        pole = site.client.post("/explore/life", json=life(home={"lat": 89.0, "lon": 0.0}))
        assert (pole.status_code, pole.json()["error"]) == (422, "no_fence")


def test_a_service_without_a_city_says_so(plain: Path) -> None:
    store = BundleStore([plain])
    with live(store, explorer=Explorer(store)) as site:
        for answer in (site.client.get("/explore/overview"), site.client.post("/explore/consequences", json=SETTING)):
            assert (answer.status_code, answer.json()["error"]) == (404, "no_city")


def test_only_a_few_lives_run_at_once(site: Live, explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoblanket.serve.service.explorer._TURN_S", 0.1)
    with explorer._turn(), explorer._turn():
        answer = site.client.post("/explore/life", json=life())
        assert (answer.status_code, answer.json()["error"]) == (503, "overloaded")
        assert answer.headers["Retry-After"] == "1"


def test_files_that_do_not_belong_together_are_refused(small_town: Town, tmp_path: Path) -> None:
    graph = RoadGraph.load(small_town.roads)
    replace(graph, lat=graph.lat + 1.0).save(tmp_path / "away.roads")
    lat, lon = float(graph.lat.mean()), float(graph.lon.mean())
    store = BundleStore([save_city(tmp_path / "lattice.bundle", at=(lat, lon))])
    assert Explorer(store, roads=small_town.roads).roads is not None
    with pytest.raises(MismatchError, match="roads of another city"):
        Explorer(store, roads=tmp_path / "away.roads")
    with pytest.raises(InputError, match="Give the roads too"):
        Explorer(store, walks=small_town.walks)
    with pytest.raises(MismatchError, match="other roads"):
        Explorer(BundleStore([]), roads=tmp_path / "away.roads", walks=small_town.walks)


def test_zones_give_a_city_too(town: Path) -> None:
    overview = Explorer(BundleStore([town])).overview()
    (bundle,) = overview["bundles"]
    assert (bundle["name"], bundle["setting"]) == ("town.bundle", None)
    assert "In one sentence" in bundle["promise"]


def test_walks_are_shown_on_this_machine_alone(small_town: Town) -> None:
    arguments = ["--roads", str(small_town.roads), "--walks", str(small_town.walks)]
    result = CliRunner().invoke(app, ["serve", *arguments, "--host", "0.0.0.0"])  # noqa: S104 - it must be refused
    assert isinstance(result.exception, ParameterError)
    assert "loopback address" in str(result.exception)
    for arguments in ([], ["--roads", str(small_town.roads), "--ledger", "x.ledger"]):
        assert "at least one bundle" in str(CliRunner().invoke(app, ["serve", *arguments]).exception)


def test_trips_are_of_vehicles_that_the_model_did_not_see(explorer: Explorer, small_town: Town) -> None:
    from geoblanket.mobility.walks import Split, scan_walks, split_walks

    frame, _ = scan_walks(small_town.walks)
    parts = split_walks(frame, path=small_town.walks, part="held_out", split=Split())
    assert explorer.trips
    assert set(explorer.trips) <= set(parts.walks[parts.chosen].tolist())


def test_a_running_service_tells_no_coordinate_that_was_asked_about(tmp_path: Path) -> None:
    city = save_city(tmp_path / "city.bundle", at=(LAT + 0.01, LON + 0.01))
    asked = life(home={"lat": LAT, "lon": LON})
    with (
        Command([city, "--set", "access_log=true"]) as command,
        httpx.Client(base_url=command.url, timeout=60) as client,
    ):
        assert client.post("/explore/life", json=asked).status_code == 200
        for wrong in (asked | {"extra": LAT}, life(home={"lat": str(LAT), "lon": LON}), [LAT, LON], life(home=[LAT])):
            answer = client.post("/explore/life", json=wrong)
            assert answer.status_code == 400
            assert not hits(answer.text + str(answer.headers))
        client.get(f"/explore/life?lat={LAT}&lon={LON}")
        client.get(f"/explore/handout/drivers?lat={LAT}")
        assert not hits(client.get("/metrics").text + client.get("/explore/overview").text)
        _, written = command.stop()
    assert written.count("geoblanket.access") > 7
    assert not hits(written)


def test_the_log_of_a_fault_has_no_coordinate(
    site: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*place: Any, **_options: Any) -> None:
        raise ValueError(f"cannot place {place}")

    monkeypatch.setattr("geoblanket.serve.service.explorer.commute", fail)
    with caplog.at_level(logging.INFO):
        answer = site.client.post("/explore/life", json=life(home={"lat": LAT, "lon": LON}))
    assert (answer.status_code, answer.json()["error"]) == (500, "internal")
    assert not hits(answer.text)


def test_answers_of_the_service(site: Live) -> None:
    for path in ("/explore/roads", "/explore/scenery"):
        squeezed = site.client.get(path, headers={"Accept-Encoding": "gzip"})
        plain = site.client.get(path, headers={"Accept-Encoding": "identity"})
        assert squeezed.headers["Content-Encoding"] == "gzip"
        assert "Content-Encoding" not in plain.headers
        assert squeezed.json() == plain.json()
        assert len(gzip.compress(plain.content)) < len(plain.content) / 3
    kinds = {feature["properties"]["kind"] for feature in site.client.get("/explore/scenery").json()["features"]}
    assert kinds == {"street", "river"}


def test_only_files_of_the_page_are_handed_out(site: Live) -> None:
    page = site.client.get("/")
    assert page.headers["Content-Security-Policy"] == PAGE_POLICY
    assert page.headers["Content-Type"].startswith("text/html")
    for path in ("/map/maplibre-gl.js", "/page/main.js", "/device/index.js"):
        answer = site.client.get(path)
        assert "javascript" in answer.headers["Content-Type"]
        assert answer.headers["Content-Security-Policy"] == PAGE_POLICY
    names = ("../page.py", "..%2fpage.py", "%2e%2e/app.py", "/etc/passwd", "no.js", "index.html%00", ".", "")
    for folder, name in product(("page", "device", "map"), names):
        answer = site.client.get(f"/{folder}/{name}")
        assert (answer.status_code, answer.json()["error"]) == (404, "not_found")
    assert site.client.post("/page/main.js").json()["error"] == "wrong_method"
    assert "http://" not in page.text
    assert "https://" not in page.text


def test_a_file_that_the_browser_has_is_not_sent_again(site: Live) -> None:
    for path, accepted in product(("/", "/map/maplibre-gl.js"), ("gzip", "identity")):
        first = site.client.get(path, headers={"Accept-Encoding": accepted})
        tag = first.headers["ETag"]
        headers = {"Accept-Encoding": accepted, "If-None-Match": f'"x", W/{tag}'}
        again = site.client.get(path, headers=headers)
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
        assert again.headers["Content-Security-Policy"] == PAGE_POLICY
        sent = site.client.get(path, headers={"Accept-Encoding": accepted, "If-None-Match": '"x"'})
        assert (sent.status_code, sent.content) == (200, first.content)
    squeezed = site.client.get("/map/maplibre-gl.js", headers={"Accept-Encoding": "gzip"})
    assert squeezed.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in squeezed.headers["Vary"]
