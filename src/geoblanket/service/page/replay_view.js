/** A trip that was held out: its true route, what is reported of it, and what a recipient who follows it believes. */

import { errorChart } from "./chart.js";
import { boxAround } from "./geometry.js";
import { PlaceMarker } from "./markers.js";
import { Player } from "./player.js";
import * as service from "./service.js";
import { bundleInWords, element, metres, number } from "./words.js";

const REPORTS_ALLOWED = [10, 20, 30, 45, 60, 90, null];
const TAIL = 8;
const STEP_MS = 450;

const byId = (id) => document.getElementById(id);
const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

export class ReplayView {
  constructor(state, overview, map, report) {
    this.state = state;
    this.overview = overview;
    this.map = map;
    this.report = report;
    this.replay = null;
    this.load = service.latestOnly((question) => service.replay(question));
    this.markers = [
      new PlaceMarker(map, "guess", "The recipient's guess"),
      new PlaceMarker(map, "reported", "Reported"),
      new PlaceMarker(map, "present", "True place"),
    ];
    this.wire();
    state.on(["view", "a"], () => this.begin());
  }

  get active() {
    return this.state.values.view === "replay" && this.bundle.kind === "zones" && this.overview.trips.length > 0;
  }

  get bundle() {
    return this.overview.bundles.find((bundle) => bundle.sha256 === this.state.values.a);
  }

  wire() {
    const trips = this.overview.trips.map((trip) => {
      const when = trip.start.slice(0, 16).replace("T", " ");
      const about = `${when} UTC, ${Math.round(trip.minutes)} min, ${number(trip.length_km)} km`;
      return new Option(about, trip.number);
    });
    byId("trip").replaceChildren(...trips);
    byId("trip").addEventListener("change", () => this.begin());
    byId("budget").max = REPORTS_ALLOWED.length - 1;
    byId("budget").value = REPORTS_ALLOWED.length - 1;
    byId("budget").addEventListener("input", () => this.begin());
    byId("again").addEventListener("click", () => this.begin());
    const show = (now) => this.show(now);
    this.player = new Player(byId("play"), byId("step"), byId("step-value"), { show, reportMs: () => STEP_MS });
  }

  /** What reports may cost in an hour, per km, and how many that allows; null: all of them. */
  budget() {
    const all = 3600 / this.bundle.interval_s;
    const reports = REPORTS_ALLOWED[byId("budget").value];
    const allowed = reports === null ? all : Math.min(reports, all);
    const epsilon = (allowed - 1) * this.bundle.cost + this.bundle.first_cost;
    return { epsilon, reports: allowed, all: allowed >= all };
  }

  async begin() {
    this.player.stop();
    byId("no-trips").hidden = this.overview.trips.length > 0;
    byId("walk-replay").hidden = !this.overview.trips.length;
    if (!this.active) {
      for (const marker of this.markers) marker.put(null);
      return;
    }
    const budget = this.budget();
    byId("budget-value").textContent = `${number(budget.epsilon)} per km`;
    byId("budget").setAttribute("aria-valuetext", `${number(budget.epsilon)} per kilometre`);
    byId("budget-hint").textContent =
      `A report costs ${number(this.bundle.cost)} per km, the first of a history ${number(this.bundle.first_cost)}. ` +
      (budget.all
        ? "This is enough for a report in every interval."
        : `This is enough for ${Math.floor(budget.reports)} reports; then none is made until old ones are an hour past.`);
    byId("title-a").textContent = bundleInWords(this.bundle);
    this.map.showHeat([], []);
    const question = { bundle: this.bundle.sha256, trip: Number(byId("trip").value), budget: budget.epsilon };
    try {
      await this.load((replay) => this.take(replay, budget), question);
      this.report(null);
    } catch (error) {
      this.report(error);
    }
  }

  take(replay, budget) {
    if (!this.active) return; // another view took the map meanwhile
    const another = this.replay?.trip !== byId("trip").value;
    this.replay = { ...replay, budget, trip: byId("trip").value };
    this.player.take(replay.times);
    if (another) this.map.fit(boxAround(replay.steps.map((step) => this.overview.places[step.true])));
    this.player.show(another ? this.player.last : this.player.now);
  }

  /** Show the trip up to an interval. */
  show(now) {
    const { steps, budget } = this.replay;
    const at = (place) => this.overview.places[place];
    const past = steps.slice(0, now + 1);
    const step = steps[now];
    const reported = past.flatMap(({ released }, index) =>
      released === null ? [] : [{ at: at(released), age: Math.max(0.25, 1 - (now - index) / TAIL) }],
    );
    this.map.showWays(
      [
        { kind: "released", points: reported.slice(-TAIL).map((report) => report.at) },
        { kind: "older", points: past.slice(0, 1 - TAIL).map((step) => at(step.true)) },
        { kind: "true", points: past.slice(-TAIL).map((step) => at(step.true)) },
        { kind: "guess", points: past.slice(-TAIL).map((step) => at(step.guess)) },
      ],
      reported,
    );
    const [guess, report, present] = this.markers;
    present.put(step.true);
    guess.put(step.guess);
    report.put(step.released);
    this.showBudget(step, budget);
    byId("replay-figures").replaceChildren(this.figures(past));
    const errors = { report: steps.map((step) => step.error_m), guess: steps.map((step) => step.guess_error_m) };
    byId("chart").replaceChildren(...errorChart(errors, now));
  }

  showBudget(step, budget) {
    byId("left").value = step.left / budget.epsilon;
    byId("left-value").textContent = `${number(step.left)} of ${number(budget.epsilon)} per km`;
  }

  figures(past) {
    const made = past.flatMap((step) => (step.error_m === null ? [] : [step.error_m]));
    const rows = [
      ["Reports made", "and intervals without one, for lack of budget", `${made.length}, ${past.length - made.length}`],
      ["Mean error of reports", "", made.length ? metres(mean(made)) : "–"],
      [
        "Mean error of the recipient's guess",
        "who follows the vehicle through all reports, and knows how traffic flows",
        metres(mean(past.map((step) => step.guess_error_m))),
      ],
      ["The same from zones alone", "what is disclosed anyway", metres(mean(past.map((step) => step.zone_only_error_m)))],
    ];
    const lines = rows.map(([title, hint, value]) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, title, element("small", {}, hint)),
        element("td", {}, value),
      ),
    );
    return element("table", { class: "figures" }, element("tbody", {}, ...lines));
  }
}
