/** Rings of equal odds around a point: what ε means on this map. */

/* global maplibregl */
import { beside, boxAt, circle } from "./geometry.js";
import { PointMarker } from "./markers.js";
import { bundleInWords, element, metres } from "./words.js";

/** How many times as probable, and where on its ring that is written, radians. */
const RINGS = [
  { factor: 2, angle: 0.5 * Math.PI },
  { factor: 10, angle: 0.2 * Math.PI },
  { factor: 100, angle: -0.3 * Math.PI },
];

/** Rings whose largest one is smaller have no room for words. */
const LEAST_PIXELS = 130;

/** How far two coordinates may be apart so that the odds between them shift by a factor at most, metres. */
export const ringMetres = (factor, epsilon) => (1000 * Math.log(factor)) / epsilon;

/** @param {object} bundle @param {"report"|"night"} what */
export const spent = (bundle, what) => (what === "night" ? bundle.night_cost : bundle.epsilon);

export const ringFactors = RINGS.map(({ factor }) => factor);

export class RingsView {
  constructor(state, overview, map) {
    this.state = state;
    this.overview = overview;
    this.map = map;
    this.labels = [];
    this.centre = new PointMarker(map, "present", "Centre of the rings", {
      step: () => 100,
      moved: (point) => state.set({ point }),
    });
    map.map.on("click", ({ lngLat: { lng, lat } }) => {
      if (this.active) state.set({ point: [lng, lat] });
    });
    state.on(["view", "a", "point", "rings"], () => this.show());
    map.map.on("zoomend", () => this.active && this.showLabels());
    state.on(["view", "a"], () => requestAnimationFrame(() => this.fit()));
  }

  get bundle() {
    return this.overview.bundles.find((bundle) => bundle.sha256 === this.state.values.a);
  }

  get active() {
    return this.state.values.view === "promise" && this.bundle.kind === "lattice";
  }

  show() {
    this.showLabels();
    if (!this.active) {
      this.map.showRings([]);
      this.centre.put(null);
      return;
    }
    const { point, rings } = this.state.values;
    const epsilon = spent(this.bundle, rings);
    this.map.showHeat([], []);
    this.map.showWays([], []);
    this.map.showRings(RINGS.map(({ factor }) => circle(point, ringMetres(factor, epsilon))));
    this.centre.put(point);
    document.getElementById("title-a").textContent = bundleInWords(this.bundle);
  }

  /** Write on each ring what it is; where they are too small for that, below them. */
  showLabels() {
    for (const label of this.labels) label.remove();
    this.labels = this.active ? RINGS.map((ring, index) => this.label(ring, index)) : [];
  }

  label({ factor, angle }, index) {
    const { point, rings } = this.state.values;
    const epsilon = spent(this.bundle, rings);
    const away = ringMetres(factor, epsilon);
    const words = away < 1 ? "less than 1 m" : metres(away);
    const shape = element("span", { class: "ring-label" }, `× ${factor}: ${words}`);
    const radius = this.pixels(ringMetres(RINGS.at(-1).factor, epsilon));
    const options = { element: shape, offset: [0, radius < LEAST_PIXELS ? Math.max(radius, 14) + 20 + 27 * index : 0] };
    const at = radius < LEAST_PIXELS ? point : beside(point, away * Math.cos(angle), away * Math.sin(angle));
    const label = new maplibregl.Marker(options).setLngLat(at).addTo(this.map.map);
    shape.setAttribute("aria-label", `${factor} times as probable at most, ${words} away`);
    return label;
  }

  /** Metres around the point on the screen. */
  pixels(away) {
    const { point } = this.state.values;
    const [here, there] = [point, beside(point, away, 0)].map((at) => this.map.map.project(at));
    return Math.abs(there.x - here.x);
  }

  /** Show the rings of one report in full: those of a night then look as small as they are. */
  fit() {
    if (!this.active) return;
    this.map.map.resize();
    this.map.fit(boxAt(this.state.values.point, 1.15 * ringMetres(RINGS.at(-1).factor, this.bundle.epsilon)));
  }
}
