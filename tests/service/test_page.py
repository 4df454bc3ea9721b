"""The web page in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import io
import itertools
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, Request, expect, sync_playwright

from geoblanket._arrays import Indices
from geoblanket.mechanism import load_bundle
from geoblanket.roads.graph import RoadGraph
from geoblanket.service.explorer import Explorer
from geoblanket.service.store import BundleStore
from tests.service.city_lattices import save_city
from tests.service.living import Live, live
from tests.service.small_town import SmallTown
from tests.service.test_tracking import PLAN

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium; install it, for example with: apt-get install chromium"
)

FLAGS = [
    "--no-sandbox",  # tests may run as root, in a container
    "--use-angle=swiftshader",  # WebGL without a graphics card
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

AXE = files("axe_playwright_python") / "axe.min.js"

PATIENCE_MS = 120_000
"""On a busy machine the emulated graphics card takes its time."""
LEFT = "net::ERR_ABORTED"
"""The page was left before an answer came."""

expect.set_options(timeout=PATIENCE_MS)

VIEWS = ("start", "explore", "compare", "replay", "promise")

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def explorer(small_town: SmallTown) -> Explorer:
    return Explorer(BundleStore(small_town.bundles), roads=small_town.roads, walks=small_town.walks)


@pytest.fixture(scope="module")
def site(small_town: SmallTown, explorer: Explorer) -> Iterator[Live]:
    with live(BundleStore(small_town.bundles), explorer=explorer) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


def _note_failure(request: Request, wrong: list[str]) -> None:
    if request.failure != LEFT:
        wrong.append(f"{request.url}: {request.failure}")


@pytest.fixture
def open_page(browser: Browser, site: Live) -> Iterator[Open]:
    """Open the page; afterwards, nothing may have gone wrong in it, and nothing been asked of another host."""
    wrong: list[str] = []
    contexts = []

    def opened(
        view: str = "explore", *, width: int = 900, height: int = 800, dark: bool = False, url: str = ""
    ) -> Page:
        address = url or site.url
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("requestfailed", lambda request: _note_failure(request, wrong))
        page.on("response", lambda answer: wrong.append(answer.url) if answer.status >= 400 else None)
        page.on("request", lambda request: wrong.append(request.url) if not _is_own(request.url, address) else None)
        page.goto(f"{address}/#{view}")
        page.wait_for_selector("body[data-ready=true]", state="attached")
        return page

    yield opened
    wrong_in_use = list(wrong)  # a page that is closed may give up requests
    for context in contexts:
        context.close()
    assert not wrong_in_use


def _is_own(url: str, address: str) -> bool:
    return urlsplit(url).scheme in ("blob", "data") or url.startswith(f"{address}/")


def _marker(page: Page, name: str, frame: str = "a") -> Locator:
    return page.locator(f'#frame-{frame} [aria-label^="{name} at place"]')


def _place(marker: Locator) -> int:
    label = marker.get_attribute("aria-label") or ""
    return int(label.rsplit(" ", 1)[1])


def _centre(element: Locator) -> tuple[float, float]:
    box = element.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def _pixels(page: Page, frame: str = "#map-a") -> np.ndarray[tuple[int, int, int], np.dtype[np.int16]]:
    picture = page.locator(frame).screenshot()
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(np.int16)


def _share_of(page: Page, colour: str) -> float:
    """The share of the map with about this colour, given as #rrggbb."""
    wanted = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)])
    return float((np.abs(_pixels(page) - wanted).max(axis=2) < 24).mean())


def _wait_until(page: Page, holds: Callable[[], bool]) -> None:
    """Wait for what only a picture shows, however long the machine takes to draw it."""
    end = time.monotonic() + PATIENCE_MS / 1000
    while not holds():
        assert time.monotonic() < end, "what was waited for did not come"
        page.wait_for_timeout(100)


def _metres(page: Page, row: str) -> float:
    text = page.locator("#figures tr", has_text=row).locator("td").first.inner_text()
    value, unit = text.split()
    return float(value) * {"m": 1, "km": 1000}[unit]


def test_it_shows_what_the_mechanism_does(open_page: Open, explorer: Explorer) -> None:
    page = open_page()
    expect(page.locator("#title-a")).to_have_text("ε = 2 per km, w = 1")
    place, previous = _place(_marker(page, "Vehicle")), _place(_marker(page, "Previous place"))
    explored = next(explored for explored in explorer.bundles.values() if explored.facts.epsilon_per_km == [2])
    view = explored.view(place, "all day")
    assert view is not None
    expected = view.outlook(place, previous)
    assert _metres(page, "Mean error of a report") == pytest.approx(expected.error_m, abs=50)
    assert page.locator("#figures tr", has_text="The true place is reported").locator("td").inner_text().endswith("%")
    _wait_until(page, lambda: _share_of(page, "#0e6f8c") + _share_of(page, "#07465a") > 0.005)
    _wait_until(page, lambda: _share_of(page, "#c3c9ce") > 0.005)  # roads


def test_a_click_and_a_drag_move_the_vehicle(open_page: Open) -> None:
    page = open_page()
    vehicle, previous = _marker(page, "Vehicle"), _marker(page, "Previous place")
    before, figures = _place(vehicle), page.locator("#figures").inner_text()
    x, y = _centre(vehicle)
    page.mouse.click(x - 130, y + 30)
    expect(vehicle).not_to_have_attribute("aria-label", f"Vehicle at place {before}")
    expect(page.locator("#where")).to_contain_text(f"Place {_place(vehicle)}, in zone")
    expect(page.locator("#figures")).not_to_have_text(figures)
    assert np.hypot(*np.subtract(_centre(vehicle), (x - 130, y + 30))) < 120
    page.mouse.move(*_centre(previous))
    page.mouse.down()
    page.mouse.move(x + 3, y - 2, steps=4)  # about where the vehicle was
    page.mouse.up()
    expect(previous).to_have_attribute("aria-label", f"Previous place at place {before}")
    assert _centre(previous) == pytest.approx((x, y), abs=1.5)


def test_sliders_choose_among_the_bundles(open_page: Open) -> None:
    page = open_page()
    before = _metres(page, "Mean error of a report")
    page.locator("#epsilon-a").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#title-a")).to_have_text("ε = 4 per km, w = 1")
    expect(page.locator("#epsilon-a")).to_have_attribute("aria-valuetext", "4 per kilometre")
    expect(page.locator("tr.chosen")).to_contain_text("ε = 4")
    page.locator("#weight-a").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#title-a")).to_have_text("ε = 4 per km, w = 0")
    page.locator("#epsilon-a").focus()
    page.keyboard.press("ArrowLeft")  # there is no bundle with ε = 2 and w = 0
    expect(page.locator("#title-a")).to_have_text("ε = 2 per km, w = 1")
    assert _metres(page, "Mean error of a report") == before


def test_a_choice_that_is_overtaken_is_no_error(
    open_page: Open, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert explorer.cells is not None
    borders = explorer.cells.borders

    def slow_borders(zone: Indices) -> bytes:
        time.sleep(1)
        return borders(zone)

    monkeypatch.setattr(explorer.cells, "borders", slow_borders)
    page = open_page()
    page.locator("#epsilon-a").focus()
    page.keyboard.press("ArrowRight")
    with page.expect_response("**/explore/borders/*"):
        page.keyboard.press("ArrowLeft")  # before the borders of the first choice have come
    page.wait_for_load_state("networkidle")
    expect(page.locator("#title-a")).to_have_text("ε = 2 per km, w = 1")


def test_a_recipient_concludes_from_a_report(open_page: Open) -> None:
    page = open_page()
    page.get_by_text("What a recipient concludes").click()
    expect(_marker(page, "Reported")).to_be_visible()
    expect(page.locator("#layer-hint")).to_contain_text("To the recipient the true place was")
    drawn = set()
    for _ in range(8):
        with page.expect_response("**/explore/conclusion"):
            page.locator("#draw").click()
        page.wait_for_timeout(20)
        drawn.add(_place(_marker(page, "Reported")))
    assert len(drawn) > 1
    hint = page.locator("#layer-hint").inner_text()
    page.locator("#prior").select_option("equal")
    expect(page.locator("#layer-hint")).not_to_have_text(hint)


def test_two_mechanisms_side_by_side(open_page: Open) -> None:
    page = open_page("compare")
    expect(page.locator("#title-a")).to_have_text("A: ε = 2 per km, w = 1")
    expect(page.locator("#title-b")).to_have_text("B: ε = 4 per km, w = 1")
    assert page.locator("#figures thead th").all_inner_texts() == ["A: ε = 2, w = 1", "B: ε = 4, w = 1"]
    expect(_marker(page, "Vehicle", "b")).to_be_visible()
    apart = _centre(page.locator("#frame-b"))[0] - _centre(page.locator("#frame-a"))[0]
    before = _centre(_marker(page, "Vehicle"))

    def moved_together() -> bool:
        (x, y), (other_x, other_y) = (_centre(_marker(page, "Vehicle", frame)) for frame in "ab")
        together = (other_x - x, other_y - y) == pytest.approx((apart, 0), abs=1.5)
        return together and (x, y) != pytest.approx(before, abs=20)

    page.locator("#map-a canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Equal")
    _wait_until(page, moved_together)
    page.locator("#weight-b").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#title-b")).to_have_text("B: ε = 4 per km, w = 0")


def test_a_trip_is_replayed_within_a_budget(open_page: Open) -> None:
    page = open_page("replay")
    expect(page.locator("#settings")).to_contain_text("true route")
    expect(_marker(page, "True place")).to_be_visible()
    expect(page.locator('#frame-a [aria-label^="Tracked at"]')).to_be_visible()
    expect(page.locator("#replay-model")).to_contain_text("It also knows the roads, and how the vehicles drive")
    expect(page.locator("#replay-figures tr", has_text="without any report").locator("td")).to_contain_text("m")
    _wait_until(page, lambda: _share_of(page, "#ede2d8") > 0.02)  # the circle
    steps = int(page.locator("#step").get_attribute("max") or 0) + 1
    assert page.locator("#replay-figures td").first.inner_text() == f"{steps}, 0"
    page.locator("#step").fill("0")
    left = page.locator("#left").evaluate("bar => bar.value")
    page.locator("#play").click()
    expect(page.locator("#play")).to_have_text("Pause")
    expect(page.locator("#replay-figures td").first).to_have_text(re.compile(r"^([4-9]|\d\d+), 0$"))
    page.locator("#play").click()
    assert page.locator("#left").evaluate("bar => bar.value") < left
    page.locator("#budget").fill("0")
    page.locator("#step").fill(str(steps - 1))
    expect(page.locator("#replay-figures td").first).to_have_text(f"10, {steps - 10}")
    expect(page.locator("#chart svg path.guess")).to_have_count(1)


def test_the_promise_is_in_words(open_page: Open) -> None:
    page = open_page("promise")
    expect(page.locator("#promise-words h1")).to_have_text("What is promised")
    text = page.locator("#promise-words").inner_text()
    for words in (
        "Guaranteed",
        "Disclosed",
        "Learned from",
        "are promised nothing: the mechanisms were learned without privacy for those in the traces.",
        "Not promised",
        "Reports add up",
        "Verified exactly, in integers",
        "ε = 2 per km",
    ):
        assert words in text
    expect(page.locator(".maps")).to_be_hidden()


def test_all_is_reached_with_the_keyboard(open_page: Open) -> None:
    page = open_page()
    reached = []
    for _ in range(24):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("(({id, hash, className, name}) => id || hash || name || className)(document.activeElement)")
        )
    assert reached[:6] == ["skip", "#start", "#explore", "#compare", "#replay", "#promise"]
    assert {"theme", "epsilon-a", "weight-a", "layer", "first"} <= set(reached)
    vehicle = _marker(page, "Vehicle")
    vehicle.focus()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    x, before = _centre(vehicle)[0], _place(vehicle)
    page.keyboard.press("ArrowLeft")
    expect(vehicle).not_to_have_attribute("aria-label", f"Vehicle at place {before}")
    assert _centre(vehicle)[0] < x
    expect(page.locator("#where")).to_contain_text(f"Place {_place(vehicle)}, in zone")
    page.locator("#first").focus()
    page.keyboard.press("Space")
    expect(_marker(page, "Previous place")).to_have_count(0)
    expect(page.locator("#first")).to_be_checked()


def test_every_view_fits_a_phone_and_names_its_controls(open_page: Open) -> None:
    page = open_page(width=390)
    for view in VIEWS:
        page.goto(page.url.partition("#")[0] + f"#{view}")
        page.wait_for_selector(f"body[data-view={view}]")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert page.locator("#legend").is_visible() == (view not in ("start", "promise"))
        if view != "promise":
            box = page.locator("#map-a").bounding_box()
            assert box is not None
            assert box["height"] > 100
        nameless = page.evaluate(
            """() => [...document.querySelectorAll("button, input, select, progress, a, [tabindex='0']")]
                .filter((one) => !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim()))
                .map((one) => one.outerHTML)"""
        )
        assert nameless == []


def test_light_and_dark(open_page: Open) -> None:
    page = open_page(dark=True)
    _wait_until(page, lambda: bool(_pixels(page).mean() < 100))
    page.locator("#theme").click()
    _wait_until(page, lambda: bool(_pixels(page).mean() > 180))
    page.wait_for_load_state("networkidle")
    page.reload()
    page.wait_for_selector("body[data-ready=true]", state="attached")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_names_and_credits_of_files_are_never_markup(open_page: Open, small_town: SmallTown, tmp_path: Path) -> None:
    odd, roads = tmp_path / "<img src=x onerror=alert(1)>.bundle", tmp_path / "odd.roads"
    shutil.copy(small_town.bundles[0], odd)
    replace(RoadGraph.load(small_town.roads), credit="<img src=y>").save(roads)
    store = BundleStore([odd])
    with live(store, explorer=Explorer(store, roads=roads)) as plain:  # no record, no walks
        page = open_page("promise", url=plain.url)
        expect(page.locator("#promise-words")).to_contain_text("<img src=x")
        assert page.locator("#promise-words img").count() == 0
        page.goto(f"{plain.url}/#explore")
        expect(page.locator(".maplibregl-ctrl-attrib")).to_have_text("<img src=y>")
        expect(page.locator("#figures tr", has_text="Expected loss").locator("td")).to_have_text("–")
        expect(page.locator("nav a[href='#replay']")).to_be_hidden()
        expect(page.locator("#epsilon-a")).to_be_disabled()
        expect(page.locator("#epsilon-a-why")).to_have_text(re.compile("^Only one ε is served"))
        assert re.search(r"\d+ k?m", page.locator("#figures").inner_text())


def test_bundles_that_are_not_on_the_map_are_counted(
    open_page: Open, small_town: SmallTown, plain: Path, town: Path
) -> None:
    store = BundleStore([*small_town.bundles, plain, town])
    with live(store, explorer=Explorer(store)) as mixed:
        page = open_page(url=mixed.url)
        expect(page.locator("#left-out")).to_contain_text("2 more bundles are served")
        page.goto("about:blank")  # before its service stops
    assert open_page().locator("#left-out").is_hidden()


def test_a_service_without_places_says_so(browser: Browser, plain: Path) -> None:
    store = BundleStore([plain])
    with live(store, explorer=Explorer(store)) as found:
        page = browser.new_page()
        page.goto(found.url)
        expect(page.locator("#problem")).to_contain_text("no map to show")
        page.close()


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A service with nothing but a lattice and a plan: no roads, no walks, no places."""
    folder = tmp_path_factory.mktemp("city")
    plan = folder / "plan.json"
    plan.write_text(json.dumps(PLAN))
    store = BundleStore([save_city(folder / "city.bundle", hold_m=50)])
    with live(store, explorer=Explorer(store, plan=plan)) as found:
        yield found


def _at(page: Page, name: str, frame: str = "a") -> Locator:
    """A marker at a coordinate."""
    return page.locator(f'#frame-{frame} [aria-label^="{name} at 4"]')


def test_a_newcomer_starts_with_metres(open_page: Open, city: Live) -> None:
    page = open_page("", url=city.url)
    expect(page.locator("nav a[aria-current]")).to_have_text("Start")
    row = page.locator("#start-figures tr")

    def value(words: str) -> Locator:
        return row.filter(has_text=words).locator("td")

    expect(value("Half of all single reports")).to_have_text("within 510 m")
    expect(page.locator(".ring-label").first).to_have_text("half of all reports: 510 m")
    # ε = 3.3 every 60 s: between the plan's 2 and 8 by logarithms, 100 m · 60 / 3.3.
    expect(value("follows all reports")).to_have_text("1.8 km off")
    expect(value("A night at home")).to_have_text("610 m off")
    expect(value("30 nights")).to_have_text("98 m off")  # √(π/30)/3.3 km
    expect(value("with a fence")).to_have_text("570 m off")
    expect(page.locator("#start-commands")).to_contain_text("fence add --ledger car.ledger --radius-km 1")
    page.get_by_text("No, or it does not report there").click()
    expect(value("with a fence")).to_have_count(0)
    expect(page.locator("#start-commands")).to_contain_text("--epsilon 3.3 --interval 60 --out")
    page.get_by_role("radio", name="10 min").focus()
    page.keyboard.press("Space")
    expect(value("follows all reports")).to_have_text("more than 1.8 km off")  # the plan ends at 60 s
    page.get_by_role("button", name="Show it on the map").click()
    expect(page.locator("#title-a")).to_have_text("ε = 4 per km, lattice, hold 50 m")
    page.keyboard.press("Shift+Tab")
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#settings")).to_be_focused()
    assert urlsplit(page.url).fragment == "explore"


def test_nothing_keeps_anybody_out(browser: Browser, small_town: SmallTown, tmp_path: Path) -> None:
    """No serious finding of axe-core, contrast among them: in every view, on a desk and on a phone, light and dark."""
    lat, lon = load_bundle(small_town.bundles[0]).places_e7.mean(axis=0) / 1e7
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(PLAN))
    store = BundleStore([*small_town.bundles, save_city(tmp_path / "city.bundle", at=(lat, lon), hold_m=50)])
    explorer = Explorer(store, roads=small_town.roads, walks=small_town.walks, plan=plan)
    context = browser.new_context(bypass_csp=True, reduced_motion="reduce")  # axe is no part of the page
    with live(store, explorer=explorer) as found:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(found.url)
        page.add_script_tag(path=str(AXE))
        page.wait_for_selector("body[data-ready=true]", state="attached")
        wrong = []
        schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
        screens = list(itertools.product((1360, 390), schemes))
        for kind, views, shown in (
            ("lattice", (*VIEWS, "home", "try"), screens),
            ("zones", ("explore", "replay", "promise"), [screens[0], screens[-1]]),  # the same colours
        ):
            page.evaluate("location.hash = 'explore'")
            page.locator("#kind-a").select_option(kind)
            for view in views:
                page.evaluate("view => { location.hash = view }", view)
                page.wait_for_load_state("networkidle")
                for width, scheme in shown:
                    page.set_viewport_size({"width": width, "height": 850})
                    page.emulate_media(color_scheme=scheme)
                    assert page.evaluate("document.documentElement.scrollWidth") == width
                    expect(page.locator(".maplibregl-ctrl-attrib").first).to_have_text("a synthetic city")
                    for finding in page.evaluate("axe.run({ resultTypes: ['violations'] })")["violations"]:
                        if finding["impact"] in ("serious", "critical"):
                            nodes = [node["html"][:200] for node in finding["nodes"]]
                            wrong.append((kind, view, width, scheme, finding["id"], nodes))
        context.close()
    assert wrong == []


def test_a_lattice_is_explored_anywhere(open_page: Open, city: Live) -> None:
    page = open_page(url=city.url)
    expect(page.locator("#title-a")).to_have_text("ε = 4 per km, lattice, hold 50 m")
    vehicle = _at(page, "Vehicle")
    before = vehicle.get_attribute("aria-label") or ""
    assert _metres(page, "Mean error of a report") == pytest.approx(500, abs=20)
    _wait_until(page, lambda: _share_of(page, "#64abc3") > 0.01)
    x, y = _centre(vehicle)
    page.mouse.click(x - 90, y + 60)
    expect(vehicle).not_to_have_attribute("aria-label", before)
    assert _centre(vehicle) == pytest.approx((x - 90, y + 60), abs=1.5)
    page.get_by_text("What a recipient concludes").click()
    expect(_at(page, "Reported")).to_be_visible()
    expect(page.locator("#layer-hint")).to_contain_text("within 250 m of its true coordinate")
    vehicle.focus()
    here = vehicle.get_attribute("aria-label") or ""
    page.keyboard.press("ArrowUp")
    expect(vehicle).not_to_have_attribute("aria-label", here)
    assert "." not in urlsplit(page.url).fragment  # no coordinate stands in the address


def test_nights_at_home_pass_with_a_fence_and_without(open_page: Open, city: Live) -> None:
    page = open_page("home", url=city.url)
    rows = page.locator("#home-figures tr")

    def off(nights: str) -> list[float]:
        cells = rows.filter(has_text=nights).locator("td").all_inner_texts()
        return [float(value) * {"m": 1, "km": 1000}[unit] for value, unit in map(str.split, cells)]

    expect(page.locator("#home-words")).to_contain_text("After 30 nights an attacker is")
    bare, fenced = off("After 30 nights")
    assert bare == pytest.approx(81, rel=0.25)
    assert fenced == pytest.approx(667, rel=0.15)
    assert off("After one night")[0] > 2 * off("After 7 nights")[0] > 2 * bare
    assert rows.filter(has_text="30 nights cost").locator("td").all_inner_texts() == ["120 per km", "δ = 6.6 %"]
    expect(page.locator("#home-interval")).to_be_disabled()
    _wait_until(page, lambda: _share_of(page, "#0e6f8c") > 0.001)  # the fence
    _wait_until(page, lambda: _share_of(page, "#ede2d8") > 0.02)  # the attacker's circle
    page.locator("#home-fence").fill("0")
    expect(page.locator("#home-figures thead")).to_have_count(0)
    found = float(page.locator("#home-words").inner_text().split(" m off")[0].rsplit(" ", 1)[1])
    page.locator("#home-hold").uncheck()
    expect(page.locator("#home-interval")).to_be_enabled()
    expect(rows.filter(has_text="30 nights cost").locator("td")).to_have_text("115,000 per km")
    assert off("After 30 nights")[0] < found / 3
    page.locator("#home-interval").fill("4")
    expect(rows.filter(has_text="30 nights cost").locator("td")).to_have_text("5,760 per km")
    page.locator("#home-night").fill("0")
    expect(page.locator("#home-words")).to_contain_text("After one night an attacker is")
    home = _at(page, "Home")
    before = home.get_attribute("aria-label") or ""
    home.focus()
    page.keyboard.press("ArrowUp")
    expect(home).not_to_have_attribute("aria-label", before)
    page.goto(f"{city.url}/#explore")
    expect(_at(page, "The attacker's guess")).to_have_count(0)


def test_a_drive_is_replayed(open_page: Open, city: Live) -> None:
    page = open_page("replay", url=city.url)
    expect(page.locator("#way-words")).to_contain_text("holds the vehicle nine times out of ten")
    expect(page.locator("#way-step")).to_have_attribute("aria-valuetext", "90 of 90")
    expect(page.locator("#way-model")).to_contain_text("knows no roads")
    without = page.locator("#way-figures tr", has_text="Mean error without any report").locator("td")
    assert without.all_inner_texts() == ["3.5 km"]
    expect(page.locator("#way-figures tr", has_text="Cost so far").locator("td")).to_have_text("360 per km")
    expect(page.locator("#way-chart svg path.guess")).to_have_count(1)
    # ε = 4 lies halfway, by logarithms, between the plan's 2 and 8: 1,500 m and 375 m.
    expect(page.locator("#plan-chart circle.here")).to_have_count(1)
    expect(page.locator("#plan-chart circle.alike")).to_have_count(1)
    expect(page.locator("#plan-chart figcaption")).to_contain_text("every 30 s: 750 m off on the road, and 480 per km")


def test_the_promise_of_a_lattice_is_drawn(open_page: Open, city: Live) -> None:
    page = open_page("promise", url=city.url)
    expect(page.locator("#night")).to_contain_text("A stay costs one report, however long")
    labels = page.locator(".ring-label")
    expect(labels).to_have_text(["× 2: 170 m", "× 10: 580 m", "× 100: 1.2 km"])
    _wait_until(page, lambda: _share_of(page, "#0e6f8c") > 0.001)
    nights = page.locator("#promise-words tbody tr td:last-child")
    assert nights.all_inner_texts() == ["6 m", "19 m", "38 m"]
    page.goto(f"{city.url}/#explore")
    expect(labels).to_have_count(0)


def test_the_browser_reports_by_itself(open_page: Open, city: Live) -> None:
    """In the page: no request is made after the bundle is there."""
    page = open_page("try", url=city.url)
    page.wait_for_selector("body[data-tried=ready]")
    expect(page.locator("#try-verified")).to_contain_text("Verified exactly by this browser")
    page.wait_for_load_state("networkidle")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(f"{request.url} {request.post_data}"))
    vehicle = _at(page, "You")
    x, y = _centre(vehicle)
    before = vehicle.get_attribute("aria-label") or ""
    page.mouse.click(x - 90, y + 60)  # the map moves too, if the report is out of sight
    expect(page.locator("#try-words")).to_contain_text("What would be told: cell")
    expect(vehicle).not_to_have_attribute("aria-label", before)
    left = page.locator("#try-figures tr", has_text="Budget left").locator("td")
    expect(left).to_have_text("476 per km")
    page.get_by_role("button", name="Report again").click()  # held, at no cost
    vehicle.focus()
    page.keyboard.press("ArrowUp")
    expect(left).to_have_text("472 per km")
    expect(_at(page, "Reported")).to_be_visible()
    page.get_by_role("button", name="Fence this place").click()
    expect(left).to_have_text("468 per km")  # from the fence's centre
    vehicle.focus()
    page.keyboard.press("ArrowUp")  # within the fence
    page.get_by_role("button", name="Fence this place").click()
    expect(page.locator("#problem")).to_contain_text("A fence holds this place already")
    expect(left).to_have_text("468 per km")
    _wait_until(page, lambda: _share_of(page, "#0e6f8c") > 0.001)
    page.context.grant_permissions(["geolocation"])
    page.context.set_geolocation({"latitude": 41.1512, "longitude": -8.6023})
    page.get_by_role("button", name="Use my location").click()
    expect(vehicle).to_have_attribute("aria-label", "You at 41.1512, -8.6023")
    expect(page.locator("#problem")).to_be_hidden()
    assert asked == []
    page.goto(f"{city.url}/#explore")  # what was clicked here is not asked about there
    expect(_at(page, "Vehicle")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert asked
    assert not [request for request in asked if "41.1512" in request or "8.6023" in request]
    assert _at(page, "Vehicle").get_attribute("aria-label") != "Vehicle at 41.1512, -8.6023"


KEEP_A_LEDGER = """async ([name, sha256]) => {
    const { Budget, Device, IndexedDbStore, Ledger, LocalStorageStore } = await import("/device/index.js");
    const file = await (await fetch(`/v1/bundles/${sha256}`)).arrayBuffer();
    const found = [];
    for (const Store of [IndexedDbStore, LocalStorageStore]) {
        const store = new Store(name);
        const isNew = (await store.read()) === null;
        if (isNew) await Ledger.create(store, new Budget({ epsilon: 40, windowS: 3600 }));
        const more = new Budget({ epsilon: 1e6, windowS: 60 });
        const twice = await Ledger.create(store, more).catch((error) => error.name);
        const device = await Device.open(file, { store });
        const { left, stored } = await device.report(isNew ? 41.15 : 41.16, -8.6, Date.now() / 1000 + (isNew ? 0 : 60));
        const second = await Device.open(file, { store: new Store(name) });
        const late = await device.report(41.15, -8.6, Date.now() / 1000 + 120).catch((error) => error.name);
        await second.close();
        found.push([isNew, twice, left, stored, late]);
    }
    return found;
}"""


def test_a_budget_is_kept_in_the_browser(open_page: Open, city: Live) -> None:
    page = open_page("try", url=city.url)
    page.wait_for_selector("body[data-tried=ready]")
    sha256 = page.evaluate("(async () => (await (await fetch('/explore/overview')).json()).bundles[0].sha256)()")
    first = page.evaluate(KEEP_A_LEDGER, ["car", sha256])
    assert first == [[True, "LedgerError", 36, False, "LedgerError"]] * 2
    page.reload()
    page.wait_for_selector("body[data-ready=true]", state="attached")
    again = page.evaluate(KEEP_A_LEDGER, ["car", sha256])
    assert again == [[False, "LedgerError", 32, False, "LedgerError"]] * 2


def test_a_lattice_fits_a_phone(open_page: Open, city: Live) -> None:
    page = open_page(width=390, url=city.url)
    for view in (*VIEWS, "home", "try"):
        page.goto(f"{city.url}/#{view}")
        page.wait_for_selector(f"body[data-view={view}]")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        if view != "start":  # there the questions come first
            expect(page.locator("#map-a")).to_be_in_viewport()


def test_zones_beside_a_lattice(open_page: Open, small_town: SmallTown, tmp_path: Path) -> None:
    lat, lon = load_bundle(small_town.bundles[0]).places_e7.mean(axis=0) / 1e7
    store = BundleStore([small_town.bundles[0], save_city(tmp_path / "city.bundle", at=(lat, lon), hold_m=50)])
    with live(store, explorer=Explorer(store)) as mixed:
        page = open_page("compare", url=mixed.url)
        expect(page.locator("#title-a")).to_have_text("A: ε = 4 per km, lattice, hold 50 m")
        expect(page.locator("#title-b")).to_have_text("B: ε = 2 per km, w = 1")
        expect(page.locator(".for-both")).to_contain_text("promise different things")
        assert page.locator("#legend .scale").count() == 2
        page.mouse.click(*_centre(page.locator("#map-b")))
        expect(page.locator("#where")).to_contain_text("B: Place")
        expect(page.locator("#where")).to_contain_text("tells no zone")
        page.locator("#kind-b").select_option("lattice")
        expect(page.locator("#title-b")).to_have_text("B: ε = 4 per km, lattice, hold 50 m")
        expect(page.locator(".for-both")).to_be_hidden()
        expect(page.locator('#frame-b [aria-label^="Vehicle at"]')).to_be_visible()
        page.goto(f"{mixed.url}/#explore")
        expect(page.locator("#title-b")).to_be_hidden()
        page.goto(f"{mixed.url}/#compare")  # two that are alike are no comparison
        expect(page.locator("#title-b")).to_have_text("B: ε = 2 per km, w = 1")
        page.wait_for_load_state("networkidle")
        page.goto("about:blank")  # before its service stops
