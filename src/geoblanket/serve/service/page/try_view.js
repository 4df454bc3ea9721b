/**
 * Try it here: this browser verifies the bundle, and reports its own location or a clicked one. The true location stays in
 * this view: it is not part of the page's state, with which other views ask the service.
 */

import { Budget, Device, loadBundle } from "/device/index.js";
import { boxAround, boxAt, circle, metresApart } from "./geometry.js";
import { PointMarker } from "./markers.js";
import { bundleFile } from "./service.js";
import { figuresTable } from "./tables.js";
import { byId, View } from "./view.js";
import { bundleInWords, metres, number } from "./words.js";

const HOUR_S = 3600;
const FENCE_KM = 1;
/** Reports that stay on the map. */
const KEPT = 30;

export class TryView extends View {
  constructor(...parts) {
    super("try", ...parts);
    const { map } = this;
    this.here = null;
    this.told = [];
    this.opened = new Map();
    this.vehicle = new PointMarker(map, "present", "You", {
      step: () => this.latticeBundle.lattice.cell_m,
      moved: (point) => this.moveTo(point),
    });
    this.latest = new PointMarker(map, "reported", "Reported");
    this.onClick((point) => this.moveTo(point));
    byId("try-again").addEventListener("click", () => this.tell());
    byId("try-fence").addEventListener("click", () => this.fence());
    byId("try-locate").addEventListener("click", () => this.locate());
    byId("try-locate").hidden = !navigator.geolocation || !window.isSecureContext;
    this.state.on(["view", "bundle"], () => this.begin());
  }

  /** A device for the bundle, with the budget of an hour, in memory. */
  async device() {
    const { sha256, interval_s: intervalS, epsilon } = this.latticeBundle;
    if (!this.opened.has(sha256)) {
      const opening = (async () => {
        const file = await bundleFile(sha256);
        const start = performance.now();
        const loaded = await loadBundle(file);
        const verifiedMs = performance.now() - start;
        const reports = Math.max(Math.floor(HOUR_S / intervalS), 1);
        const budget = new Budget({ epsilon: reports * epsilon, windowS: Math.max(HOUR_S, intervalS) });
        // Each click counts as the next interval, so that nobody has to wait for it.
        return { device: await Device.open(loaded, { budget, replay: true }), verifiedMs, time: Date.now() / 1000 };
      })();
      this.opened.set(sha256, opening);
      opening.catch(() => this.opened.delete(sha256));
    }
    return this.opened.get(sha256);
  }

  async begin() {
    if (!this.active) {
      this.vehicle.put(null);
      this.latest.put(null);
      return;
    }
    this.here ??= this.overview.middle ?? this.state.values.point;
    this.told = [];
    this.map.clearHeat();
    this.vehicle.put(this.here);
    byId("title").textContent = bundleInWords(this.latticeBundle);
    byId("try-verified").textContent = "This browser verifies the bundle …";
    byId("try-words").textContent = "";
    this.show(null);
    this.map.fit(boxAt(this.here, this.latticeBundle.figures.most_error_m));
    await this.attempt(async () => {
      const { verifiedMs, device } = await this.device();
      this.showFences(device);
      byId("try-verified").textContent =
        `Verified exactly by this browser, in ${number(verifiedMs)} ms. ${device.bundle.guarantee}`;
      document.body.dataset.tried = "ready";
    });
  }

  /** Draw a fence around where one is: from now on, all positions inside count as its centre. */
  async fence() {
    const [lon, lat] = this.here;
    try {
      const { device } = await this.device();
      await device.addFence(lat, lon, { radiusKm: FENCE_KM, name: `fence ${device.fences.all.length + 1}` });
      this.showFences(device);
      await this.tell();
    } catch (error) {
      this.report(error);
    }
  }

  showFences({ fences }) {
    if (!this.active) return;
    this.map.showRings(fences.all.map(({ lonE7, latE7, radiusM }) => circle([lonE7 / 1e7, latE7 / 1e7], radiusM)));
  }

  locate() {
    navigator.geolocation.getCurrentPosition(
      ({ coords: { latitude, longitude } }) => this.moveTo([longitude, latitude]),
      () => this.report(new Error("The browser does not tell where it is. Click the map instead.")),
    );
  }

  /** @param {[number, number]} point Longitude and latitude. */
  moveTo(point) {
    this.here = point;
    this.vehicle.put(point);
    return this.tell();
  }

  async tell() {
    const { latticeBundle: bundle, here } = this;
    try {
      const opened = await this.device();
      opened.time += bundle.interval_s;
      const [lon, lat] = here;
      const start = performance.now();
      const made = await opened.device.report(lat, lon, opened.time);
      const tookMs = performance.now() - start;
      if (!this.active || bundle !== this.latticeBundle) return;
      this.told = [[made.lon, made.lat], ...this.told].slice(0, KEPT);
      const warning = opened.device.warningFor(lat, lon);
      byId("try-words").textContent =
        `What would be told: cell ${made.cell.toLocaleString("en")} at ${made.lat.toFixed(5)}, ${made.lon.toFixed(5)}, and nothing ` +
        `else. It is ${metres(metresApart(here, this.told[0]))} away from you.${warning ? ` ${warning}` : ""}`;
      this.show({ ...made, tookMs });
      this.report(null);
    } catch (error) {
      this.report(error);
    }
  }

  show(made) {
    this.latest.put(this.told[0] ?? null);
    const points = this.told.slice(1).map((at, index) => ({ at, age: 0.75 * (1 - index / KEPT) }));
    this.map.showWays([], points);
    const rows = made
      ? [
          ["Budget left", "of this hour", `${number(made.left)} per km`],
          ["Took", "to draw it and to store what it cost", `${number(made.tookMs)} ms`],
        ]
      : [];
    byId("try-figures").replaceChildren(figuresTable(rows));
    if (this.told.length && !this.map.map.getBounds().contains(this.told[0])) {
      this.map.fit(boxAround([this.here, ...this.told]));
    }
  }
}
