"""The web page in a real browser: bundles with zones, and what holds for every view."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from geoblanket.roads.graph import RoadGraph
from geoblanket.serve.service.bundles import BundleStore
from geoblanket.serve.service.explorer import Explorer
from tests.mechanism.bundles import load_zones
from tests.serve.service.browsing import (
    PATIENCE_MS,
    Open,
    centre,
    metres_of,
    needs_chromium,
    pixels,
    share_of,
    wait_until,
)
from tests.serve.service.city_lattices import save_city
from tests.serve.service.living import Live, live
from tests.serve.service.small_town import SmallTown

pytestmark = needs_chromium
AXE = files("axe_playwright_python") / "axe.min.js"
VIEWS = ("start", "explore", "home", "replay", "promise", "try")


@pytest.fixture(scope="module")
def explorer(small_town: SmallTown) -> Explorer:
    return Explorer(BundleStore(small_town.bundles), roads=small_town.roads, walks=small_town.walks)


@pytest.fixture(scope="module")
def site(small_town: SmallTown, explorer: Explorer) -> Iterator[Live]:
    with live(BundleStore(small_town.bundles), explorer=explorer) as found:
        yield found


def _marker(page: Page, name: str) -> Locator:
    return page.locator(f'.map-frame [aria-label^="{name} at place"]')


def _place(marker: Locator) -> int:
    label = marker.get_attribute("aria-label") or ""
    return int(label.rsplit(" ", 1)[1])


def test_it_shows_what_the_mechanism_does(open_page: Open, site: Live, explorer: Explorer) -> None:
    page = open_page(site.url)
    expect(page.locator("#title")).to_have_text("ε = 4 per km, w = 0")
    place, previous = _place(_marker(page, "Vehicle")), _place(_marker(page, "Previous place"))
    explored = explorer.zones[page.locator("#bundle").input_value()]
    expected = explored.outlook(place, previous, "all day")
    assert expected is not None
    assert metres_of(page, "Mean error of a report") == pytest.approx(expected["error_m"], abs=50)
    assert page.locator("#figures tr", has_text="The true place is reported").locator("td").inner_text().endswith("%")
    wait_until(page, lambda: share_of(page, "#0e6f8c") + share_of(page, "#07465a") > 0.001)
    wait_until(page, lambda: share_of(page, "#c3c9ce") > 0.005)  # roads


def test_another_bundle_is_chosen(open_page: Open, site: Live) -> None:
    page = open_page(site.url)
    words = page.locator("#bundle option").all_inner_texts()
    assert words == ["ε = 2 per km, w = 1", "ε = 4 per km, w = 0", "ε = 4 per km, w = 1"]
    for index, title in enumerate(words):
        page.locator("#bundle").select_option(index=index)
        expect(page.locator("#title")).to_have_text(title)
    figures = page.locator("#figures").inner_text()
    page.locator("#bundle").select_option(index=0)
    expect(page.locator("#figures")).not_to_have_text(figures)


def test_a_trip_is_replayed(open_page: Open, site: Live) -> None:
    page = open_page(site.url, "replay")
    expect(page.locator("#true-trip")).to_contain_text("true way")
    for name in ("True place", "Tracked", "Reported"):
        expect(page.locator(f'.map-frame [aria-label^="{name} at"]')).to_be_visible()
    expect(page.locator("#way-model")).to_contain_text("It also knows the roads, and how the vehicles drive")
    expect(page.locator("#way-figures tr", has_text="without any report").locator("td")).to_contain_text("m")
    expect(page.locator("#way-chart svg path.guess")).to_have_count(1)
    wait_until(page, lambda: share_of(page, "#ede2d8") > 0.02)  # the circle
    cost = page.locator("#way-figures tr", has_text="Cost so far").locator("td")
    whole = cost.inner_text()
    page.locator("#way-step").fill("0")
    expect(cost).not_to_have_text(whole)
    page.locator("#way-play").click()
    expect(page.locator("#way-play")).to_have_text("Pause")
    expect(page.locator("#way-words")).to_have_text(re.compile(r"^After ([4-9]|\d\d+) reports"))
    page.locator("#way-play").click()


def test_all_is_reached_with_the_keyboard(open_page: Open, site: Live) -> None:
    page = open_page(site.url)
    reached = []
    for _ in range(20):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("(({id, hash, className, name}) => id || hash || name || className)(document.activeElement)")
        )
    assert reached[:5] == ["skip", "#start", "#explore", "#replay", "#promise"]
    assert {"theme", "bundle", "first"} <= set(reached)
    vehicle = _marker(page, "Vehicle")
    vehicle.focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    x, before = centre(vehicle)[0], _place(vehicle)
    page.keyboard.press("ArrowLeft")
    expect(vehicle).not_to_have_attribute("aria-label", f"Vehicle at place {before}")
    assert centre(vehicle)[0] < x
    expect(page.locator("#where")).to_contain_text(f"Place {_place(vehicle)}, in zone")
    page.locator("#first").focus()
    page.keyboard.press("Space")
    expect(_marker(page, "Previous place")).to_have_count(0)
    expect(page.locator("#first")).to_be_checked()


@pytest.mark.parametrize(
    "screens",
    [
        [(1360, "light"), (390, "dark")],
        pytest.param([(1360, "dark"), (390, "light")], marks=pytest.mark.slow),
    ],
    ids=["light desk, dark phone", "dark desk, light phone"],
)
def test_nothing_keeps_anybody_out(
    browser: Browser, small_town: SmallTown, tmp_path: Path, screens: list[tuple[int, Literal["light", "dark"]]]
) -> None:
    """No serious finding of axe-core, contrast among them, in every view."""
    lat, lon = load_zones(small_town.bundles[0]).places_e7.mean(axis=0) / 1e7
    store = BundleStore([*small_town.bundles, save_city(tmp_path / "city.bundle", at=(lat, lon), hold_m=50)])
    explorer = Explorer(store, roads=small_town.roads, walks=small_town.walks)
    context = browser.new_context(bypass_csp=True, reduced_motion="reduce")  # axe is no part of the page
    with live(store, explorer=explorer) as found:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(found.url)
        page.add_script_tag(path=str(AXE))
        page.wait_for_selector("body[data-ready=true]", state="attached")
        wrong = []
        for bundle, views in ((0, VIEWS), (1, ("explore", "replay", "promise"))):
            page.evaluate("location.hash = 'explore'")
            page.locator("#bundle").select_option(index=bundle)
            for view in views:
                page.evaluate("view => { location.hash = view }", view)
                page.wait_for_selector(f"body[data-view={view}]")
                page.wait_for_load_state("networkidle")
                for width, scheme in screens:
                    page.set_viewport_size({"width": width, "height": 850})
                    page.emulate_media(color_scheme=scheme)
                    assert page.evaluate("document.documentElement.scrollWidth") == width
                    expect(page.locator(".maplibregl-ctrl-attrib").first).to_have_text("a synthetic city")
                    for finding in page.evaluate("axe.run({ resultTypes: ['violations'] })")["violations"]:
                        if finding["impact"] in ("serious", "critical"):
                            nodes = [node["html"][:200] for node in finding["nodes"]]
                            wrong.append((bundle, view, width, scheme, finding["id"], nodes))
        context.close()
    assert wrong == []


def test_names_and_credits_of_files_are_never_markup(open_page: Open, small_town: SmallTown, tmp_path: Path) -> None:
    odd, roads = tmp_path / "<img src=x onerror=alert(1)>.bundle", tmp_path / "odd.roads"
    shutil.copy(small_town.bundles[0], odd)
    replace(RoadGraph.load(small_town.roads), credit="<img src=y>").save(roads)
    store = BundleStore([odd])
    with live(store, explorer=Explorer(store, roads=roads)) as plain:  # no record, no walks
        page = open_page(plain.url, "promise")
        expect(page.locator("#promise-words")).to_contain_text("<img src=x")
        assert page.locator("#promise-words img").count() == 0
        page.goto(f"{plain.url}/#explore")
        expect(page.locator(".maplibregl-ctrl-attrib")).to_have_text("<img src=y>")
        expect(page.locator("#figures tr", has_text="Expected loss").locator("td")).to_have_text("–")
        expect(page.locator("nav a[href='#replay']")).to_be_hidden()
        assert re.search(r"\d+ k?m", page.locator("#figures").inner_text())


def test_bundles_that_are_not_on_the_map_are_counted(
    open_page: Open, site: Live, small_town: SmallTown, plain: Path, town: Path
) -> None:
    store = BundleStore([*small_town.bundles, plain, town])
    with live(store, explorer=Explorer(store)) as mixed:
        page = open_page(mixed.url)
        expect(page.locator("#left-out")).to_contain_text("2 more bundles are served")
        page.goto("about:blank")  # before its service stops
    assert open_page(site.url).locator("#left-out").is_hidden()


def test_a_service_without_places_says_so(browser: Browser, plain: Path) -> None:
    store = BundleStore([plain])
    with live(store, explorer=Explorer(store)) as found:
        page = browser.new_page()
        page.goto(found.url)
        expect(page.locator("#problem")).to_contain_text("no map to show")
        page.close()


def test_the_promise_is_in_words(open_page: Open, site: Live) -> None:
    page = open_page(site.url, "promise")
    expect(page.locator("#promise-words h1")).to_have_text("What is promised")
    text = page.locator("#promise-words").inner_text()
    for words in (
        "What it means",
        "What is disclosed",
        "What was learned from",
        "are promised nothing: the mechanisms were learned without privacy for those in the traces.",
        "What is not promised",
        "What reports add up to",
        "How it was verified",
        "ε = 4 per km",
    ):
        assert words in text
    expect(page.locator(".maps")).to_be_hidden()


def test_light_and_dark(open_page: Open, site: Live) -> None:
    page = open_page(site.url, dark=True)
    wait_until(page, lambda: bool(pixels(page).mean() < 100))
    page.locator("#theme").click()
    wait_until(page, lambda: bool(pixels(page).mean() > 180))
    page.wait_for_load_state("networkidle")
    page.reload()
    page.wait_for_selector("body[data-ready=true]", state="attached")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_a_click_and_a_drag_move_the_vehicle(open_page: Open, site: Live) -> None:
    page = open_page(site.url)
    vehicle, previous = _marker(page, "Vehicle"), _marker(page, "Previous place")
    before, figures = _place(vehicle), page.locator("#figures").inner_text()
    x, y = centre(vehicle)
    page.mouse.click(x - 130, y + 30)
    expect(vehicle).not_to_have_attribute("aria-label", f"Vehicle at place {before}")
    expect(page.locator("#where")).to_contain_text(f"Place {_place(vehicle)}, in zone")
    expect(page.locator("#figures")).not_to_have_text(figures)
    assert np.hypot(*np.subtract(centre(vehicle), (x - 130, y + 30))) < 120
    page.mouse.move(*centre(previous))
    page.mouse.down()
    page.mouse.move(x + 3, y - 2, steps=4)  # about where the vehicle was
    page.mouse.up()
    expect(previous).to_have_attribute("aria-label", f"Previous place at place {before}")
    assert centre(previous) == pytest.approx((x, y), abs=1.5)
