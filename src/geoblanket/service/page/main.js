/** The page: what is chosen, the views that show it, and the way between them. */

import { Choice } from "./choice.js";
import { CityMap, moveTogether } from "./city_map.js";
import { CityReplayView } from "./city_replay_view.js";
import { boxAround, boxAt, nearestPlace } from "./geometry.js";
import { HomeView } from "./home_view.js";
import { showLegend } from "./legend.js";
import { PlacesView } from "./places_view.js";
import { PlanView } from "./plan_view.js";
import { showPromise } from "./promise_view.js";
import { ReplayView } from "./replay_view.js";
import { RingsView } from "./rings_view.js";
import { cells as askCells, overview as askOverview } from "./service.js";
import { StartView } from "./start_view.js";
import { State } from "./state.js";
import { followTheme } from "./theme.js";
import { TryView } from "./try_view.js";

const VIEWS = ["start", "explore", "compare", "home", "replay", "promise", "try"];

const byId = (id) => document.getElementById(id);

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

/** Where to begin: with a mechanism of middle ε, a lattice if there is one. */
function beginning(overview) {
  const lattices = overview.bundles.filter((bundle) => bundle.kind === "lattice");
  const zoned = overview.bundles.filter((bundle) => bundle.kind === "zones");
  const first = lattices.length ? middleOf(lattices, ({ lattice }) => lattice.hold_m) : middleOf(zoned, looksBack);
  return {
    view: null, layer: "report", prior: overview.traffic ? "traffic" : "equal", draws: 0, output: null,
    advice: null, a: first.sha256, b: contrast(overview.bundles, first).sha256,
    ...somewhere(overview, first.kind === "zones" ? first : zoned[0]),
  }; // prettier-ignore
}

const looksBack = ({ history_weights: weights }) => weights.some((weight) => weight !== 0);
const byEpsilon = (bundles) => [...bundles].sort((a, b) => a.epsilon - b.epsilon);

/** The bundle of middle ε among those that are usual, if any are. */
function middleOf(bundles, isUsual) {
  const usual = bundles.filter(isUsual);
  const sorted = byEpsilon(usual.length ? usual : bundles);
  return sorted[Math.floor((sorted.length - 1) / 2)];
}

/** What to compare a bundle with: of its kind, the one whose ε differs most and little else; or else any other. */
function contrast(bundles, first) {
  const apart = ({ epsilon }) => Math.abs(Math.log(epsilon / first.epsilon));
  const past = ({ history_weights: weights, lattice }) => JSON.stringify([weights, lattice?.hold_m > 0]);
  const differs = (bundle) => Number(past(bundle) !== past(first));
  const others = byEpsilon(bundles).reverse().filter((bundle) => bundle !== first); // prettier-ignore
  const alike = others.filter((bundle) => bundle.kind === first.kind && bundle.epsilon !== first.epsilon);
  return alike.sort((a, b) => apart(b) - apart(a) || differs(a) - differs(b))[0] ?? others[0] ?? first;
}

/** How far the vehicle is from the city's corner in the south-west at first, in sides. */
const [EASTWARD, NORTHWARD] = [0.35, 0.62];

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

/** What is to be seen first: the zone where the vehicle is, or as far as most reports of a lattice fall. */
function inSight({ bundles, places }, { a, place, point }) {
  const { kind, zone, figures } = bundles.find((bundle) => bundle.sha256 === a);
  if (kind === "lattice") return boxAt(point, figures.most_error_m);
  return boxAround(zone.flatMap((number, other) => (number === zone[place] ? [places[other]] : [])));
}

/** After a change of the view: maps have another size, and the vehicle may be out of sight. */
function showAgain(maps, state, overview) {
  for (const { map } of maps) map.resize();
  if (["explore", "compare"].includes(state.values.view)) maps[0].fit(inSight(overview, state.values));
}

/** Bundles with zones need walks; for a lattice a drive can be made up. */
const canReplay = ({ trips, bundles }) => trips.length > 0 || hasLattice({ bundles });

/** Homes are for lattices, and the browser reads no other bundles. */
const hasLattice = ({ bundles }) => bundles.some((bundle) => bundle.kind === "lattice");

function followAddress(state, overview) {
  const go = () => {
    const asked = window.location.hash.slice(1);
    const possible = { home: hasLattice(overview), replay: canReplay(overview), try: hasLattice(overview) };
    const view = VIEWS.includes(asked) && (possible[asked] ?? true) ? asked : "start";
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

async function start() {
  const overview = await askOverview();
  if (!overview.bundles.length) {
    throw new Error("No bundle that is served has places or a lattice, so there is no map to show.");
  }
  tellLeftOut(overview);
  const state = new State(beginning(overview));
  const bundle = (name) => overview.bundles.find(({ sha256 }) => sha256 === state.values[name]);
  const kinds = () => [...new Set((state.values.view === "compare" ? ["a", "b"] : ["a"]).map((name) => bundle(name).kind))];
  const cells = overview.places.length ? askCells() : new Map();
  const first = new CityMap("map-a", overview, inSight(overview, state.values), cells);
  const maps = [first];
  const second = () => {
    if (maps.length < 2) {
      maps.push(new CityMap("map-b", overview, inSight(overview, state.values), cells));
      moveTogether(...maps);
      maps[1].map.jumpTo({ center: first.map.getCenter(), zoom: first.map.getZoom() });
      maps[1].paint(state.values.layer);
      maps[1].showBorders(bundle("b")).catch(report);
    }
    return maps[1];
  };
  const paint = () => {
    const { view, layer } = state.values;
    document.body.dataset.kind = kinds().length > 1 ? "both" : kinds()[0];
    showLegend(byId("legend"), ["home", "replay", "try"].includes(view) ? view : layer, kinds());
    for (const map of maps) map.paint(layer);
  };
  for (const link of document.querySelectorAll('nav a[href="#replay"]')) link.hidden = !canReplay(overview);
  for (const link of document.querySelectorAll('nav a:is([href="#home"], [href="#try"])')) link.hidden = !hasLattice(overview);
  for (const name of ["a", "b"]) {
    const choice = new Choice(byId(`choice-${name}`), name, overview.bundles, (sha256) => state.set({ [name]: sha256, output: null }));
    choice.show(state.values[name]);
    state.on([name], () => choice.show(state.values[name]));
    state.on([name], () => maps["ab".indexOf(name)]?.showBorders(bundle(name)).catch(report));
  }
  state.on(["view", "layer", "a", "b"], paint);
  state.on(["view"], () => {
    const { view, a, b } = state.values; // two that are alike are no comparison
    if (view === "compare" && a === b) state.set({ b: contrast(overview.bundles, bundle("a")).sha256 });
  });
  new PlacesView(state, overview, { a: first, b: second }, report);
  new ReplayView(state, overview, first, report);
  new CityReplayView(state, overview, first, report);
  new HomeView(state, overview, first, report);
  new PlanView(state, overview);
  new RingsView(state, overview, first);
  new StartView(state, overview, report);
  new TryView(state, overview, first, report);
  state.on(["a", "view"], () => showPromise(byId("promise-words"), bundle("a")));
  state.on(["view"], () => requestAnimationFrame(() => showAgain(maps, state, overview)));
  let kind = bundle("a").kind;
  state.on(["a"], () => {
    if (bundle("a").kind !== kind) requestAnimationFrame(() => showAgain(maps, state, overview));
    kind = bundle("a").kind;
  });
  byId("skip").addEventListener("click", skipTo);
  followTheme(byId("theme"), paint);
  first.showBorders(bundle("a")).catch(report);
  followAddress(state, overview);
  await first.loaded;
  document.body.dataset.ready = "true";
}

start().catch(report);
