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
import shapely
from typer.testing import CliRunner

from geoblanket._geodesy import haversine_m
from geoblanket.cli.main import app
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.release.budget import Budget
from geoblanket.roads.graph import RoadGraph
from geoblanket.service.explore import PAGE_POLICY
from geoblanket.service.explore_bundle import ExploredBundle, ZoneView
from geoblanket.service.explore_map import PlaceCells, roads_geojson
from geoblanket.service.explore_replay import replay
from geoblanket.service.explorer import Explorer, Prior
from geoblanket.service.store import BundleStore
from tests.blanket.worlds import square, wandering, write_world
from tests.service.city_lattices import save_city
from tests.service.living import Live, live
from tests.service.small_town import SmallTown

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
def explored(explorer: Explorer) -> ExploredBundle:
    return next(explored for explored in explorer.bundles.values() if explored.facts.epsilon_per_km == [4])


@pytest.fixture(scope="module")
def view(explored: ExploredBundle) -> ZoneView:
    view = explored.view(0, REGIME)
    assert view is not None
    return view


def _apart_m(explored: ExploredBundle, one: int, other: int) -> float:
    (lat, lon), (other_lat, other_lon) = explored.bundle.places_e7[[one, other]] * 1e-7
    return float(haversine_m(lat, lon, other_lat, other_lon))


def _question(explored: ExploredBundle, **changes: Any) -> dict[str, Any]:
    asked = {"bundle": explored.bundle.sha256, "regime": REGIME, "place": 0, "previous": 1, "prior": "equal"}
    return {**asked, **changes}


def test_every_place_lies_in_its_own_cell_and_cells_do_not_overlap(explored: ExploredBundle) -> None:
    features = json.loads(PlaceCells(explored.bundle.places_e7).geojson())["features"]
    cells = {feature["id"]: shapely.Polygon(feature["geometry"]["coordinates"][0]) for feature in features}
    assert list(cells) == list(range(len(explored.bundle.places_e7)))
    for place, (lat, lon) in enumerate(explored.bundle.places_e7 / 1e7):
        assert cells[place].contains(shapely.Point(lon, lat))
    together = shapely.union_all(list(cells.values()))
    assert together.area == pytest.approx(sum(cell.area for cell in cells.values()), rel=1e-4)


def test_borders_go_around_the_cells_of_each_zone(explored: ExploredBundle) -> None:
    places = PlaceCells(explored.bundle.places_e7)
    features = json.loads(places.geojson())["features"]
    cells = [shapely.Polygon(feature["geometry"]["coordinates"][0]) for feature in features]
    lines = json.loads(places.borders(explored.zone))["features"][0]["geometry"]["coordinates"]
    drawn = shapely.union_all(shapely.MultiLineString(lines).buffer(1e-5))
    for zone in range(len(explored.facts.zones)):
        inside = shapely.union_all([cells[place].buffer(2e-6) for place in np.flatnonzero(explored.zone == zone)])
        assert drawn.contains(inside.buffer(-2e-6).exterior)
    assert shapely.MultiLineString(lines).length < sum(cell.exterior.length for cell in cells) / 2


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


def test_what_is_reported_is_the_row_of_the_bundle(explored: ExploredBundle, view: ZoneView) -> None:
    bundled = view.bundled
    for place, previous in bundled.histories[:: len(bundled.histories) // 20].tolist():
        listed = (bundled.histories == [place, previous]).all(axis=1)
        weights = bundled.mechanism.weights[bundled.history_rows[listed][0]]
        outlook = view.outlook(place, previous)
        assert outlook.probability == pytest.approx([int(weight) / 2**62 for weight in weights])
        errors = [_apart_m(explored, place, output) for output in bundled.output_places.tolist()]
        assert outlook.error_m == pytest.approx(sum(p * e for p, e in zip(outlook.probability, errors, strict=True)))
        within = sum(p for p, e in zip(outlook.probability, errors, strict=True) if e <= outlook.median_error_m + 1e-6)
        assert within >= 0.5
        below = sum(p for p, e in zip(outlook.probability, errors, strict=True) if e < outlook.median_error_m - 1e-6)
        assert below < 0.5
        assert outlook.exact == pytest.approx(outlook.probability[bundled.output_places.tolist().index(place)])


@pytest.mark.parametrize("previous", [None, 6])
def test_conclusions_follow_bayes_rule_and_keep_the_promise(
    explored: ExploredBundle, view: ZoneView, previous: int | None
) -> None:
    regime = view if previous is not None else explored.view(0, "start")
    assert regime is not None
    prior = np.random.default_rng(3).dirichlet(np.ones(len(regime.places)))
    total = 0.0
    for output in regime.bundled.output_places.tolist():
        chance = [
            regime.outlook(place, previous).probability[regime.bundled.output_places == output][0]
            for place in regime.places.tolist()
        ]
        joint = [p * c for p, c in zip(prior, chance, strict=True)]
        conclusion = regime.conclude(output, previous, prior)
        assert conclusion.after == pytest.approx([one / sum(joint) for one in joint])
        expected = {
            guess: sum(
                a * _apart_m(explored, guess, place)
                for a, place in zip(conclusion.after, conclusion.places, strict=True)
            )
            for guess in regime.places.tolist()
        }
        assert conclusion.guess == min(expected, key=lambda guess: expected[guess])
        assert conclusion.error_m == pytest.approx(expected[conclusion.guess])
        total += sum(joint) * conclusion.error_m
        shift = conclusion.after / conclusion.before
        for one, other in product(range(len(prior)), repeat=2):
            bound = (
                explored.facts.epsilon_per_km[-1]
                * _apart_m(explored, int(conclusion.places[one]), int(conclusion.places[other]))
                / 1000
            )
            assert shift[one] <= shift[other] * np.exp(bound) * (1 + 1e-9)
    assert regime.recipient_error_m(previous, prior) == pytest.approx(total)


def test_figures_stand_beside_those_without_a_report(
    site: Live, explored: ExploredBundle, explorer: Explorer, view: ZoneView
) -> None:
    assert explorer.traffic is not None
    lat, lon = explored.bundle.places_e7.T / 1e7
    between = haversine_m(lat[:, None], lon[:, None], lat, lon)
    asked_of: list[tuple[Prior, int | None]] = [("equal", 6), ("traffic", 6), ("traffic", None)]
    for prior, previous in asked_of:
        anywhere = np.ones(len(lat)) / len(lat)
        if prior == "traffic":
            anywhere = explorer.traffic.share if previous is None else explorer.traffic.next_place.toarray()[previous]
        here = explorer.prior(prior, view, previous)
        guess = int((between @ anywhere).argmin())
        asked = _question(explored, prior=prior, previous=previous, regime=REGIME if previous is not None else "start")
        figures = site.client.post("/explore/outlook", json=asked).json()
        assert figures["unreported_error_m"] == pytest.approx(between[guess, view.places] @ here, rel=1e-6)
        alone = (between[np.ix_(view.places, view.places)] @ here).min()
        assert figures["zone_error_m"] == pytest.approx(alone, rel=1e-6)
        assert figures["recipient_error_m"] <= figures["zone_error_m"] <= figures["unreported_error_m"] * (1 + 1e-9)


def test_a_replay_keeps_to_its_budget(explored: ExploredBundle, explorer: Explorer) -> None:
    places, model = explorer.places, explorer.motion.of(explored.bundle)
    assert model is not None
    assert places is not None
    trip = max(explorer.trips.values(), key=lambda trip: len(trip.times))
    cost = explored.bundle.costs.other / 1e6
    budget = Budget(explored.bundle.costs.start / 1e6 + 4 * cost, 3600)
    replayed = replay(trip, explored, places, model, budget=budget)
    made = [place is not None for place in replayed.released]
    assert made == [True] * 5 + [False] * (len(trip.times) - 5)
    assert replayed.left[:5] == pytest.approx([4 * cost, 3 * cost, 2 * cost, cost, 0])
    for true, place in zip(trip.places.tolist()[:5], replayed.released[:5], strict=True):
        assert place is not None
        assert explored.zone[place] == explored.zone[true]
    # Without reports the tracker knows less and less.
    assert replayed.tracked.radius_m[-1] > replayed.tracked.radius_m[4]
    again = [replay(trip, explored, places, model, budget=budget) for _ in range(5)]
    assert len({tuple(each.released) for each in again}) > 1


def test_the_service_answers_with_a_tracked_trip(site: Live, explored: ExploredBundle, explorer: Explorer) -> None:
    trip = max(explorer.trips.values(), key=lambda trip: len(trip.times))
    asked = {"bundle": explored.bundle.sha256, "trip": trip.number, "budget": 1000.0}
    answer = site.client.post("/explore/replay", json=asked).json()
    count = len(trip.times)
    assert answer["true"] == trip.places.tolist()
    for name in ("tracked", "zones", "without"):
        assert [len(answer[name][part]) for part in ("at", "radius_m", "error_m")] == [count] * 3
    lat, lon = explored.bundle.places_e7.T / 1e7
    (first_lon, first_lat), first = answer["tracked"]["at"][0], answer["true"][0]
    error = haversine_m(lat[first], lon[first], first_lat, first_lon)
    assert answer["tracked"]["error_m"][0] == pytest.approx(float(error), abs=0.2)
    assert len(answer["lines"]) == count
    assert answer["model"]["from"] == "roads and walks"
    for place, true, error_m in zip(answer["released"], answer["true"], answer["error_m"], strict=True):
        assert (error_m is None) == (place is None)
        assert error_m is None or error_m == pytest.approx(_apart_m(explored, true, place), abs=0.2)


def test_reports_help_a_recipient_who_tracks(explorer: Explorer) -> None:
    """On the whole of some trips, reports tell more than zones do, zones more than nothing, and a larger ε more yet."""
    places = explorer.places
    assert places is not None
    errors = {}
    for explored in explorer.bundles.values():
        model = explorer.motion.of(explored.bundle)
        assert model is not None
        off: dict[str, list[float]] = {"tracked": [], "from_zones": [], "unreported": []}
        held = []
        for trip in list(explorer.trips.values())[:12]:
            replayed = replay(trip, explored, places, model, budget=Budget(1e6, 3600))
            lat, lon = places.lat[trip.places], places.lon[trip.places]
            for name, some in off.items():
                estimates = getattr(replayed, name)
                some.extend(haversine_m(lat, lon, estimates.lat, estimates.lon).tolist())
            held.extend((np.array(off["tracked"][-len(lat) :]) <= replayed.tracked.radius_m).tolist())
        means = {name: float(np.mean(some)) for name, some in off.items()}
        assert means["tracked"] < means["from_zones"] < means["unreported"]
        assert 0.75 < np.mean(held) < 0.99
        errors[explored.facts.epsilon_per_km[-1]] = means["tracked"]
    assert errors[4.0] < errors[2.0]


def test_trips_are_of_vehicles_that_the_build_did_not_see(explorer: Explorer, small_town: SmallTown) -> None:
    from geoblanket.mobility.walks import Split, scan_walks, split_walks

    frame, _ = scan_walks(small_town.walks)
    parts = split_walks(frame, path=small_town.walks, part="held_out", split=Split())
    assert explorer.trips
    assert set(explorer.trips) <= set(parts.walks[parts.chosen].tolist())


def test_answers_of_the_service(site: Live, explored: ExploredBundle) -> None:
    overview = site.client.get("/explore/overview").json()
    assert len(overview["bundles"]) == 3
    assert len(overview["places"]) == len(explored.bundle.places_e7)
    assert overview["left_out"] == 0
    outlook = site.client.post("/explore/outlook", json=_question(explored)).json()
    assert sum(outlook["probability"]) == pytest.approx(1)
    assert outlook["unit"] == "km"
    assert outlook["loss"] >= outlook["lower_bound"] > 0
    choices = site.client.post("/explore/choices", json={k: v for k, v in _question(explored).items() if k != "bundle"})
    assert {row["bundle"] for row in choices.json()["choices"]} == {row["sha256"] for row in overview["bundles"]}
    concluded = site.client.post("/explore/conclusion", json=_question(explored, output=None)).json()
    assert sum(concluded["after"]) == pytest.approx(1)
    assert concluded["output"] in outlook["outputs"]
    roads = site.client.get("/explore/roads", headers={"Accept-Encoding": "gzip"})
    plain = site.client.get("/explore/roads", headers={"Accept-Encoding": "identity"})
    assert roads.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert roads.json() == plain.json()
    assert len(gzip.compress(plain.content)) < len(plain.content) / 3


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
        ({"prior": "something"}, 400),
        ({"more": 1}, 400),
        ({"place": 2**70}, 400),
    ],
)
def test_wrong_questions_are_refused(
    site: Live, explored: ExploredBundle, changes: dict[str, Any], status: int
) -> None:
    answer = site.client.post("/explore/outlook", json=_question(explored, **changes))
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "message"}


def test_wrong_reports_trips_and_budgets_are_refused(site: Live, explored: ExploredBundle, explorer: Explorer) -> None:
    elsewhere = int(np.flatnonzero(explored.zone != explored.zone[0])[0])
    answer = site.client.post("/explore/conclusion", json=_question(explored, output=elsewhere))
    assert answer.json()["error"] == "no_such_report"
    trip = {"bundle": explored.bundle.sha256, "trip": next(iter(explorer.trips)), "budget": 1000.0}
    assert site.client.post("/explore/replay", json=trip).status_code == 200
    assert site.client.post("/explore/replay", json={**trip, "trip": 2**40}).json()["error"] == "no_such_trip"
    assert site.client.post("/explore/replay", json={**trip, "budget": 0.1}).json()["error"] == "no_budget"
    for budget in (-1, 0, 1e12):
        assert site.client.post("/explore/replay", json={**trip, "budget": budget}).status_code == 400


def test_only_files_of_the_page_are_handed_out(site: Live) -> None:
    page = site.client.get("/")
    assert page.headers["Content-Security-Policy"] == PAGE_POLICY
    assert page.headers["Content-Type"].startswith("text/html")
    assert site.client.get("/page/maplibre-gl.js").headers["Content-Type"].startswith("text/javascript")
    for name in ("../explore.py", "..%2fexplore.py", "%2e%2e/app.py", "/etc/passwd", "no.js", "index.html%00", "."):
        assert site.client.get(f"/page/{name}").status_code == 404
    assert "http://" not in page.text
    assert "https://" not in page.text


@pytest.mark.parametrize("accepted", ["gzip", "identity"])
def test_a_file_that_the_browser_has_is_not_sent_again(site: Live, accepted: str) -> None:
    first = site.client.get("/page/maplibre-gl.js", headers={"Accept-Encoding": accepted})
    tag = first.headers["ETag"]
    again = site.client.get(
        "/page/maplibre-gl.js", headers={"Accept-Encoding": accepted, "If-None-Match": f'"x", W/{tag}'}
    )
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
    assert again.headers["Content-Security-Policy"] == PAGE_POLICY
    other = {"gzip": "identity", "identity": "gzip"}[accepted]
    for headers in (
        {"Accept-Encoding": accepted, "If-None-Match": '"x"'},
        {"Accept-Encoding": other, "If-None-Match": tag},
    ):
        sent = site.client.get("/page/maplibre-gl.js", headers=headers)
        assert (sent.status_code, sent.content) == (200, first.content)


def test_places_that_are_looked_at_are_not_logged(
    site: Live, explored: ExploredBundle, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        site.client.post("/explore/outlook", json=_question(explored, place=23, previous=37))
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
