/** What happens at a place, with one mechanism or two side by side. */

import { nearestPlace } from "./geometry.js";
import { figuresTable, choicesTable } from "./figures.js";
import { PlaceMarker } from "./markers.js";
import * as service from "./service.js";
import { bundleInWords, element, metres, percent } from "./words.js";

const HINTS = {
  report: "From where the vehicle is, each place is reported with the probability that its colour tells.",
  conclusion:
    "One report was made. The recipient knows the mechanism, the zone and the previous place; colours tell where the " +
    "vehicle now seems to be.",
};

const byId = (id) => document.getElementById(id);

/** All places of a zone with the probability that each is reported: many are never. */
function overZone(zone, place, { outputs, probability }) {
  const probabilityOf = new Map(outputs.map((output, index) => [output, probability[index]]));
  const places = zone.flatMap((number, other) => (number === zone[place] ? [other] : []));
  return [places, places.map((other) => probabilityOf.get(other) ?? 0)];
}

export class PlacesView {
  /**
   * @param {import("./state.js").State} state
   * @param {object} overview
   * @param {{a: import("./city_map.js").CityMap, b: () => import("./city_map.js").CityMap}} maps
   * @param {(error: Error|null) => void} report
   */
  constructor(state, overview, maps, report) {
    this.state = state;
    this.overview = overview;
    this.maps = maps;
    this.report = report;
    this.panels = {};
    this.load = service.latestOnly(() => this.ask());
    this.loadChoices = service.latestOnly(() => service.choices(this.everywhere()));
    this.wire();
    state.on(["view"], () => this.begin());
    state.on(["view", "a", "b", "place", "previous", "regime", "layer", "prior", "output"], () => this.refresh());
    state.on(["view", "a", "place", "previous", "regime", "prior"], () => this.refreshChoices());
  }

  get shown() {
    return this.state.values.view === "compare" ? ["a", "b"] : ["a"];
  }

  get active() {
    return ["explore", "compare"].includes(this.state.values.view);
  }

  bundle(panel) {
    return this.overview.bundles.find((bundle) => bundle.sha256 === this.state.values[panel]);
  }

  /** Places with a mechanism: those that can be clicked. */
  inZones() {
    return this.bundle("a").zone.flatMap((zone, place) => (zone < 0 ? [] : [place]));
  }

  begin() {
    if (!this.active) {
      for (const panel of Object.values(this.panels)) for (const marker of Object.values(panel.markers)) marker.put(null);
      return;
    }
    for (const name of this.shown) this.panels[name] ??= this.panel(name);
  }

  panel(name) {
    const map = name === "a" ? this.maps.a : this.maps.b();
    const among = () => this.inZones();
    const everywhere = this.overview.places.map((_, place) => place);
    const present = new PlaceMarker(map, "present", "Vehicle", { among, moved: (place) => this.moveTo({ place }) });
    const previous = new PlaceMarker(map, "previous", "Previous place", {
      among: () => everywhere,
      moved: (place) => this.moveTo({ previous: place }),
    });
    map.map.on("click", ({ lngLat }) => {
      if (this.active) this.moveTo({ place: nearestPlace(this.overview.places, among(), [lngLat.lng, lngLat.lat]) });
    });
    const reported = new PlaceMarker(map, "reported", "Reported");
    const guess = new PlaceMarker(map, "guess", "The recipient's best guess");
    return { map, markers: { previous, guess, reported, present } };
  }

  /** Another place asks for another report. */
  moveTo(changes) {
    this.state.set({ ...changes, output: null });
  }

  wire() {
    const { values } = this.state;
    byId("first").addEventListener("change", ({ target }) => {
      this.moveTo({ previous: target.checked ? null : this.neighbour(this.state.values.place) });
    });
    for (const radio of document.querySelectorAll("input[name=layer]")) {
      radio.addEventListener("change", () => this.state.set({ layer: radio.value }));
    }
    byId("prior").value = values.prior;
    byId("prior").disabled = !this.overview.traffic;
    byId("prior").addEventListener("change", ({ target }) => this.state.set({ prior: target.value }));
    byId("draw").addEventListener("click", () => this.state.set({ output: null, draws: (values.draws += 1) }));
    byId("draw").addEventListener("click", () => this.refresh());
    const { regimes } = this.bundle("a");
    byId("regime-field").hidden = regimes.length < 2;
    byId("regime").replaceChildren(...regimes.map((name) => new Option(name, name)));
    byId("regime").addEventListener("change", ({ target }) => this.moveTo({ regime: target.value }));
  }

  /** The nearest other place: where a vehicle may well have come from. */
  neighbour(place) {
    const others = this.overview.places.flatMap((_, other) => (other === place ? [] : [other]));
    return nearestPlace(this.overview.places, others, this.overview.places[place]);
  }

  question(name) {
    const { place, previous, regime, prior } = this.state.values;
    const bundle = this.bundle(name);
    return { bundle: bundle.sha256, place, previous, prior, regime: previous === null ? bundle.start : regime };
  }

  everywhere() {
    const { place, previous, regime, prior } = this.state.values;
    return { place, previous, regime, prior };
  }

  async ask() {
    const { layer, output } = this.state.values;
    const sides = [];
    let reported = output;
    for (const name of this.shown) {
      const figures = await service.outlook(this.question(name));
      let conclusion = null;
      if (layer === "conclusion") {
        conclusion = await service.conclusion({ ...this.question(name), output: reported });
        reported = conclusion.output; // the same report on both sides, so that conclusions can be compared
      }
      sides.push({ name, bundle: this.bundle(name), figures, conclusion });
    }
    return sides;
  }

  async refresh() {
    if (!this.active) return;
    try {
      await this.load((sides) => this.show(sides));
      this.report(null);
    } catch (error) {
      this.report(error);
    }
  }

  async refreshChoices() {
    if (!this.active) return;
    const choose = (sha256) => this.state.set({ a: sha256 });
    await this.loadChoices(({ choices }) => {
      byId("choices-table").replaceChildren(
        choicesTable([...this.overview.bundles], choices, this.state.values.a, choose),
      );
    }).catch(this.report);
  }

  show(sides) {
    const { place, previous, layer } = this.state.values;
    for (const { name, bundle, figures, conclusion } of sides) {
      const { map, markers } = this.panels[name];
      map.showWays(previous === null ? [] : [{ kind: "true", places: [previous, place] }], []);
      if (conclusion) map.showHeat(conclusion.places, conclusion.after);
      else map.showHeat(...overZone(bundle.zone, place, figures));
      markers.present.put(place);
      markers.previous.put(previous === place ? null : previous);
      markers.reported.put(conclusion?.output ?? null);
      markers.guess.put(conclusion?.guess ?? null);
      byId(`title-${name}`).textContent =
        this.shown.length > 1 ? `${name.toUpperCase()}: ${bundleInWords(bundle)}` : bundleInWords(bundle);
    }
    byId("figures").replaceChildren(figuresTable(sides));
    const conclusions = layer === "conclusion" ? sides.map((side) => this.concluded(side, sides.length)) : [];
    byId("layer-hint").replaceChildren(...[HINTS[layer], ...conclusions].map((words) => element("p", {}, words)));
    this.showControls(sides[0]);
  }

  /** What the report changed, in words. */
  concluded({ name, conclusion }, sides) {
    const at = conclusion.places.indexOf(this.state.values.place);
    return (
      `${sides > 1 ? `${name.toUpperCase()}: ` : ""}To the recipient the true place was ` +
      `${percent(conclusion.before[at])} probable, and is ${percent(conclusion.after[at])} now. The best guess is ` +
      `expected to be ${metres(conclusion.error_m)} off; without the report, ${metres(conclusion.error_before_m)}.`
    );
  }

  showControls({ bundle, figures }) {
    const { place, previous, layer } = this.state.values;
    byId("first").checked = previous === null;
    byId("first").disabled = bundle.start === null;
    byId("where").textContent =
      `Place ${place}, in zone ${bundle.zone[place] + 1} of ${bundle.zones.length}, which has ${figures.places} places. ` +
      "A report tells its zone; where in it the vehicle is, the mechanism hides.";
    byId("prior-field").hidden = !this.overview.traffic || layer !== "conclusion";
    byId("draw-field").hidden = layer !== "conclusion";
  }
}
