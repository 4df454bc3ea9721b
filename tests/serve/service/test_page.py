"""The web page in a real browser: a story, a choice, a comparison, and reports made by the browser itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from geoblanket.planning import Judges
from geoblanket.roads.graph import RoadGraph
from geoblanket.serve.service.bundles import BundleStore
from geoblanket.serve.service.explorer import Explorer
from tests.serve.service.browsing import PATIENCE_MS, Open, centre, needs_chromium, pixels, share_of, wait_until
from tests.serve.service.city_lattices import save_city
from tests.serve.service.living import Live, live
from tests.towns import Town

pytestmark = needs_chromium
AXE = files("axe_playwright_python") / "axe.min.js"
VIEWS = ("story", "choose", "try")
SETTING = {"epsilon": 4.0, "interval_s": 30, "hold_m": 50.0, "fence_km": 1.0}


@pytest.fixture(scope="module")
def site(small_town: Town, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A lattice with the roads and walks of the town; it is named as no file should be."""
    graph = RoadGraph.load(small_town.roads)
    at = float(graph.lat.mean()), float(graph.lon.mean())
    folder = tmp_path_factory.mktemp("site")
    store = BundleStore([save_city(folder / "<img src=x onerror=alert(1)>.bundle", at=at, hold_m=50)])
    explorer = Explorer(store, roads=small_town.roads, walks=small_town.walks)
    explorer.__dict__["_judges"] = Judges.of_roads(small_town.roads, walks=small_town.walks, trips=40, order=1)
    with live(store, explorer=explorer) as found:
        yield found


def _told(site: Live, **change: Any) -> dict[str, Any]:
    answer: dict[str, Any] = site.client.post("/explore/consequences", json=SETTING | change).json()
    return answer


def _figure(page: Page, row: str, column: int = 0) -> Any:
    return page.locator("#figures tr", has_text=row).locator("td").nth(column)


def test_a_story_is_told(open_page: Open, site: Live) -> None:
    page = open_page(site.url)
    expect(page.locator("nav a[aria-current]")).to_have_text("Story")
    expect(page.locator("#story-title")).to_have_text("30 nights at home, with a fence")
    fenced = page.locator("#story-figure").inner_text()
    expect(page.locator("#story-words")).to_contain_text("instead of")
    wait_until(page, lambda: share_of(page, "#0e6f8c") > 0.0005)  # the fence
    expect(page.locator('.map-frame [aria-label="Home"]')).to_be_visible()
    page.locator("#story-at").fill("700")
    expect(page.locator("#story-title")).to_contain_text("no fence")
    assert float(page.locator("#story-figure").inner_text().split()[0]) < float(fenced.split()[0])
    page.locator("#story-at").fill("100")
    expect(page.locator("#story-title")).to_have_text("A drive home")
    expect(page.locator("#story-words")).to_contain_text("500 m from the truth on average")
    expect(page.locator('.map-frame [aria-label="Vehicle"]')).to_be_visible()
    page.get_by_role("button", name="Try your own").click()
    expect(page.locator("nav a[aria-current]")).to_have_text("Choose")


def test_it_plays_by_itself_until_it_is_stopped(open_page: Open, site: Live) -> None:
    page = open_page(site.url, moving=True)
    stop = page.get_by_role("button", name="Stop")
    expect(stop).to_be_visible()
    wait_until(page, lambda: int(page.locator("#story-at").input_value()) > 20)
    stop.click()
    at = page.locator("#story-at").input_value()
    page.wait_for_timeout(300)
    assert page.locator("#story-at").input_value() == at


def test_any_setting_is_shown_and_kept_in_the_address(open_page: Open, site: Live) -> None:
    page = open_page(site.url, "choose")
    told = _told(site)
    expect(_figure(page, "an hour on the road")).to_have_text(f"{told['certainty']['an hour on the road']} in 100")
    expect(_figure(page, "Home, after a month")).to_have_text("570 m")
    expect(page.locator("#choose-words")).to_contain_text("the tracker is")
    page.locator("#epsilon").fill("565")  # 2.0
    expect(page.locator("#epsilon-value")).to_have_text("ε = 2 per km")
    told = _told(site, epsilon=2.0)
    expect(_figure(page, "an hour on the road")).to_have_text(f"{told['certainty']['an hour on the road']} in 100")
    expect(page.locator("#title-a")).to_contain_text("ε = 2 per km")
    page.locator("#fence_km").focus()
    page.keyboard.press("Home")
    expect(page.locator("#fence_km-value")).to_have_text("none")
    expect(_figure(page, "years of nights")).to_have_text("no fence")
    expect(_figure(page, "Home, after a month")).to_have_text("160 m")
    assert urlsplit(page.url).fragment == "choose?a=2,30,50,0"
    vehicle = page.locator('.map-frame [aria-label="Home"]')
    before = centre(vehicle)
    vehicle.focus()
    page.keyboard.press("ArrowUp")
    expect(page.locator("#choose-words")).to_contain_text("the tracker is")
    wait_until(page, lambda: centre(vehicle) != before)
    assert urlsplit(page.url).fragment == "choose?a=2,30,50,0"  # no coordinate stands in the address
    page.locator("#trip").select_option(index=1)
    expect(page.locator("#true-trip")).to_be_visible()


def test_three_questions_give_a_plan_and_a_page_to_print(open_page: Open, site: Live) -> None:
    page = open_page(site.url, "choose")
    page.get_by_role("radio", name="80 %").check(force=True)
    expect(page.locator("#plan .headline")).to_contain_text("with a fence of 0.62 km around a home")
    expect(page.locator("#plan")).to_have_attribute("aria-busy", "false")
    expect(page.locator("#plan li", has_text="Asked: at least 350 m off")).to_contain_text("(kept)")
    expect(page.locator("#plan")).to_contain_text("On the road, a recipient who tracks the vehicle")
    wish = {"home_m": 350.0, "sure": 0.8, "road_m": None, "simulate": True}
    plan = site.client.post("/explore/plan", json=wish).json()
    expect(page.locator("#plan .headline")).to_have_text(plan["in_words"][0])
    expect(page.locator("#fence_km-value")).to_have_text("0.62 km")
    expect(page.locator("#epsilon-value")).to_have_text(f"ε = {plan['recommended']['epsilon_per_km']:g} per km")
    with page.context.expect_page() as opening:
        page.get_by_role("link", name="A page for drivers").click()
    expect(opening.value.locator("h1")).to_have_text("What your vehicle tells about you")
    expect(opening.value.locator("main")).to_contain_text("A fence of 0.62 km hides your home for good")


def test_two_settings_are_compared_from_the_address_alone(open_page: Open, site: Live) -> None:
    page = open_page(site.url, "choose?a=4,30,50,1&b=8,60,0,0")
    page.wait_for_selector("body[data-lives='2']")
    expect(page.locator("#title-a")).to_have_text("A: ε = 4 per km, every 30 s, hold 50 m, fence 1 km")
    expect(page.locator("#title-b")).to_have_text("B: ε = 8 per km, every 1 min, no hold, no fence")
    expect(_figure(page, "A single report", 1)).to_have_text("250 m")
    expect(page.locator("#choose-words")).to_contain_text("B: after")
    expect(page.locator("#chart svg path")).to_have_count(2)
    page.get_by_role("button", name="Stop comparing").click()
    expect(page.locator("#frame-b")).to_be_hidden()
    assert urlsplit(page.url).fragment == "choose?a=4,30,50,1"
    page.goto(f"{site.url}/#choose?a=nonsense&b=41.1512,-8.6")  # it is not taken, and not repeated
    page.reload()
    expect(page.locator("#title-a")).to_have_text("ε = 4 per km, every 30 s, hold 50 m, fence 1 km")


def test_settings_survive_the_address(open_page: Open, site: Live) -> None:
    page = open_page(site.url, "try")
    found = page.evaluate("""async () => {
        const { SCALES, addressOf, possible, queryOf, readAddress } = await import("/page/settings.js");
        const a = { epsilon: 1.3, interval_s: 45, hold_m: 25, fence_km: 0.62 };
        const again = readAddress(addressOf({ view: "choose", a, b: { ...a, fence_km: null } }));
        const everyAt = Array.from({ length: 1001 }, (_, at) => SCALES.epsilon.value(at));
        const kept = everyAt.every((value) => SCALES.epsilon.value(SCALES.epsilon.at(value)) === value);
        return [again, kept, [everyAt[0], everyAt[1000]], possible({ ...a, epsilon: 20, hold_m: 500 }).hold_m,
                queryOf({ ...a, fence_km: null }), readAddress("#choose?a=1,2").a, SCALES.fence_km.value(0)];
    }""")
    a = {"epsilon": 1.3, "interval_s": 45, "hold_m": 25, "fence_km": 0.62}
    assert found[0] == {"view": "choose", "a": a, "b": a | {"fence_km": None}}
    assert found[1:] == [True, [0.1, 20], 100, "epsilon=1.3&interval_s=45&hold_m=25", None, None]


def test_letters_have_edges_where_they_should(open_page: Open, site: Live) -> None:
    """Of a range of letters, each has a picture of its own size, and none is empty."""
    page = open_page(site.url, "try")
    sizes = page.evaluate("""async () => {
        const { letters } = await import("/page/glyphs.js");
        const bytes = new Uint8Array(letters("Bold", "0-255"));
        const varint = (at) => { let [value, shift] = [0, 0]; for (;; at += 1) {
            value |= (bytes[at] & 127) << shift; shift += 7; if (bytes[at] < 128) return [value, at + 1]; } };
        const fields = (from, to) => { const found = []; let at = from; while (at < to) {
            let key, value; [key, at] = varint(at); [value, at] = varint(at);
            found.push([key >> 3, value, at]); if ((key & 7) === 2) at += value; } return found; };
        const [[, length, start]] = fields(0, bytes.length);
        return fields(start, start + length).filter(([field]) => field === 3).map(([, size, at]) => {
            const parts = fields(at, at + size).map(([field, value, where]) => [field, [value, where]]);
            const glyph = Object.fromEntries(parts);
            const picture = glyph[2] ? [...bytes.slice(glyph[2][1], glyph[2][1] + glyph[2][0])] : [];
            return [glyph[1][0], glyph[3][0], glyph[4][0], picture.length, Math.max(0, ...picture)];
        });
    }""")
    drawn = {chr(code): (width, height, size, top) for code, width, height, size, top in sizes if size}
    assert all(size == (width + 6) * (height + 6) for width, height, size, _ in drawn.values())
    assert {"A", "ç", "é", "ß"} <= drawn.keys()
    assert min(top for *_, top in drawn.values()) > 191  # each has a pixel inside its edge
    assert drawn["W"][0] > drawn["i"][0]


@pytest.mark.parametrize(
    "screens",
    [
        [(1280, 800, "light"), (390, 844, "dark")],
        pytest.param([(1280, 800, "dark"), (390, 844, "light")], marks=pytest.mark.slow),
    ],
    ids=["light desk, dark phone", "dark desk, light phone"],
)
def test_nothing_keeps_anybody_out(
    browser: Browser, site: Live, screens: list[tuple[int, int, Literal["light", "dark"]]]
) -> None:
    """No serious finding of axe-core, contrast among them, in every view; nothing is wider than a screen."""
    context = browser.new_context(bypass_csp=True, reduced_motion="reduce")  # axe is no part of the page
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{site.url}/#choose")
    page.add_script_tag(path=str(AXE))
    page.wait_for_selector("body[data-lives='1']")
    page.get_by_role("button", name="Get a plan").click()
    page.wait_for_selector("#plan .headline")
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    wrong = []
    for view in VIEWS:
        page.evaluate("view => document.querySelector(`nav a[data-view=${view}]`).click()", view)
        page.wait_for_selector(f"body[data-view={view}]")
        page.wait_for_load_state("networkidle")
        for width, height, scheme in screens:
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") == width
            expect(page.locator(".maplibregl-ctrl-attrib").first).to_have_text("a synthetic city")
            for finding in page.evaluate("axe.run({ resultTypes: ['violations'] })")["violations"]:
                if finding["impact"] in ("serious", "critical"):
                    nodes = [node["html"][:200] for node in finding["nodes"]]
                    wrong.append((view, width, scheme, finding["id"], nodes))
    context.close()
    assert wrong == []


def test_names_and_credits_of_files_are_never_markup(
    open_page: Open, small_town: Town, site: Live, tmp_path: Path
) -> None:
    page = open_page(site.url, "choose")
    page.locator("#served summary").click()
    expect(page.locator("#served-list")).to_contain_text("<img src=x onerror=alert(1)>.bundle")
    assert page.locator("#served-list img").count() == 0
    roads, graph = tmp_path / "odd.roads", RoadGraph.load(small_town.roads)
    replace(graph, credit="<img src=y>", scenery=b"").save(roads)
    with live(BundleStore([]), explorer=Explorer(BundleStore([]), roads=roads)) as plain:  # no names, no bundle
        page = open_page(plain.url, "try")
        expect(page.locator(".maplibregl-ctrl-attrib")).to_have_text("<img src=y>")
        page.wait_for_selector("body[data-tried=ready]")
        page.goto("about:blank")  # before its service stops


def test_a_service_without_a_city_says_so(browser: Browser, plain: Path) -> None:
    store = BundleStore([plain])
    with live(store, explorer=Explorer(store)) as found:
        page = browser.new_page()
        page.goto(found.url)
        expect(page.locator("#problem")).to_contain_text("serve a lattice, or roads")
        page.close()


def test_keys_reach_all_and_the_theme_stays(open_page: Open, site: Live) -> None:
    page = open_page(site.url, "try", dark=True)
    reached = []
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("(({id, dataset, ariaLabel}) => id || dataset.view || ariaLabel)(document.activeElement)")
        )
    assert reached[:5] == ["skip", "story", "choose", "try", "theme"]
    assert {"You, for this page alone", "try-locate", "try-report", "try-fence"} <= set(reached)
    wait_until(page, lambda: bool(pixels(page).mean() < 100))
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#side")).to_be_focused()
    page.locator("#theme").click()
    wait_until(page, lambda: bool(pixels(page).mean() > 180))
    page.wait_for_load_state("networkidle")
    page.reload()
    page.wait_for_selector("body[data-ready=true]", state="attached")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_the_browser_reports_by_itself(open_page: Open, site: Live) -> None:
    """In the page: no request is made after the bundle is there, and only one button spends."""
    page = open_page(site.url, "try")
    page.wait_for_selector("body[data-tried=ready]")
    promised = _told(site)["in_one_sentence"].removeprefix("In one sentence: e")
    expect(page.locator("#try-verified")).to_contain_text("Verified exactly by this browser")
    expect(page.locator("#try-verified")).to_contain_text(f"E{promised}")
    page.wait_for_load_state("networkidle")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(f"{request.url} {request.post_data}"))
    you, words = page.locator('.map-frame [aria-label^="You"]'), page.locator("#try-words")
    left = page.locator("#try-figures tr", has_text="Budget left").locator("td")
    x, y = centre(you)
    page.mouse.click(x - 90, y + 60)
    expect(words).to_contain_text("Nothing was reported, and nothing was spent")
    assert centre(you) == pytest.approx((x - 90, y + 60), abs=1.5)
    report = page.get_by_role("button", name="Report from here")
    report.click()
    expect(words).to_contain_text("What would be told: cell")
    expect(left).to_have_text("476 per km")
    report.click()  # held, at no cost
    expect(left).to_have_text("476 per km")
    page.get_by_role("button", name="Fence this place").click()
    expect(words).to_contain_text("Nothing was reported")
    report.click()
    expect(left).to_have_text("472 per km")  # from the fence's centre
    page.get_by_role("button", name="Fence this place").click()
    expect(page.locator("#problem")).to_contain_text("A fence holds this place already")
    page.context.grant_permissions(["geolocation"])
    page.context.set_geolocation({"latitude": 41.1512, "longitude": -8.6023})
    page.get_by_role("button", name="Use my location").click()
    expect(words).to_contain_text("You are elsewhere:")
    expect(left).to_have_text("472 per km")
    assert asked == []
    page.evaluate(
        "document.querySelector('nav a[data-view=choose]').click()"
    )  # what was picked here is not asked there
    page.wait_for_selector("body[data-lives='1']")
    assert asked
    assert not [request for request in asked if "41.1512" in request or "8.6023" in request]


KEEP_A_LEDGER = """async ([name, setting]) => {
    const { Budget, Device, IndexedDbStore, Ledger, LocalStorageStore } = await import("/device/index.js");
    const { bundleFile } = await import("/page/service.js");
    const file = await bundleFile(setting);
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


def test_a_budget_is_kept_in_the_browser(open_page: Open, tmp_path: Path) -> None:
    store = BundleStore([save_city(tmp_path / "city.bundle", hold_m=50)])
    with live(store, explorer=Explorer(store)) as city:
        page = open_page(city.url, "try")
        page.wait_for_selector("body[data-tried=ready]")
        first = page.evaluate(KEEP_A_LEDGER, ["car", SETTING])
        assert first == [[True, "LedgerError", 36, False, "LedgerError"]] * 2
        page.reload()
        page.wait_for_selector("body[data-ready=true]", state="attached")
        again = page.evaluate(KEEP_A_LEDGER, ["car", SETTING])
        assert again == [[False, "LedgerError", 32, False, "LedgerError"]] * 2
        page.goto("about:blank")
