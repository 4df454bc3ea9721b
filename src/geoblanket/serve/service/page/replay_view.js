/** A drive: the true way, its reports, and the tracker's estimates. */

import { errorChart } from "./chart.js";
import { boxAround, circle } from "./geometry.js";
import { PointMarker } from "./markers.js";
import { Player } from "./player.js";
import * as service from "./service.js";
import { figuresTable, heldSoFar, soFar } from "./tables.js";
import { byId, View } from "./view.js";
import { bundleInWords, metres, modelInWords, number } from "./words.js";

const TAIL = 8;
const PLAY_MS = 25_000;
const SLOWEST_MS = 450;
const MADE_UP = "drive";

export class ReplayView extends View {
  constructor(...parts) {
    super("replay", ...parts);
    this.replay = null;
    this.load = service.latestOnly((question) => service.replay(question));
    this.markers = {
      guess: new PointMarker(this.map, "guess", "Tracked"),
      reported: new PointMarker(this.map, "reported", "Reported"),
      present: new PointMarker(this.map, "present", "True place"),
    };
    byId("way").addEventListener("change", () => this.begin());
    byId("way-again").addEventListener("click", () => this.begin());
    this.player = new Player(byId("way-play"), byId("way-step"), byId("way-clock"), {
      show: (now) => this.show(now),
      reportMs: () => Math.min(SLOWEST_MS, PLAY_MS / this.player.labels.length),
    });
    this.onClick((point) => !this.isTrip && this.state.set({ point }));
    this.state.on(["bundle"], () => this.offer());
    this.state.on(["view", "bundle", "point"], () => this.begin());
    this.offer();
  }

  get isTrip() {
    return byId("way").value !== MADE_UP;
  }

  /** Offer the trips; for a lattice, a made-up drive too if there are roads to drive on. */
  offer() {
    const chosen = byId("way").value;
    const trips = this.overview.trips.map((trip) => {
      const when = trip.start.slice(0, 16).replace("T", " ");
      return new Option(`${when} UTC, ${Math.round(trip.minutes)} min, ${number(trip.length_km)} km`, trip.number);
    });
    const canDrive = this.bundle.kind === "lattice" && this.overview.roads;
    const drives = canDrive ? [new Option("a made-up drive of 45 min", MADE_UP)] : [];
    byId("way").replaceChildren(...drives, ...trips);
    if ([...byId("way").options].some(({ value }) => value === chosen)) byId("way").value = chosen;
  }

  async begin() {
    this.player.stop();
    const possible = byId("way").options.length > 0;
    byId("no-trips").hidden = possible;
    byId("way-part").hidden = !possible;
    if (!this.active || !possible) {
      if (this.replay) this.map.showWithin(null);
      for (const marker of Object.values(this.markers)) marker.put(null);
      this.replay = null;
      return;
    }
    byId("true-trip").hidden = !this.isTrip;
    byId("way-hint").textContent = `Reports are drawn for this page.${this.isTrip ? "" : " Click the map to begin elsewhere."}`;
    byId("title").textContent = bundleInWords(this.bundle);
    this.map.clearHeat();
    const [lon, lat] = this.state.values.point;
    const chosen = byId("way").value;
    const question = { bundle: this.bundle.sha256, lat, lon, way: this.isTrip ? Number(chosen) : chosen };
    if (!this.replay) byId("way-words").textContent = "The tracker is at work…";
    await this.attempt(() => this.load((replay) => this.take(replay, chosen), question));
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
    const past = (values, from = 0) => values.slice(from, now + 1);
    const tail = Math.max(0, now + 1 - TAIL);
    this.map.showWays(
      [
        { kind: "older", points: past(lines).flat() },
        { kind: "true", points: past(lines, tail).flat() },
        { kind: "guess", points: past(tracked.at, tail) },
      ],
      past(reports).map((at, index) => ({ at, age: Math.max(0.15, 1 - (now - index) / TAIL) })),
    );
    this.map.showWithin(circle(tracked.at[now], tracked.radius_m[now]));
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
    const { error_m: errors, tracked, without_m: without, spent } = this.replay;
    return figuresTable([
      ["Mean error, tracked", "by all reports up to each", soFar(tracked.error_m, now)],
      ["Mean error of reports", "each taken as it is", soFar(errors, now)],
      ["Mean error without any report", "the best guess for a vehicle anywhere in the city", metres(without)],
      ["Tracked now", "how far off", metres(tracked.error_m[now])],
      ["90 % circle now", "its radius", metres(tracked.radius_m[now])],
      ["Inside the circle so far", "about 90 % over many trips", heldSoFar(tracked, now)],
      ["Cost so far", "of each draw; at rest a lattice repeats a report at no cost", `${number(spent[now])} per km`],
    ]);
  }

  showChart(now) {
    const { error_m: errors, tracked, without_m: without } = this.replay;
    const lines = [
      { kind: "without", values: errors.map(() => without), words: "without any report" },
      { kind: "report", values: errors, words: "the report itself" },
      { kind: "guess", values: tracked.error_m, words: "tracked" },
    ];
    byId("way-chart").replaceChildren(...errorChart(lines, now));
  }
}
