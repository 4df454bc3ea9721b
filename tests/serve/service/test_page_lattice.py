"""The web page in a real browser: bundles with a lattice, a home, a drive, and reports made by the browser itself."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from geoblanket.serve.service.bundles import BundleStore
from geoblanket.serve.service.explorer import Explorer
from tests.mechanism.bundles import load_zones
from tests.serve.service.browsing import Open, centre, metres_of, needs_chromium, share_of, wait_until
from tests.serve.service.city_lattices import save_city
from tests.serve.service.living import Live, live
from tests.serve.service.small_town import SmallTown

pytestmark = needs_chromium
VIEWS = ("start", "explore", "home", "replay", "promise", "try")


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A service with nothing but a lattice: no roads, no walks, no places."""
    store = BundleStore([save_city(tmp_path_factory.mktemp("city") / "city.bundle", hold_m=50)])
    with live(store, explorer=Explorer(store)) as found:
        yield found


@pytest.fixture(scope="module")
def town_lattice(small_town: SmallTown, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A lattice beside zones, with the roads of the town."""
    lat, lon = load_zones(small_town.bundles[0]).places_e7.mean(axis=0) / 1e7
    path = save_city(tmp_path_factory.mktemp("town") / "city.bundle", at=(lat, lon), hold_m=50)
    store = BundleStore([small_town.bundles[0], path])
    with live(store, explorer=Explorer(store, roads=small_town.roads)) as found:
        yield found


def _at(page: Page, name: str) -> Locator:
    """A marker at a coordinate."""
    return page.locator(f'.map-frame [aria-label^="{name} at 4"]')


def test_a_drive_is_replayed(open_page: Open, town_lattice: Live) -> None:
    page = open_page(town_lattice.url, "replay")
    expect(page.locator("#way-words")).to_contain_text("holds the vehicle nine times out of ten")
    expect(page.locator("#way-step")).to_have_attribute("aria-valuetext", "90 of 90")
    expect(page.locator("#way-model")).to_contain_text("It also knows the roads")
    expect(page.locator("#true-trip")).to_be_hidden()
    expect(page.locator("#way-chart svg path.guess")).to_have_count(1)
    place = _at(page, "True place")
    before = place.get_attribute("aria-label") or ""
    x, y = centre(page.locator("#map"))
    page.mouse.click(x - 90, y + 60)  # a drive that begins elsewhere
    expect(place).not_to_have_attribute("aria-label", before)
    page.locator("#bundle").select_option(index=1)  # zones, and no walks
    expect(page.locator("#no-trips")).to_be_visible()
    expect(place).to_have_count(0)


@pytest.mark.parametrize("kind", [0, 1])
def test_every_view_fits_a_phone_and_names_its_controls(open_page: Open, town_lattice: Live, kind: int) -> None:
    page = open_page(town_lattice.url, width=390)
    page.locator("#bundle").select_option(index=kind)
    for view in VIEWS:
        page.goto(f"{town_lattice.url}/#{view}")
        page.wait_for_selector(f"body[data-view={view}]")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert page.evaluate("window.scrollY") == 0
        assert page.locator("#legend").is_visible() == (view not in ("start", "promise"))
        if view != "start" and (view != "promise" or kind == 0):  # there words come first
            expect(page.locator("#map")).to_be_in_viewport()
        nameless = page.evaluate(
            """() => [...document.querySelectorAll("button, input, select, a, [tabindex='0']")]
                .filter((one) => !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim()))
                .map((one) => one.outerHTML)"""
        )
        assert nameless == []


def test_a_newcomer_starts_withmetres_of(open_page: Open, city: Live) -> None:
    page = open_page(city.url, "")
    expect(page.locator("nav a[aria-current]")).to_have_text("Start")
    row = page.locator("#start-figures tr")

    def value(words: str) -> Locator:
        return row.filter(has_text=words).locator("td")

    expect(value("Half of all single reports")).to_have_text("within 510 m")
    expect(page.locator(".ring-label").first).to_have_text("half of all reports: 510 m")
    expect(value("A night at home")).to_have_text("610 m off")
    expect(value("30 nights")).to_have_text("98 m off")  # √(π/30)/3.3 km
    expect(value("with a fence")).to_have_text("570 m off")
    expect(page.locator("#start-commands")).to_contain_text("fence add --ledger car.ledger --radius-km 1")
    page.get_by_text("No, or it does not report there").click()
    expect(value("with a fence")).to_have_count(0)
    expect(page.locator("#start-commands")).to_contain_text("--epsilon 3.3 --interval 60 --out")
    page.get_by_role("radio", name="10 min").focus()
    page.keyboard.press("Space")
    expect(page.locator("#start-commands")).to_contain_text("--interval 600")
    page.get_by_role("button", name="Show it on the map").click()
    expect(page.locator("#title")).to_have_text("ε = 4 per km, lattice, hold 50 m")
    page.keyboard.press("Shift+Tab")
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#settings")).to_be_focused()
    assert urlsplit(page.url).fragment == "explore"


def test_a_lattice_is_explored_anywhere(open_page: Open, city: Live) -> None:
    page = open_page(city.url)
    expect(page.locator("#title")).to_have_text("ε = 4 per km, lattice, hold 50 m")
    vehicle = _at(page, "Vehicle")
    before = vehicle.get_attribute("aria-label") or ""
    assert metres_of(page, "Mean error of a report") == pytest.approx(500, abs=20)
    wait_until(page, lambda: share_of(page, "#64abc3") > 0.01)
    x, y = centre(vehicle)
    page.mouse.click(x - 90, y + 60)
    expect(vehicle).not_to_have_attribute("aria-label", before)
    assert centre(vehicle) == pytest.approx((x - 90, y + 60), abs=1.5)
    vehicle.focus()
    here = vehicle.get_attribute("aria-label") or ""
    page.keyboard.press("ArrowUp")
    expect(vehicle).not_to_have_attribute("aria-label", here)
    assert "." not in urlsplit(page.url).fragment  # no coordinate stands in the address


def test_nights_at_home_pass_with_a_fence_and_without(open_page: Open, city: Live) -> None:
    page = open_page(city.url, "home")
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
    wait_until(page, lambda: share_of(page, "#0e6f8c") > 0.001)  # the fence
    wait_until(page, lambda: share_of(page, "#ede2d8") > 0.02)  # the attacker's circle
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


def test_the_promise_of_a_lattice_is_drawn(open_page: Open, city: Live) -> None:
    page = open_page(city.url, "promise")
    expect(page.locator("#lead")).to_contain_text("A stay costs one report, however long")
    labels = page.locator(".ring-label")
    expect(labels).to_have_text(["× 2: 170 m", "× 10: 580 m", "× 100: 1.2 km"])
    wait_until(page, lambda: share_of(page, "#0e6f8c") > 0.001)
    nights = page.locator("#promise-words table").first.locator("tbody tr td:last-child")
    assert nights.all_inner_texts() == ["6 m", "19 m", "38 m"]
    page.goto(f"{city.url}/#explore")
    expect(labels).to_have_count(0)


def test_the_browser_reports_by_itself(open_page: Open, city: Live) -> None:
    """In the page: no request is made after the bundle is there."""
    page = open_page(city.url, "try")
    page.wait_for_selector("body[data-tried=ready]")
    (bundle,) = city.client.get("/explore/overview").json()["bundles"]
    promised = bundle["promise"]["in_one_sentence"].removeprefix("In one sentence: e")
    expect(page.locator("#try-verified")).to_contain_text("Verified exactly by this browser")
    expect(page.locator("#try-verified")).to_contain_text(f"E{promised}")
    page.wait_for_load_state("networkidle")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(f"{request.url} {request.post_data}"))
    vehicle = _at(page, "You")
    x, y = centre(vehicle)
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
    wait_until(page, lambda: share_of(page, "#0e6f8c") > 0.001)
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
    page = open_page(city.url, "try")
    page.wait_for_selector("body[data-tried=ready]")
    sha256 = page.evaluate("(async () => (await (await fetch('/explore/overview')).json()).bundles[0].sha256)()")
    first = page.evaluate(KEEP_A_LEDGER, ["car", sha256])
    assert first == [[True, "LedgerError", 36, False, "LedgerError"]] * 2
    page.reload()
    page.wait_for_selector("body[data-ready=true]", state="attached")
    again = page.evaluate(KEEP_A_LEDGER, ["car", sha256])
    assert again == [[False, "LedgerError", 32, False, "LedgerError"]] * 2
