/** A trip that was held out: its true route, what is reported of it, and where the tracker takes the vehicle to be. */

import { errorChart } from "./chart.js";
import { boxAround } from "./geometry.js";
import { PlaceMarker, PointMarker } from "./markers.js";
import { Player } from "./player.js";
import * as service from "./service.js";
import { along, circleNow, heldSoFar, replayFigures, soFar } from "./tracked.js";
import { bundleInWords, metres, modelInWords, number } from "./words.js";

const REPORTS_ALLOWED = [10, 20, 30, 45, 60, 90, null];
const TAIL = 8;
const STEP_MS = 450;

const byId = (id) => document.getElementById(id);

export class ReplayView {
  constructor(state, overview, map, report) {
    this.state = state;
    this.overview = overview;
    this.map = map;
    this.report = report;
    this.replay = null;
    this.load = service.latestOnly((question) => service.replay(question));
    this.markers = [
      new PointMarker(map, "guess", "Tracked"),
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
      if (this.replay) this.map.showWithin(null);
      for (const marker of this.markers) marker.put(null);
      this.replay = null;
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
    this.player.take(replay.times.map((time) => time.slice(11, 19)));
    if (another) this.map.fit(boxAround(this.lines.flat()));
    this.player.show(another ? this.player.last : this.player.now);
  }

  /** The true way to each interval from the one before: along streets, or straight where there are none. */
  get lines() {
    const { lines, true: places } = this.replay;
    const at = (index) => this.overview.places[places[Math.max(index, 0)]];
    return lines ?? places.map((_, index) => [at(index - 1), at(index)]);
  }

  /** Show the trip up to an interval. */
  show(now) {
    const { true: places, released, tracked, left, budget, model } = this.replay;
    const tail = Math.max(0, now + 1 - TAIL);
    const reported = released.slice(0, now + 1).flatMap((place, index) => {
      const age = Math.max(0.25, 1 - (now - index) / TAIL);
      return place === null ? [] : [{ at: this.overview.places[place], age }];
    });
    this.map.showWays(
      [
        { kind: "older", points: along(this.lines, 0, now) },
        { kind: "true", points: along(this.lines, tail, now) },
        { kind: "guess", points: tracked.at.slice(tail, now + 1) },
      ],
      reported,
    );
    this.map.showWithin(circleNow(tracked, now));
    const [guess, report, present] = this.markers;
    present.put(places[now]);
    guess.put(tracked.at[now]);
    report.put(released[now]);
    this.showBudget(left[now], budget);
    byId("replay-model").textContent = modelInWords(model);
    byId("replay-figures").replaceChildren(this.figures(now));
    this.showChart(now);
  }

  showBudget(left, budget) {
    byId("left").value = left / budget.epsilon;
    byId("left-value").textContent = `${number(left)} of ${number(budget.epsilon)} per km`;
  }

  figures(now) {
    const { released, error_m: errors, tracked, zones, without } = this.replay;
    const made = released.slice(0, now + 1).filter((place) => place !== null).length;
    return replayFigures([
      ["Reports made", "and intervals without one, for lack of budget", `${made}, ${now + 1 - made}`],
      ["Mean error, tracked", "by all reports up to each interval", soFar(tracked.error_m, now)],
      ["Mean error of reports", "each taken as it is", soFar(errors, now)],
      ["Mean error from zones alone", "tracked by what every report tells anyway", soFar(zones.error_m, now)],
      ["Mean error without any report", "the best guess by how vehicles move alone", soFar(without.error_m, now)],
      ["Tracked now", "how far off, and the radius of the 90 % circle", `${metres(tracked.error_m[now])}, ${metres(tracked.radius_m[now])}`],
      ["Inside the circle so far", "about 90 % over many trips", heldSoFar(tracked, now)],
    ]); // prettier-ignore
  }

  showChart(now) {
    const { error_m: errors, tracked, zones, without } = this.replay;
    const lines = [
      { kind: "without", values: without.error_m, words: "without any report" },
      { kind: "rival", values: zones.error_m, words: "from zones alone" },
      { kind: "report", values: errors, words: "the report itself" },
      { kind: "guess", values: tracked.error_m, words: "tracked" },
    ];
    byId("chart").replaceChildren(...errorChart(lines, now));
  }
}
