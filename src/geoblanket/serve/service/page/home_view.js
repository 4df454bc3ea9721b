/** A home over thirty nights: the attacker's circle closes in on it without a fence, and stays off with one. */

import { errorChart } from "./chart.js";
import { boxAround, boxAt, circle } from "./geometry.js";
import { PointMarker } from "./markers.js";
import { Player } from "./player.js";
import * as service from "./service.js";
import { figuresTable } from "./tables.js";
import { byId, View } from "./view.js";
import { bundleInWords, every, metres, number, percent } from "./words.js";

/** What the sliders choose from. A fence of 0 km is none. */
const FENCES_KM = [0, 0.25, 0.5, 1, 1.5, 2];
const INTERVALS_S = [30, 60, 120, 300, 600];
const SHOWN_NIGHTS = [1, 7, 30];
const NIGHT_MS = 400;

const nightsInWords = (count) => (count === 1 ? "one night" : `${count} nights`);

export class HomeView extends View {
  constructor(...parts) {
    super("home", ...parts);
    const { state, map } = this;
    Object.assign(this, { lived: null, chosen: null });
    this.load = service.latestOnly((question) => service.home(question));
    this.markers = {
      guess: new PointMarker(map, "guess", "The attacker's guess"),
      reported: new PointMarker(map, "reported", "Reported"),
      home: new PointMarker(map, "present", "Home", { step: () => 100, moved: (point) => state.set({ point }) }),
    };
    for (const id of ["home-fence", "home-hold", "home-interval"]) byId(id).addEventListener("change", () => this.begin());
    for (const id of ["home-fence", "home-interval"]) byId(id).addEventListener("input", () => this.showChoices());
    byId("home-again").addEventListener("click", () => this.begin());
    this.player = new Player(byId("home-play"), byId("home-night"), byId("home-clock"), {
      show: (now) => this.show(now),
      reportMs: () => NIGHT_MS,
    });
    this.onClick((point) => state.set({ point }));
    state.on(["view", "bundle", "point"], () => this.begin());
  }

  /** What is asked of the service; null for the radius: no fence. */
  get choices() {
    return {
      hold: byId("home-hold").checked,
      interval_s: INTERVALS_S[byId("home-interval").value],
      radius_km: FENCES_KM[byId("home-fence").value] || null,
    };
  }

  /** Hold and interval as the bundle has them, until somebody chooses others. */
  takeBundle() {
    if (this.chosen === this.latticeBundle) return;
    this.chosen = this.latticeBundle;
    byId("home-hold").checked = this.latticeBundle.lattice.hold_m > 0;
    const longer = INTERVALS_S.findIndex((seconds) => seconds >= this.latticeBundle.interval_s);
    byId("home-interval").value = longer < 0 ? INTERVALS_S.length - 1 : longer;
  }

  showChoices() {
    const { hold, interval_s: interval, radius_km: radius } = this.choices;
    const fence = radius === null ? "none" : `${number(radius)} km`;
    byId("home-fence-value").textContent = fence;
    byId("home-fence").setAttribute("aria-valuetext", fence);
    byId("home-interval-value").textContent = every(interval);
    byId("home-interval").setAttribute("aria-valuetext", every(interval));
    byId("home-interval").disabled = hold;
    byId("home-interval-hint").textContent = hold
      ? "With hold a stay is one draw, however often it is reported."
      : "Without hold every report is a new draw.";
  }

  async begin() {
    this.player.stop();
    if (!this.active) {
      if (this.lived) {
        this.map.showWithin(null);
        this.map.showRings([]);
      }
      for (const marker of Object.values(this.markers)) marker.put(null);
      this.lived = null;
      return;
    }
    this.takeBundle();
    this.showChoices();
    byId("title").textContent = bundleInWords(this.latticeBundle);
    this.map.clearHeat();
    const { point } = this.state.values;
    const [lon, lat] = point;
    this.markers.home.put(point);
    const question = { bundle: this.latticeBundle.sha256, lat, lon, ...this.choices };
    await this.attempt(() => this.load((lived) => this.take(lived, point), question));
  }

  take(lived, home) {
    if (!this.active) return; // another view took the map meanwhile
    const isFirst = this.lived === null;
    this.lived = { ...lived, home };
    this.player.take(lived.bare.error_m.map((_, index) => `night ${index + 1}`));
    const { fence, circle_m: radii } = this.shown;
    const disc = fence ? circle(fence.center, fence.radius_m) : [];
    this.map.fit(boxAround([...boxAt(home, Math.max(600, Math.min(radii[0], 2500))), ...disc]));
    this.player.show(isFirst ? this.player.last : Math.min(this.player.now, this.player.last));
  }

  /** The life that is drawn: with the fence, if there is one. */
  get shown() {
    return this.lived.fenced ?? this.lived.bare;
  }

  show(now) {
    const { reports, guesses, circle_m: radii, fence } = this.shown;
    this.map.showWays([], reports.slice(0, now + 1).map((at) => ({ at, age: 0.5 })));
    this.map.showWithin(circle(guesses[now], radii[now]));
    this.map.showRings(fence ? [circle(fence.center, fence.radius_m)] : []);
    this.markers.guess.put(guesses[now]);
    this.markers.reported.put(reports[now]);
    byId("home-words").textContent = this.words(now);
    byId("home-figures").replaceChildren(this.figures());
    this.showChart(now);
  }

  words(now) {
    const { bare, fenced } = this.lived;
    const after = `After ${nightsInWords(now + 1)} `;
    const found = metres(bare.error_m[now]);
    if (!fenced) return `${after}an attacker is ${found} off the home, on average over ${bare.lives} simulated lives.`;
    return (
      `${after}an attacker is ${metres(fenced.error_m[now])} off the home with the fence, and ${found} off without it, on ` +
      `average over ${fenced.lives} simulated lives.`
    );
  }

  figures() {
    const { bare, fenced } = this.lived;
    const columns = fenced ? [bare, fenced] : [bare];
    const off = (nights) => columns.map(({ error_m: errors }) => metres(errors[nights - 1]));
    const cost = `${number(30 * bare.draws * this.latticeBundle.epsilon)} per km`;
    const rows = [
      ...SHOWN_NIGHTS.map((nights) => [`After ${nightsInWords(nights)}`, "how far off the attacker is, on average", ...off(nights)]),
      [
        "30 nights cost",
        fenced ? "ε for each draw; with the fence δ, for two homes 100 m apart, once and for life" : "ε for each draw",
        cost,
        ...(fenced ? [`δ = ${percent(fenced.fence.delta_100_m)}`] : []),
      ],
    ];
    return figuresTable(rows, fenced ? ["no fence", "fence"] : []);
  }

  showChart(now) {
    const { bare, fenced } = this.lived;
    const lines = [
      { kind: fenced ? "rival" : "guess", values: bare.error_m, words: "without a fence" },
      ...(fenced ? [{ kind: "guess", values: fenced.error_m, words: "with the fence" }] : []),
    ];
    byId("home-chart").replaceChildren(...errorChart(lines, now, { first: "night 1", last: "night 30", each: "after each night" }));
  }
}
