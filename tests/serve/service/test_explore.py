"""What the web page is told, against loops and sums that share no code with it."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from geoblanket._geodesy import haversine_m
from geoblanket.cli.main import app
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.roads.graph import RoadGraph
from geoblanket.serve.service.bundles import BundleStore
from geoblanket.serve.service.city_map import roads_geojson
from geoblanket.serve.service.explorer import ExploredZones, Explorer
from geoblanket.serve.service.page import PAGE_POLICY
from geoblanket.serve.service.replay import replay
from tests.blanket.worlds import square, wandering, write_world
from tests.serve.service.city_lattices import save_city
from tests.serve.service.living import Live, live
from tests.serve.service.small_town import SmallTown

REGIME = "all day"


@pytest.fixture(scope="module")
def store(small_town: SmallTown) -> BundleStore:
    return BundleStore(small_town.bundles)


@pytest.fixture(scope="module")
def explorer(store: BundleStore, small_town: SmallTown) -> Explorer:
    return Explorer(store, roads=small_town.roads, walks=small_town.walks)


@pytest.fixture(scope="module")
def site(store: BundleStore, explorer: Explorer) -> Iterator[Live]:
    with live(store, explorer=explorer) as found:
        yield found


@pytest.fixture(scope="module")
def explored(explorer: Explorer) -> ExploredZones:
    return next(explored for explored in explorer.zones.values() if explored.served.facts.epsilon_per_km == [4])


def _apart_m(explored: ExploredZones, one: int, other: int) -> float:
    (lat, lon), (other_lat, other_lon) = explored.bundle.places_e7[[one, other]] * 1e-7
    return float(haversine_m(lat, lon, other_lat, other_lon))


def _question(explored: ExploredZones, **changes: Any) -> dict[str, Any]:
    asked = {"bundle": explored.bundle.sha256, "regime": REGIME, "place": 0, "previous": 1}
    return {**asked, **changes}


def test_each_road_is_drawn_once(small_town: SmallTown) -> None:
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


def test_trips_are_of_vehicles_that_the_build_did_not_see(explorer: Explorer, small_town: SmallTown) -> None:
    from geoblanket.mobility.walks import Split, scan_walks, split_walks

    frame, _ = scan_walks(small_town.walks)
    parts = split_walks(frame, path=small_town.walks, part="held_out", split=Split())
    assert explorer.trips
    assert set(explorer.trips) <= set(parts.walks[parts.chosen].tolist())


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"place": 10_000}, 422),
        ({"previous": 10_000}, 422),
        ({"place": -1}, 400),
        ({"place": "0"}, 400),
        ({"place": True}, 400),
        ({"place": 1.5}, 400),
        ({"regime": "no such regime"}, 422),
        ({"bundle": "0" * 64}, 404),
        ({"bundle": "../../etc/passwd"}, 400),
        ({"more": 1}, 400),
        ({"place": 2**70}, 400),
    ],
)
def test_wrong_questions_are_refused(site: Live, explored: ExploredZones, changes: dict[str, Any], status: int) -> None:
    answer = site.client.post("/explore/place", json=_question(explored, **changes))
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "message"}


def test_places_that_are_looked_at_are_not_logged(
    site: Live, explored: ExploredZones, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        site.client.post("/explore/place", json=_question(explored, place=23, previous=37))
    spoken = [record.getMessage() for record in caplog.records if record.name.startswith("geoblanket")]
    assert not any("23" in line.split() or "37" in line.split() for line in spoken)


def test_files_that_do_not_belong_together_are_refused(
    store: BundleStore, small_town: SmallTown, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="Give the roads too"):
        Explorer(store, walks=small_town.walks)
    town = RoadGraph.load(small_town.roads)
    grid = square()
    graph = replace(
        grid,
        lat=np.interp(grid.lat, [grid.lat.min(), grid.lat.max()], [town.lat.min(), town.lat.max()]),
        lon=np.interp(grid.lon, [grid.lon.min(), grid.lon.max()], [town.lon.min(), town.lon.max()]),
    )
    walks, roads = write_world(tmp_path, graph, wandering(graph, side=12, walks=40, steps=12, seed=2))
    with pytest.raises(MismatchError, match="other places"):
        Explorer(store, roads=roads, walks=walks)
    with pytest.raises(MismatchError, match="other roads"):
        Explorer(store, roads=roads, walks=small_town.walks)


def test_roads_of_another_city_are_refused(store: BundleStore, small_town: SmallTown, tmp_path: Path) -> None:
    graph = RoadGraph.load(small_town.roads)
    replace(graph, lat=graph.lat + 1.0).save(tmp_path / "away.roads")
    lat, lon = float(graph.lat.mean()), float(graph.lon.mean())
    for served in (store, BundleStore([save_city(tmp_path / "lattice.bundle", at=(lat, lon))])):
        assert Explorer(served, roads=small_town.roads).roads is not None
        with pytest.raises(MismatchError, match="roads of another city"):
            Explorer(served, roads=tmp_path / "away.roads")


def test_bundles_without_or_with_other_places_are_left_out(small_town: SmallTown, plain: Path, town: Path) -> None:
    explorer = Explorer(BundleStore([plain, *small_town.bundles, town]))
    overview = explorer.overview()
    assert len(overview["bundles"]) == 3
    assert overview["left_out"] == 2
    assert overview["trips"] == []
    assert explorer.roads is None


def test_walks_are_shown_on_this_machine_alone(small_town: SmallTown) -> None:
    arguments = [str(small_town.bundles[0]), "--roads", str(small_town.roads), "--walks", str(small_town.walks)]
    result = CliRunner().invoke(app, ["serve", *arguments, "--host", "0.0.0.0"])  # noqa: S104 - it must be refused
    assert isinstance(result.exception, ParameterError)
    assert "loopback address" in str(result.exception)


def test_what_is_reported_is_the_row_of_the_bundle(explored: ExploredZones) -> None:
    bundled = next(part for part in explored.bundle if part.regime == REGIME)
    for place, previous in bundled.histories[:: len(bundled.histories) // 20].tolist():
        listed = (bundled.histories == [place, previous]).all(axis=1)
        weights = bundled.mechanism.weights[bundled.history_rows[listed][0]]
        outlook = explored.outlook(place, previous, REGIME)
        assert outlook is not None
        chances = outlook["probability"]
        assert chances == pytest.approx([int(weight) / 2**62 for weight in weights])
        errors = [_apart_m(explored, place, output) for output in bundled.output_places.tolist()]
        assert outlook["error_m"] == pytest.approx(sum(p * e for p, e in zip(chances, errors, strict=True)))
        median = outlook["median_error_m"]
        assert sum(p for p, e in zip(chances, errors, strict=True) if e <= median + 1e-6) >= 0.5
        assert sum(p for p, e in zip(chances, errors, strict=True) if e < median - 1e-6) < 0.5
        assert outlook["exact"] == pytest.approx(chances[outlook["outputs"].index(place)])


def test_a_trip_is_replayed_and_tracked(site: Live, explored: ExploredZones, explorer: Explorer) -> None:
    number, trip = max(explorer.trips.items(), key=lambda item: len(item[1].nodes))
    asked = {"bundle": explored.bundle.sha256, "lat": 0.0, "lon": 0.0, "way": number}
    answer = site.client.post("/explore/replay", json=asked).json()
    count, graph = len(trip.nodes), explorer.graph
    assert graph is not None
    assert np.array(answer["true"]) == pytest.approx(
        np.column_stack([graph.lon[trip.nodes], graph.lat[trip.nodes]]), abs=1e-6
    )
    tracked = answer["tracked"]
    assert [len(tracked[part]) for part in ("at", "radius_m", "error_m")] == [count] * 3
    for at, error_m in ((tracked["at"], tracked["error_m"]), (answer["reports"], answer["error_m"])):
        for (lon, lat), (true_lon, true_lat), off_m in zip(at, answer["true"], error_m, strict=True):
            assert off_m == pytest.approx(float(haversine_m(true_lat, true_lon, lat, lon)), abs=0.5)
    assert len(answer["lines"]) == count
    assert answer["model"]["from"] == "roads and walks"
    costs = explored.bundle.costs
    assert np.diff(answer["spent"]) == pytest.approx([costs.other / 1e6] * (count - 1))
    again = [site.client.post("/explore/replay", json=asked).json()["reports"] for _ in range(3)]
    assert any(reports != answer["reports"] for reports in again)
    for way, error in ((2**40, "no_such_trip"), ("drive", "no_lattice")):
        assert site.client.post("/explore/replay", json={**asked, "way": way}).json()["error"] == error
    for wrong in (-1, "walk", None, 1.5):
        assert site.client.post("/explore/replay", json={**asked, "way": wrong}).status_code == 400


def test_reports_help_a_recipient_who_tracks(explorer: Explorer) -> None:
    """On the whole of some trips, reports tell more than nothing does, and a larger ε more yet."""
    assert explorer.graph is not None
    errors = {}
    for explored in explorer.zones.values():
        model = explorer.motion.of(explored.bundle)
        assert model is not None
        replays = [replay(explored.bundle, explorer.graph, trip, model) for trip in list(explorer.trips.values())[:12]]
        off = np.concatenate([each["tracked"]["error_m"] for each in replays])
        radius = np.concatenate([each["tracked"]["radius_m"] for each in replays])
        assert off.mean() < replays[0]["without_m"]
        assert 0.75 < np.mean(off <= radius) < 0.99
        errors[explored.served.facts.epsilon_per_km[-1]] = off.mean()
    assert errors[4.0] < errors[2.0]


def test_answers_of_the_service(site: Live, explored: ExploredZones) -> None:
    overview = site.client.get("/explore/overview").json()
    assert len(overview["bundles"]) == 3
    assert len(overview["places"]) == len(explored.bundle.places_e7)
    assert overview["left_out"] == 0
    outlook = site.client.post("/explore/place", json=_question(explored)).json()
    assert sum(outlook["probability"]) == pytest.approx(1)
    assert outlook["unit"] == "km"
    assert outlook["loss"] >= outlook["lower_bound"] > 0
    roads = site.client.get("/explore/roads", headers={"Accept-Encoding": "gzip"})
    plain = site.client.get("/explore/roads", headers={"Accept-Encoding": "identity"})
    assert roads.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert roads.json() == plain.json()
    assert len(gzip.compress(plain.content)) < len(plain.content) / 3


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
