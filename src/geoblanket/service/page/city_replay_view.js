/** A drive by a lattice: a trip or one that is made up, and where the tracker takes the vehicle to be. */

import { errorChart } from "./chart.js";
import { boxAround } from "./geometry.js";
import { PointMarker } from "./markers.js";
import { Player } from "./player.js";
import * as service from "./service.js";
import { along, circleNow, heldSoFar, replayFigures, soFar } from "./tracked.js";
import { bundleInWords, metres, modelInWords, number } from "./words.js";

const TAIL = 8;
const PLAY_MS = 25_000;
const SLOWEST_MS = 450;
const MADE_UP = "drive";

const byId = (id) => document.getElementById(id);

export class CityReplayView {
  constructor(state, overview, map, report) {
    this.state = state;
    this.overview = overview;
    this.map = map;
    this.report = report;
    this.replay = null;
    this.load = service.latestOnly((question) => service.latticeReplay(question));
    this.markers = {
      guess: new PointMarker(map, "guess", "Tracked"),
      reported: new PointMarker(map, "reported", "Reported"),
      present: new PointMarker(map, "present", "True coordinate"),
    };
    this.wire();
    map.map.on("click", ({ lngLat: { lng, lat } }) => {
      if (this.active && !this.isTrip) this.state.set({ point: [lng, lat] });
    });
    state.on(["view", "a", "point"], () => this.begin());
  }

  get active() {
    return this.state.values.view === "replay" && this.bundle.kind === "lattice";
  }

  get bundle() {
    return this.overview.bundles.find((bundle) => bundle.sha256 === this.state.values.a);
  }

  get isTrip() {
    return byId("way").value !== MADE_UP;
  }

  wire() {
    const trips = this.overview.trips.map((trip) => {
      const when = trip.start.slice(0, 16).replace("T", " ");
      return new Option(`${when} UTC, ${Math.round(trip.minutes)} min, ${number(trip.length_km)} km`, trip.number);
    });
    byId("way").replaceChildren(new Option("a made-up drive of 45 min", MADE_UP), ...trips);
    byId("way").addEventListener("change", () => this.begin());
    byId("way-again").addEventListener("click", () => this.begin());
    this.player = new Player(byId("way-play"), byId("way-step"), byId("way-clock"), {
      show: (now) => this.show(now),
      reportMs: () => Math.min(SLOWEST_MS, PLAY_MS / this.player.labels.length),
    });
  }

  async begin() {
    this.player.stop();
    if (!this.active) {
      if (this.replay) this.map.showWithin(null);
      for (const marker of Object.values(this.markers)) marker.put(null);
      this.replay = null;
      return;
    }
    byId("true-trip").hidden = !this.isTrip;
    byId("way-hint").textContent = `Reports are drawn for this page.${this.isTrip ? "" : " Click the map to begin elsewhere."}`;
    byId("title-a").textContent = bundleInWords(this.bundle);
    this.map.showHeat([], []);
    const [lon, lat] = this.state.values.point;
    const chosen = byId("way").value;
    const question = { bundle: this.bundle.sha256, lat, lon, way: this.isTrip ? Number(chosen) : chosen };
    byId("way-words").textContent = this.replay ? byId("way-words").textContent : "The tracker is at work…";
    try {
      await this.load((replay) => this.take(replay, chosen), question);
      this.report(null);
    } catch (error) {
      this.report(error);
    }
  }

  take(replay, way) {
    if (!this.active) return; // another view took the map meanwhile
    const another = this.replay?.way !== way;
    this.replay = { ...replay, way };
    this.player.take(replay.times.map((time) => time.slice(11, 19)));
    if (another) this.map.fit(boxAround(replay.lines.flat()));
    this.player.show(another ? this.player.last : Math.min(this.player.now, this.player.last));
  }

  /** Show the trip up to a report. */
  show(now) {
    const { lines, model, reports, tracked } = this.replay;
    const past = (points, from = 0) => points.slice(from, now + 1);
    const tail = Math.max(0, now + 1 - TAIL);
    this.map.showWays(
      [
        { kind: "older", points: along(lines, 0, now) },
        { kind: "true", points: along(lines, tail, now) },
        { kind: "guess", points: past(tracked.at, tail) },
      ],
      past(reports).map((at, index) => ({ at, age: Math.max(0.15, 1 - (now - index) / TAIL) })),
    );
    this.map.showWithin(circleNow(tracked, now));
    this.markers.present.put(this.replay.true[now]);
    this.markers.guess.put(tracked.at[now]);
    this.markers.reported.put(reports[now]);
    byId("way-words").textContent =
      `After ${now ? `${now + 1} reports` : "one report"} the tracker is ${metres(tracked.error_m[now])} off. Its circle of ` +
      `${metres(tracked.radius_m[now])} holds the vehicle nine times out of ten.`;
    byId("way-model").textContent = modelInWords(model);
    byId("way-figures").replaceChildren(this.figures(now));
    this.showChart(now);
  }

  figures(now) {
    const { error_m: errors, tracked, without, spent } = this.replay;
    const known = without.typical ? "the best guess for a car anywhere in the city" : "the best guess by how vehicles move alone";
    return replayFigures([
      ["Mean error, tracked", "by all reports up to each", soFar(tracked.error_m, now)],
      ["Mean error of reports", "each taken as it is", soFar(errors, now)],
      ["Mean error without any report", known, soFar(without.error_m, now)],
      ["Tracked now", "how far off", metres(tracked.error_m[now])],
      ["90 % circle now", "its radius", metres(tracked.radius_m[now])],
      ["Inside the circle so far", "about 90 % over many trips", heldSoFar(tracked, now)],
      ["Cost so far", "ε for each draw; at rest a report is held at no cost", `${number(spent[now])} per km`],
    ]);
  }

  showChart(now) {
    const { error_m: errors, tracked, without } = this.replay;
    const lines = [
      { kind: "without", values: without.error_m, words: "without any report" },
      { kind: "report", values: errors, words: "the report itself" },
      { kind: "guess", values: tracked.error_m, words: "tracked" },
    ];
    byId("way-chart").replaceChildren(...errorChart(lines, now));
  }
}
