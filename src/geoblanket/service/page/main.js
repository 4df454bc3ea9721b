/** The page: what is chosen, the views that show it, and the way between them. */

import { Choice } from "./choice.js";
import { CityMap, moveTogether } from "./city_map.js";
import { nearestPlace } from "./geometry.js";
import { showLegend } from "./legend.js";
import { PlacesView } from "./places_view.js";
import { showPromise } from "./promise_view.js";
import { ReplayView } from "./replay_view.js";
import { cells as askCells, overview as askOverview } from "./service.js";
import { State } from "./state.js";
import { followTheme } from "./theme.js";

const VIEWS = ["explore", "compare", "replay", "promise"];

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
    " other places, or none, and cannot be on this map.";
}

/** Where to begin: in the middle of the city, with the mechanism of middle ε that looks at the past. */
function beginning(overview) {
  const bundles = [...overview.bundles].sort((a, b) => a.epsilon - b.epsilon);
  const withPast = bundles.filter((bundle) => bundle.history_weights.some((weight) => weight !== 0));
  const usual = withPast.length ? withPast : bundles;
  const first = usual[Math.floor((usual.length - 1) / 2)];
  const higher = usual.find((bundle) => bundle.epsilon > first.epsilon);
  const second = higher ?? bundles.find((bundle) => bundle !== first) ?? first;
  const inside = first.zone.flatMap((zone, place) => (zone < 0 ? [] : [place]));
  const middle = [0, 1].map((axis) => inside.reduce((sum, place) => sum + overview.places[place][axis], 0) / inside.length);
  const place = nearestPlace(overview.places, inside, middle);
  const others = inside.filter((other) => other !== place && first.zone[other] === first.zone[place]);
  return {
    view: null, layer: "report", prior: overview.traffic ? "traffic" : "equal", draws: 0,
    a: first.sha256, b: second.sha256, regime: first.regimes[0],
    place, previous: nearestPlace(overview.places, others.length ? others : inside, overview.places[place]), output: null,
  }; // prettier-ignore
}

/** The places of the zone where the vehicle is. */
function sameZone({ bundles }, { a, place }) {
  const { zone } = bundles.find((bundle) => bundle.sha256 === a);
  return zone.flatMap((number, other) => (number === zone[place] ? [other] : []));
}

/** After a change of the view: maps have another size, and the vehicle may be out of sight. */
function showAgain(maps, state, overview) {
  for (const { map } of maps) map.resize();
  if (["explore", "compare"].includes(state.values.view)) maps[0].fit(sameZone(overview, state.values));
}

function followAddress(state, overview) {
  const go = () => {
    const asked = window.location.hash.slice(1);
    const view = VIEWS.includes(asked) && (asked !== "replay" || overview.trips.length) ? asked : "explore";
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
  if (!overview.bundles.length) throw new Error("No bundle that is served has places, so there is no map to show.");
  tellLeftOut(overview);
  const state = new State(beginning(overview));
  const cells = askCells();
  const first = new CityMap("map-a", overview, sameZone(overview, state.values), cells);
  const maps = [first];
  const second = () => {
    if (maps.length < 2) {
      maps.push(new CityMap("map-b", overview, sameZone(overview, state.values), cells));
      moveTogether(...maps);
      maps[1].map.jumpTo({ center: first.map.getCenter(), zoom: first.map.getZoom() });
      maps[1].showBorders(state.values.b).catch(report);
    }
    return maps[1];
  };
  const paint = () => {
    const { view, layer } = state.values;
    showLegend(byId("legend"), view === "replay" ? "replay" : layer);
    for (const map of maps) map.paint(layer);
  };
  for (const link of document.querySelectorAll('nav a[href="#replay"]')) link.hidden = !overview.trips.length;
  for (const name of ["a", "b"]) {
    const choice = new Choice(byId(`choice-${name}`), name, overview.bundles, (sha256) => state.set({ [name]: sha256, output: null }));
    choice.show(state.values[name]);
    state.on([name], () => choice.show(state.values[name]));
    state.on([name], () => maps["ab".indexOf(name)]?.showBorders(state.values[name]).catch(report));
  }
  new PlacesView(state, overview, { a: first, b: second }, report);
  new ReplayView(state, overview, first, report);
  state.on(["a", "view"], () =>
    showPromise(byId("promise"), overview.bundles.find((bundle) => bundle.sha256 === state.values.a)),
  );
  state.on(["view"], () => requestAnimationFrame(() => showAgain(maps, state, overview)));
  state.on(["view", "layer"], paint);
  followTheme(byId("theme"), paint);
  first.showBorders(state.values.a).catch(report);
  followAddress(state, overview);
  await first.loaded;
  document.body.dataset.ready = "true";
}

start().catch(report);
