/** Rings around a point: distances of reports, or distances at which odds change by a factor, the meaning of ε. */

/* global maplibregl */
import { beside, boxAt, circle } from "./geometry.js";
import { PointMarker } from "./markers.js";
import { byId, View } from "./view.js";
import { bundleInWords, element, metres } from "./words.js";

/** Factors of the odds, and the angle of each label on its ring, radians. */
const RINGS = [
  { factor: 2, angle: 0.5 * Math.PI },
  { factor: 10, angle: 0.2 * Math.PI },
  { factor: 100, angle: -0.3 * Math.PI },
];

/** Rings whose largest one is smaller have no room for words. */
const LEAST_PIXELS = 130;

/** Largest distance of two coordinates whose odds change by at most a factor, metres. */
export const ringMetres = (factor, epsilon) => (1000 * Math.log(factor)) / epsilon;

export const ringFactors = RINGS.map(({ factor }) => factor);

export class RingsView extends View {
  constructor(...parts) {
    super("promise", ...parts);
    const { state, map } = this;
    this.labels = [];
    this.centre = new PointMarker(map, "present", "Vehicle", {
      step: () => 100,
      moved: (point) => state.set({ point }),
    });
    this.onClick((point) => state.set({ point }));
    state.on(["view", "bundle", "point", "advice"], () => this.show());
    map.map.on("zoomend", () => this.active && this.showLabels());
    state.on(["view", "bundle", "advice"], () => requestAnimationFrame(() => this.fit()));
  }

  get active() {
    const { view, advice } = this.state.values;
    return view === "start" ? advice !== null : view === "promise" && this.bundle.kind === "lattice";
  }

  /** Radius of each ring in metres, angle and text of its label, and its description. */
  get rings() {
    const { view, advice } = this.state.values;
    if (view === "start") return ofReports(advice);
    return RINGS.map(({ factor, angle }) => {
      const away = ringMetres(factor, this.bundle.epsilon);
      const words = away < 1 ? "less than 1 m" : metres(away);
      return { away, angle, words: `× ${factor}: ${words}`, spoken: `${factor} times as probable at most, ${words} away` };
    });
  }

  /** The box of all rings. */
  get reach() {
    return this.rings.at(-1).away;
  }

  show() {
    this.showLabels();
    if (!this.active) {
      this.map.showRings([]);
      this.centre.put(null);
      return;
    }
    const { point, view } = this.state.values;
    this.map.clearHeat();
    this.map.showWays([], []);
    this.map.showRings(this.rings.map(({ away }) => circle(point, away)));
    this.centre.put(point);
    byId("title").textContent =
      view === "start" ? "Where single reports of a vehicle fall" : bundleInWords(this.bundle);
  }

  /** Write on each ring what it is; where they are too small for that, below them. */
  showLabels() {
    for (const label of this.labels) label.remove();
    this.labels = this.active ? this.rings.map((ring, index) => this.label(ring, index)) : [];
  }

  label({ away, angle, words, spoken }, index) {
    const { point } = this.state.values;
    const radius = this.pixels(this.rings.at(-1).away);
    const shape = element("span", { class: "ring-label" }, words);
    const options = { element: shape, offset: [0, radius < LEAST_PIXELS ? Math.max(radius, 14) + 20 + 27 * index : 0] };
    const at = radius < LEAST_PIXELS ? point : beside(point, away * Math.cos(angle), away * Math.sin(angle));
    const label = new maplibregl.Marker(options).setLngLat(at).addTo(this.map.map);
    shape.setAttribute("aria-label", spoken);
    return label;
  }

  /** Metres around the point on the screen. */
  pixels(away) {
    const { point } = this.state.values;
    const [here, there] = [point, beside(point, away, 0)].map((at) => this.map.map.project(at));
    return Math.abs(there.x - here.x);
  }

  /** Bring the rings into sight. */
  fit() {
    if (!this.active) return;
    this.map.map.resize();
    this.map.fit(boxAt(this.state.values.point, 1.15 * this.reach));
  }
}

/** Rings that hold half of all reports, and nearly all. */
function ofReports({ median_m: median, most_m: most }) {
  return [
    { away: median, angle: 0.5 * Math.PI, words: `half of all reports: ${metres(median)}` },
    { away: most, angle: -0.5 * Math.PI, words: `19 of 20: ${metres(most)}` },
  ].map((ring) => ({ ...ring, spoken: ring.words }));
}
