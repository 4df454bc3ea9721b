/** The page: what is chosen, the maps, the views that show it, and the way between them. */

import { ChooseView } from "./choose.js";
import { CityMap } from "./city_map.js";
import { LifeMap } from "./life_map.js";
import { overview as askOverview } from "./service.js";
import { addressOf, possible, readAddress } from "./settings.js";
import { StoryView } from "./story.js";
import { followTheme } from "./theme.js";
import { TryView } from "./try.js";
import { byId, drawn } from "./words.js";

const VIEWS = { story: StoryView, choose: ChooseView, try: TryView };

class Page {
  constructor(overview) {
    const { a, b } = readAddress(window.location.hash);
    this.overview = overview;
    /** The view, the setting, and one to compare it with. A home that somebody picked stays out of it, and of the address. */
    this.state = { view: null, a: a ?? possible(overview.setting), b };
    this.homeAsked = null;
    this.stage = { a: this.makeMap("a"), b: null };
    this.views = Object.fromEntries(Object.entries(VIEWS).map(([name, View]) => [name, new View(this)]));
  }

  makeMap(side) {
    const city = new CityMap(byId(`map-${side}`), this.overview);
    const moved = (point) => this.moveHome(point);
    city.map.on("click", ({ lngLat }) => this.state.view === "choose" && moved(lngLat.toArray()));
    return new LifeMap(city, moved);
  }

  /** Whether all maps have drawn what they were given. */
  get settled() {
    return [this.stage.a, this.stage.b].every((each) => !each || each.map.settled);
  }

  /** Drive to another home. */
  moveHome([lon, lat]) {
    this.homeAsked = { lat, lon };
    byId("trip").value = "";
    if (this.state.view === "story") this.go("choose");
    else this.views.choose.begin();
  }

  /** Show one map, or two that move together. */
  async showMaps(count) {
    byId("frame-b").hidden = count < 2;
    document.body.dataset.maps = String(count);
    await drawn();
    if (count > 1 && !this.stage.b) {
      this.stage.b = this.makeMap("b");
      const maps = [this.stage.a, this.stage.b].map(({ map }) => map.map);
      let leader = null;
      for (const [one, other] of [maps, [...maps].reverse()]) {
        one.on("move", () => {
          if (leader === other || byId("frame-b").hidden) return;
          leader = one;
          other.jumpTo({ center: one.getCenter(), zoom: one.getZoom() });
          leader = null;
        });
      }
    }
    for (const each of [this.stage.a, this.stage.b]) each?.map.map.resize();
    if (this.stage.b) await this.stage.b.map.ready;
    if (count < 2) byId("title-b").textContent = "";
  }

  /** Change what is chosen, and the address with it. */
  change(changes) {
    Object.assign(this.state, changes);
    window.history.replaceState(null, "", addressOf(this.state));
  }

  /** Go to a view, as a link would. */
  go(view) {
    window.location.hash = addressOf({ ...this.state, view });
  }

  /** Follow the address. */
  async follow() {
    const { view: asked, a, b } = readAddress(window.location.hash);
    const view = asked in VIEWS ? asked : "story";
    const before = this.state.view;
    this.state.a = a ?? this.state.a;
    if (a) this.state.b = b;
    this.state.view = view;
    document.body.dataset.view = view;
    for (const link of document.querySelectorAll("nav a")) {
      const isHere = link.dataset.view === view;
      link.toggleAttribute("aria-current", isHere);
      if (isHere) link.setAttribute("aria-current", "page");
      link.href = addressOf({ ...this.state, view: link.dataset.view });
    }
    this.views[before]?.leave();
    if (view !== "choose") await this.showMaps(1);
    for (const side of ["a", "b"]) byId(`title-${side}`).textContent = "";
    this.tell(null);
    await this.views[view].enter();
  }

  /** Tell what went wrong; null: nothing. @param {Error|null} error */
  tell(error) {
    byId("problem").hidden = error === null;
    byId("problem").textContent = error === null ? "" : error.message;
  }

  /** Do some work, and tell what went wrong with it. @param {() => Promise<void>} work */
  async attempt(work) {
    try {
      await work();
      this.tell(null);
    } catch (error) {
      this.tell(error);
    }
  }
}

/** The address stands for the view, so the link to the content must not change it. */
function skipTo(event) {
  event.preventDefault();
  byId("side").focus();
}

async function start() {
  const page = new Page(await askOverview());
  const { stage } = page;
  let first = true;
  followTheme(byId("theme"), () => {
    if (!first) for (const each of [stage.a, page.stage.b]) each?.map.paint();
    first = false;
  });
  byId("skip").addEventListener("click", skipTo);
  window.addEventListener("hashchange", () => page.follow());
  await stage.a.map.ready;
  const following = page.follow();
  await stage.a.map.loaded;
  document.body.dataset.ready = "true";
  await following;
  document.body.dataset.shown = "true";
}

start().catch((error) => {
  byId("problem").hidden = false;
  byId("problem").textContent = error.message;
});
