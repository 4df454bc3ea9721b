/** The page: what is chosen, the views that show it, and the way between them. */

import { Choice } from "./choice.js";
import { CityMap, moveTogether } from "./city_map.js";
import { CityReplayView } from "./city_replay_view.js";
import { boxAround, boxAt, nearestPlace } from "./geometry.js";
import { showLegend } from "./legend.js";
import { PlacesView } from "./places_view.js";
import { PlanView } from "./plan_view.js";
import { showPromise } from "./promise_view.js";
import { ReplayView } from "./replay_view.js";
import { RingsView } from "./rings_view.js";
import { cells as askCells, overview as askOverview } from "./service.js";
import { State } from "./state.js";
import { followTheme } from "./theme.js";
import { TryView } from "./try_view.js";

const VIEWS = ["explore", "compare", "replay", "promise", "try"];

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

/** Where to begin: in the middle of the city, with a mechanism of middle ε, one with zones that looks at the past if any. */
function beginning(overview) {
  const common = {
    view: null, layer: "report", prior: overview.traffic ? "traffic" : "equal", draws: 0, output: null, anchored: true,
    drawn: "anchored", rings: "report", place: null, previous: null, regime: null, point: overview.middle,
  }; // prettier-ignore
  const zoned = overview.bundles.filter((bundle) => bundle.kind === "zones");
  return { ...common, ...(zoned.length ? amongZones(overview, zoned) : amongLattices(overview.bundles)) };
}

function amongLattices(bundles) {
  const sorted = [...bundles].sort((a, b) => a.epsilon - b.epsilon);
  const anchored = sorted.filter((bundle) => bundle.lattice.anchor);
  const usual = anchored.length ? anchored : sorted;
  const first = usual[Math.floor((usual.length - 1) / 2)];
  const second = usual.find((bundle) => bundle.epsilon > first.epsilon) ?? sorted.find((bundle) => bundle !== first) ?? first;
  return { a: first.sha256, b: second.sha256 };
}

function amongZones(overview, zoned) {
  const bundles = zoned.sort((a, b) => a.epsilon - b.epsilon);
  const withPast = bundles.filter((bundle) => bundle.history_weights.some((weight) => weight !== 0));
  const usual = withPast.length ? withPast : bundles;
  const first = usual[Math.floor((usual.length - 1) / 2)];
  const higher = usual.find((bundle) => bundle.epsilon > first.epsilon);
  const another = overview.bundles.find((bundle) => bundle !== first);
  const second = higher ?? bundles.find((bundle) => bundle !== first) ?? another ?? first;
  const inside = first.zone.flatMap((zone, place) => (zone < 0 ? [] : [place]));
  const middle = [0, 1].map((axis) => inside.reduce((sum, place) => sum + overview.places[place][axis], 0) / inside.length);
  const place = nearestPlace(overview.places, inside, middle);
  const others = inside.filter((other) => other !== place && first.zone[other] === first.zone[place]);
  const previous = nearestPlace(overview.places, others.length ? others : inside, overview.places[place]);
  const [{ sha256: a, regimes }, { sha256: b }] = [first, second];
  return { a, b, regime: regimes[0], place, previous, point: overview.places[place] };
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

/** Bundles with zones need walks; a lattice can park a car anywhere. */
const canReplay = ({ trips, bundles }) => trips.length > 0 || canTry({ bundles });

/** The browser reads bundles with a lattice only. */
const canTry = ({ bundles }) => bundles.some((bundle) => bundle.kind === "lattice");

function followAddress(state, overview) {
  const go = () => {
    const asked = window.location.hash.slice(1);
    const possible = { replay: canReplay(overview), try: canTry(overview) };
    const view = VIEWS.includes(asked) && (possible[asked] ?? true) ? asked : "explore";
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
    showLegend(byId("legend"), ["replay", "try"].includes(view) ? view : layer, kinds());
    for (const map of maps) map.paint(layer);
  };
  for (const link of document.querySelectorAll('nav a[href="#replay"]')) link.hidden = !canReplay(overview);
  for (const link of document.querySelectorAll('nav a[href="#try"]')) link.hidden = !canTry(overview);
  for (const name of ["a", "b"]) {
    const choice = new Choice(byId(`choice-${name}`), name, overview.bundles, (sha256) => state.set({ [name]: sha256, output: null }));
    choice.show(state.values[name]);
    state.on([name], () => choice.show(state.values[name]));
    state.on([name], () => maps["ab".indexOf(name)]?.showBorders(bundle(name)).catch(report));
  }
  state.on(["view", "layer", "a", "b"], paint);
  new PlacesView(state, overview, { a: first, b: second }, report);
  new ReplayView(state, overview, first, report);
  new CityReplayView(state, overview, first, report);
  new PlanView(state, overview);
  new RingsView(state, overview, first);
  new TryView(state, overview, first, report);
  state.on(["a", "view"], () => showPromise(byId("promise-words"), bundle("a"), state));
  state.on(["view"], () => requestAnimationFrame(() => showAgain(maps, state, overview)));
  let kind = bundle("a").kind;
  state.on(["a"], () => {
    if (bundle("a").kind !== kind) requestAnimationFrame(() => showAgain(maps, state, overview));
    kind = bundle("a").kind;
  });
  followTheme(byId("theme"), paint);
  first.showBorders(bundle("a")).catch(report);
  followAddress(state, overview);
  await first.loaded;
  document.body.dataset.ready = "true";
}

start().catch(report);
