/** A lattice over time: a trip or a parked car, with the anchor and without, and where the tracker takes it to be. */

import { errorChart } from "./chart.js";
import { boxAround, boxAt } from "./geometry.js";
import { PointMarker } from "./markers.js";
import { Player } from "./player.js";
import * as service from "./service.js";
import { along, circleNow, heldSoFar, replayFigures, soFar } from "./tracked.js";
import { bundleInWords, every, metres, modelInWords, number } from "./words.js";

const TAIL = 8;
const PLAY_MS = 25_000;
const SLOWEST_MS = 450;
const MADE_UP = [
  ["hour", "a car that is parked for an hour"],
  ["night", "a car that is parked for 8 whole hours of a night"],
  ["drive", "a made-up drive of 45 min"],
];

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
      shifted: new PointMarker(map, "shifted", "True coordinate, shifted by the anchor,"),
      guess: new PointMarker(map, "guess", "Tracked"),
      reported: new PointMarker(map, "reported", "Reported"),
      present: new PointMarker(map, "present", "True coordinate"),
    };
    this.wire();
    map.map.on("click", ({ lngLat: { lng, lat } }) => {
      if (this.active && !this.isTrip) this.state.set({ point: [lng, lat] });
    });
    state.on(["view", "a", "point"], () => this.begin());
    state.on(["drawn"], () => this.replay && this.active && this.player.show(this.player.now));
  }

  get active() {
    return this.state.values.view === "replay" && this.bundle.kind === "lattice";
  }

  get bundle() {
    return this.overview.bundles.find((bundle) => bundle.sha256 === this.state.values.a);
  }

  get isTrip() {
    return !MADE_UP.some(([way]) => way === byId("way").value);
  }

  wire() {
    const trips = this.overview.trips.map((trip) => {
      const when = trip.start.slice(0, 16).replace("T", " ");
      return new Option(`${when} UTC, ${Math.round(trip.minutes)} min, ${number(trip.length_km)} km`, trip.number);
    });
    byId("way").replaceChildren(...MADE_UP.map(([way, words]) => new Option(words, way)), ...trips);
    byId("way").addEventListener("change", () => this.begin());
    byId("way-again").addEventListener("click", () => this.begin());
    for (const radio of document.querySelectorAll("input[name=drawn]")) {
      radio.addEventListener("change", () => this.state.set({ drawn: radio.value }));
    }
    this.player = new Player(byId("way-play"), byId("way-step"), byId("way-clock"), {
      show: (now) => this.show(now),
      reportMs: () => Math.min(SLOWEST_MS, PLAY_MS / this.player.times.length),
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
    byId("way-hint").textContent =
      `Reports and anchors are drawn for this page.${this.isTrip ? "" : " Click the map to begin elsewhere."}`;
    byId("drawn-field").hidden = this.bundle.lattice.anchor === null;
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
    this.player.take(replay.times);
    const { most_error_m: most } = this.bundle.figures;
    if (another) this.map.fit(replay.moves ? boxAround(replay.lines.flat()) : boxAt(replay.true[0], most));
    this.player.show(another ? this.player.last : Math.min(this.player.now, this.player.last));
  }

  /** What is drawn: with the anchor, or without. */
  get drawn() {
    return (this.state.values.drawn === "anchored" && this.replay.anchored) || this.replay.independent;
  }

  /** Show the trip up to a report. */
  show(now) {
    const { moves, lines } = this.replay;
    const { model, reports, tracked, shifted } = this.drawn;
    const past = (points, from = 0) => points.slice(from, now + 1);
    const tail = Math.max(0, now + 1 - TAIL);
    // A parked car's reports all matter, those of a trip only while it is near.
    const age = (index) => (moves ? Math.max(0.15, 1 - (now - index) / TAIL) : 0.35);
    this.map.showWays(
      [
        { kind: "older", points: along(lines, 0, now) },
        { kind: "true", points: along(lines, tail, now) },
        { kind: "guess", points: past(tracked.at, moves ? tail : 0) },
      ],
      past(reports).map((at, index) => ({ at, age: age(index) })),
    );
    this.map.showWithin(circleNow(tracked, now));
    this.markers.present.put(this.replay.true[now]);
    this.markers.shifted.put(this.drawn === this.replay.anchored ? shifted[now] : null);
    this.markers.guess.put(tracked.at[now]);
    this.markers.reported.put(reports[now]);
    byId("way-words").textContent = this.words(now);
    byId("way-model").textContent = modelInWords(model);
    byId("way-figures").replaceChildren(this.figures(now));
    this.showChart(now);
  }

  /** What there is to see, in a sentence or two. */
  words(now) {
    const { anchored, independent, moves, without } = this.replay;
    const guess = metres(without.error_m[now]);
    const bare = metres(independent.tracked.error_m[now]);
    const many = now ? `${now + 1} reports` : "one report";
    if (moves) {
      const now90 = metres(this.drawn.tracked.radius_m[now]);
      return `After ${many} the tracker is ${metres(this.drawn.tracked.error_m[now])} off. Its circle of ${now90} holds the vehicle nine times out of ten.`;
    }
    if (!anchored) return `Reports scatter around the car, so together they find it: in this draw, after ${many}, the tracker is ${bare} off.`;
    const shifts = this.replay.periods[now] > 1 ? `${this.replay.periods[now]} shifted points` : "the shifted point";
    return (
      `Reports scatter around ${shifts}, not around the car: in this draw, after ${many}, the tracker is ` +
      `${metres(anchored.tracked.error_m[now])} off. Without the anchor it would be ${bare}, without any report ${guess}. ` +
      `The shift is drawn anew every ${every(this.bundle.lattice.anchor.period_s)}.`
    );
  }

  /** A column with the anchor, if there is one, and one without. */
  figures(now) {
    const { anchored, independent, periods, moves, without } = this.replay;
    const { epsilon, lattice } = this.bundle;
    const columns = anchored ? [anchored, independent] : [independent];
    const each = (value) => columns.map(value);
    const reports = `${number(epsilon * (now + 1))} per km`;
    const stay = (column) =>
      column === anchored ? `${number(lattice.anchor.epsilon_per_km * periods[now])} per km` : reports;
    const rows = [
      ["Mean error, tracked", "by all reports up to each", ...each(({ tracked }) => soFar(tracked.error_m, now))],
      ["Mean error of reports", "each taken as it is", ...each((column) => soFar(column.error_m, now))],
      [
        "Mean error without any report",
        without.typical ? "the best guess for a car anywhere in the city" : "the best guess by how vehicles move alone",
        ...each(() => soFar(without.error_m, now)),
      ],
      ["Tracked now", "how far off", ...each(({ tracked }) => metres(tracked.error_m[now]))],
      ["90 % circle now", "its radius", ...each(({ tracked }) => metres(tracked.radius_m[now]))],
      // A parked car has one shift, and its circles are right or wrong together.
      ...(moves ? [["Inside the circle so far", "about 90 % over many trips", ...each(({ tracked }) => heldSoFar(tracked, now))]] : []),
      ...(moves ? [["Given away on the road", `at most ε for each of ${now + 1} reports`, ...each(() => reports)]] : []),
      [
        moves ? "Given away to tell parallel ways apart" : "Given away so far",
        anchored ? "with an anchor: ε₀ for each period begun" : "",
        ...each(stay),
      ],
    ];
    return replayFigures(rows, anchored ? ["with anchor", "without"] : []);
  }

  showChart(now) {
    const { anchored, independent, without } = this.replay;
    const other = this.drawn === anchored ? independent : anchored;
    const lines = [
      { kind: "without", values: without.error_m, words: "without any report" },
      { kind: "report", values: this.drawn.error_m, words: "the report itself" },
      ...(other ? [{ kind: "rival", values: other.tracked.error_m, words: `tracked ${other === anchored ? "with" : "without"} the anchor` }] : []),
      { kind: "guess", values: this.drawn.tracked.error_m, words: "tracked, as on the map" },
    ]; // prettier-ignore
    byId("way-chart").replaceChildren(...errorChart(lines, now));
  }
}
