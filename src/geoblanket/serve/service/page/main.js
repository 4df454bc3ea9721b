/** The page: what is chosen, the views that show it, and the way between them. */

import { CityMap } from "./city_map.js";
import { ExploreView } from "./explore_view.js";
import { boxAt, nearestPlace } from "./geometry.js";
import { HomeView } from "./home_view.js";
import { showLegend } from "./legend.js";
import { showPromise } from "./promise_view.js";
import { ReplayView } from "./replay_view.js";
import { RingsView } from "./rings_view.js";
import { overview as askOverview } from "./service.js";
import { StartView } from "./start_view.js";
import { State } from "./state.js";
import { followTheme } from "./theme.js";
import { TryView } from "./try_view.js";
import { byId } from "./view.js";
import { bundleInWords } from "./words.js";

const VIEWS = ["start", "explore", "home", "replay", "promise", "try"];

/** How far the vehicle is from the city's corner in the south-west at first, in sides. */
const [EASTWARD, NORTHWARD] = [0.35, 0.62];
const FIRST_SIGHT_M = 2000;

/** Tell what went wrong; null: nothing. @param {Error|null} error */
function report(error) {
  byId("problem").hidden = error === null;
  byId("problem").textContent = error === null ? "" : error.message;
}

/** Bundles of other places cannot be on the same map: tell how many there are. */
function tellLeftOut({ left_out: count }) {
  byId("left-out").hidden = count === 0;
  byId("left-out").textContent =
    (count === 1 ? "One more bundle is served that has" : `${count} more bundles are served that have`) +
    " other places, another frame, or neither, and cannot be on this map.";
}

/** Lattices first; then in order of ε and of the weight of the past. */
function inOrder(bundles) {
  const past = ({ history_weights: weights }) => weights.reduce((sum, weight) => sum + (weight ?? 1e9), 0);
  const rank = ({ kind }) => Number(kind === "zones");
  return [...bundles].sort((a, b) => rank(a) - rank(b) || a.epsilon - b.epsilon || past(a) - past(b));
}

/** Where to begin: with a mechanism of middle ε, a lattice if there is one. */
function beginning(overview) {
  const bundles = inOrder(overview.bundles);
  const alike = bundles.filter(({ kind }) => kind === bundles[0].kind);
  const zoned = bundles.find(({ kind }) => kind === "zones");
  const { sha256 } = alike[Math.floor((alike.length - 1) / 2)];
  return { view: null, bundle: sha256, advice: null, ...somewhere(overview, zoned) };
}

/**
 * Where the vehicle is at first, and a place beside it to come from. Not in the middle of the city: that is a good guess
 * without any report, so that a vehicle there would seem easy to find.
 */
function somewhere({ area, middle, places }, zoned) {
  const [south, west, north, east] = area ?? [];
  const point = area ? [west + EASTWARD * (east - west), south + NORTHWARD * (north - south)] : middle;
  if (!zoned) return { place: null, previous: null, regime: null, point };
  const { zone, regimes } = zoned;
  const inside = zone.flatMap((number, place) => (number < 0 ? [] : [place]));
  const place = nearestPlace(places, inside, point);
  const others = inside.filter((other) => other !== place && zone[other] === zone[place]);
  const previous = nearestPlace(places, others.length ? others : inside, places[place]);
  return { place, previous, regime: regimes[0], point: places[place] };
}

/** Which views there is something to show in. Homes are for lattices, and the browser reads no other bundles. */
function possibleViews({ bundles, roads, trips }) {
  const lattice = bundles.some(({ kind }) => kind === "lattice");
  const possible = { home: lattice, try: lattice, replay: trips.length > 0 || (lattice && roads) };
  return VIEWS.filter((view) => possible[view] ?? true);
}

function followAddress(state, views) {
  const go = () => {
    const asked = window.location.hash.slice(1);
    const view = views.includes(asked) ? asked : "start";
    document.body.dataset.view = view;
    for (const link of document.querySelectorAll("nav a")) {
      if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    state.set({ view });
  };
  window.addEventListener("hashchange", go);
  go();
}

/** The address stands for the view, so the link to the content must not change it. */
function skipTo(event) {
  event.preventDefault();
  [...document.querySelectorAll("#settings, .on-start, .on-promise")].find((part) => part.offsetParent !== null).focus();
}

/** Choose a bundle from a list, which is too narrow for files' names: they tell apart what else reads the same. */
function offerBundles(state, bundles) {
  const alike = (bundle) => bundles.filter((other) => bundleInWords(other) === bundleInWords(bundle)).length > 1;
  const words = (bundle) => (alike(bundle) ? `${bundle.name}: ` : "") + bundleInWords(bundle);
  const select = byId("bundle");
  select.replaceChildren(...inOrder(bundles).map((bundle) => new Option(words(bundle), bundle.sha256)));
  const show = () => {
    select.value = state.values.bundle;
    select.title = bundles.find(({ sha256 }) => sha256 === select.value).name;
  };
  select.addEventListener("change", () => state.set({ bundle: select.value }));
  state.on(["bundle"], show);
  show();
}

async function start() {
  const overview = await askOverview();
  if (!overview.bundles.length) {
    throw new Error("No bundle that is served has places or a lattice, so there is no map to show.");
  }
  tellLeftOut(overview);
  const state = new State(beginning(overview));
  const bundle = () => overview.bundles.find(({ sha256 }) => sha256 === state.values.bundle);
  const map = new CityMap("map", overview, boxAt(state.values.point, FIRST_SIGHT_M));
  const paint = () => {
    document.body.dataset.kind = bundle().kind;
    showLegend(byId("legend"), state.values.view, bundle().kind);
    map.paint();
  };
  const views = possibleViews(overview);
  for (const link of document.querySelectorAll("nav a")) link.hidden = !views.includes(link.hash.slice(1));
  offerBundles(state, overview.bundles);
  const explore = new ExploreView(state, overview, map, report);
  for (const View of [ReplayView, HomeView, RingsView, StartView, TryView]) new View(state, overview, map, report);
  state.on(["view", "bundle"], paint);
  state.on(["view", "bundle"], () => showPromise(byId("promise-words"), bundle()));
  state.on(["bundle"], () => map.showFrame(bundle().lattice));
  // The map has another size in each view, and the vehicle may be out of sight.
  state.on(["view", "bundle"], () =>
    requestAnimationFrame(() => {
      map.map.resize();
      if (explore.active) map.fit(explore.inSight);
    }),
  );
  byId("skip").addEventListener("click", skipTo);
  map.showFrame(bundle().lattice);
  followAddress(state, views);
  followTheme(byId("theme"), paint);
  await map.loaded;
  document.body.dataset.ready = "true";
}

start().catch(report);
