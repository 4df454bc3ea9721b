/**
 * Try it here: this browser verifies a bundle, and reports its own location or a chosen one. The true location stays in
 * this view: no other view knows it, and the service is not asked about it.
 */

import { Budget, Device, loadBundle } from "/device/index.js";
import { Mark } from "./city_map.js";
import { figuresTable } from "./figures.js";
import { boxAround, boxAt, metresApart } from "./geometry.js";
import { bundleFile } from "./service.js";
import { byId, metres, number, settingInWords } from "./words.js";

const HOUR_S = 3600;
const FENCE_KM = 1;
/** Reports that stay on the map. */
const KEPT = 30;

export class TryView {
  /** @param {object} page What all views share. */
  constructor(page) {
    const [south, west, north, east] = page.overview.area;
    Object.assign(this, { page, told: [], opened: new Map(), here: [(west + east) / 2, (south + north) / 2] });
    const map = page.stage.a.map;
    this.vehicle = new Mark(map, "vehicle", "You, for this page alone", (point) => this.moveTo(point));
    this.latest = new Mark(map, "reported", "What would be told");
    map.map.on("click", ({ lngLat }) => page.state.view === "try" && this.moveTo(lngLat.toArray()));
    byId("try-report").addEventListener("click", () => this.report());
    byId("try-fence").addEventListener("click", () => this.fence());
    byId("try-locate").addEventListener("click", () => this.locate());
    byId("try-locate").hidden = !navigator.geolocation || !window.isSecureContext;
  }

  /** A device for the setting, with the budget of an hour, in memory. */
  device() {
    const { epsilon, interval_s: intervalS, hold_m: hold } = this.page.state.a;
    const key = [epsilon, intervalS, hold].join();
    if (!this.opened.has(key)) {
      const opening = (async () => {
        const file = await bundleFile({ epsilon, interval_s: intervalS, hold_m: hold, fence_km: null });
        const start = performance.now();
        const loaded = await loadBundle(file);
        const verifiedMs = performance.now() - start;
        const budget = new Budget({ epsilon: Math.max(Math.floor(HOUR_S / intervalS), 1) * epsilon, windowS: HOUR_S });
        // Each report counts as the next interval, so that nobody has to wait for it.
        return { device: await Device.open(loaded, { budget, replay: true }), verifiedMs, time: Date.now() / 1000 };
      })();
      this.opened.set(key, opening);
      opening.catch(() => this.opened.delete(key));
    }
    return this.opened.get(key);
  }

  async enter() {
    const { stage, state } = this.page;
    await this.page.showMaps(1);
    stage.a.clear();
    this.told = [];
    this.vehicle.put(this.here);
    byId("title-a").textContent = settingInWords({ ...state.a, fence_km: null }).replace(", no fence", "");
    byId("try-verified").textContent = "The service makes the bundle, and this browser verifies it …";
    byId("try-words").textContent = "";
    byId("try-figures").replaceChildren();
    stage.a.map.fit(boxAt(this.here, Math.min(4744 / state.a.epsilon, 20_000)));
    await this.page.attempt(async () => {
      const { verifiedMs, device } = await this.device();
      this.showFences(device);
      byId("try-verified").textContent = `Verified exactly by this browser, in ${number(verifiedMs)} ms. ${device.bundle.guarantee}`;
      document.body.dataset.tried = "ready";
    });
  }

  leave() {
    this.vehicle.put(null);
    this.latest.put(null);
    this.page.stage.a.clear();
  }

  /** Draw a fence around where one is: from now on, all positions inside count as its centre. */
  fence() {
    const [lon, lat] = this.here;
    return this.page.attempt(async () => {
      const { device } = await this.device();
      await device.addFence(lat, lon, { radiusKm: FENCE_KM, name: `fence ${device.fences.all.length + 1}` });
      this.showFences(device);
      byId("try-words").textContent = `A fence of ${FENCE_KM} km was drawn around this place. Nothing was reported.`;
    });
  }

  showFences({ fences }) {
    const last = fences.all.at(-1);
    if (last) this.page.stage.a.showFence({ center: [last.lonE7 / 1e7, last.latE7 / 1e7], radius_m: last.radiusM });
  }

  locate() {
    navigator.geolocation.getCurrentPosition(
      ({ coords: { latitude, longitude } }) => {
        this.moveTo([longitude, latitude]);
        this.page.stage.a.map.fit(boxAt(this.here, 3000));
      },
      () => this.page.tell(new Error("The browser does not tell where it is. Click the map instead.")),
    );
  }

  /** Move without reporting. @param {[number, number]} point Longitude and latitude. */
  moveTo(point) {
    this.here = point;
    this.vehicle.put(point);
    const [south, west, north, east] = this.page.overview.area;
    const [lon, lat] = point;
    const nearest = [Math.min(Math.max(lon, west), east), Math.min(Math.max(lat, south), north)];
    const away = metresApart(point, nearest);
    byId("try-words").textContent =
      (away > 1000 ? `You are elsewhere: ${metres(away)} from this city. A report would be drawn as if from its edge. ` : "") +
      "You moved. Nothing was reported, and nothing was spent.";
  }

  report() {
    const { state } = this.page;
    const setting = state.a;
    return this.page.attempt(async () => {
      const opened = await this.device();
      opened.time += setting.interval_s;
      const [lon, lat] = this.here;
      const start = performance.now();
      const made = await opened.device.report(lat, lon, opened.time);
      const tookMs = performance.now() - start;
      if (state.view !== "try" || setting !== state.a) return;
      this.told = [[made.lon, made.lat], ...this.told].slice(0, KEPT);
      const warning = opened.device.warningFor(lat, lon);
      byId("try-words").textContent =
        `What would be told: cell ${made.cell.toLocaleString("en")} at ${made.lat.toFixed(5)}, ${made.lon.toFixed(5)}, and nothing ` +
        `else. It is ${metres(metresApart(this.here, this.told[0]))} away from you.${warning ? ` ${warning}` : ""}`;
      this.show({ ...made, tookMs });
    });
  }

  show({ left, tookMs }) {
    const { map } = this.page.stage.a;
    this.latest.put(this.told[0]);
    map.showReports(this.told.slice(1).map((at, index) => ({ at, age: 0.75 * (1 - index / KEPT) })));
    byId("try-figures").replaceChildren(
      figuresTable([
        ["Budget left", "of this hour, in this page's memory", `${number(left)} per km`],
        ["Took", "to draw it and to store what it cost", `${number(tookMs)} ms`],
      ]),
    );
    if (!map.map.getBounds().contains(this.told[0])) map.fit(boxAround([this.here, ...this.told]));
  }
}
