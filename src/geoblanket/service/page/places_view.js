/** What happens at a place or a coordinate, with one mechanism or two side by side. */

import { nearestPlace } from "./geometry.js";
import { figuresTable, choicesTable } from "./figures.js";
import { askLattice, concludedOverCity, showLattice, whereInCity } from "./lattice_side.js";
import { PlaceMarker, PointMarker } from "./markers.js";
import * as service from "./service.js";
import { bundleInWords, element, metres, percent } from "./words.js";

const HINTS = {
  report: "From where the vehicle is, each place is reported with the probability that its colour tells.",
  conclusion:
    "One report was made. The recipient knows the mechanism, the zone and the previous place; colours tell where the " +
    "vehicle now seems to be.",
};
const CITY_HINTS = {
  report: "From where the vehicle is, reports fall over the city with the probability that colours tell.",
  conclusion:
    "One report was made. The recipient knows the mechanism, and nothing else; colours tell where the vehicle now " +
    "seems to be.",
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
    this.loadChoices = service.latestOnly(async () =>
      overview.places.length ? service.choices(this.everywhere()) : { choices: [] },
    );
    this.wire();
    state.on(["view"], () => this.begin());
    state.on(["view", "a", "b", "place", "previous", "regime", "layer", "prior", "output", "point"], () =>
      this.refresh(),
    );
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

  /** The bundle with zones that is shown, or any other one. */
  get zoned() {
    const zoned = (bundle) => bundle.kind === "zones";
    return this.shown.map((name) => this.bundle(name)).find(zoned) ?? this.overview.bundles.find(zoned);
  }

  /** Whether some bundle that is shown has a lattice, so that the vehicle may be anywhere. */
  get anywhere() {
    return this.shown.some((name) => this.bundle(name).kind === "lattice");
  }

  /** Places with a mechanism: those that can be clicked. */
  inZones() {
    return this.zoned?.zone.flatMap((zone, place) => (zone < 0 ? [] : [place])) ?? [];
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
    const vehicle = new PointMarker(map, "present", "Vehicle", {
      step: () => this.bundle(name).lattice.cell_m,
      moved: (point) => this.moveTo({ point }),
    });
    map.map.on("click", ({ lngLat: { lng, lat } }) => {
      if (!this.active) return;
      if (this.anywhere) this.moveTo({ point: [lng, lat] });
      else this.moveTo({ place: nearestPlace(this.overview.places, among(), [lng, lat]) });
    });
    const reported = new PlaceMarker(map, "reported", "Reported");
    const heard = new PointMarker(map, "reported", "Reported");
    const guess = new PlaceMarker(map, "guess", "The recipient's best guess");
    return { map, markers: { previous, guess, reported, heard, present, vehicle } };
  }

  /** Another place or coordinate asks for another report; each follows the other. */
  moveTo(changes) {
    const { places } = this.overview;
    const also = {};
    if ("place" in changes) also.point = places[changes.place];
    if ("point" in changes && places.length) {
      also.place = nearestPlace(places, this.inZones(), changes.point);
      if (this.state.values.previous !== null) also.previous = this.neighbour(also.place);
    }
    this.state.set({ ...changes, ...also, output: null });
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
    const regimes = this.zoned?.regimes ?? [];
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
    let heard = null;
    for (const name of this.shown) {
      if (this.bundle(name).kind === "lattice") {
        const side = await askLattice(this.bundle(name), this.state.values, heard);
        heard = side.conclusion?.report ?? null;
        sides.push({ name, ...side });
        continue;
      }
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
    const { bundles } = this.overview;
    const choose = (sha256) => this.state.set({ a: sha256 });
    const lattices = bundles.flatMap(({ kind, sha256, figures }) =>
      kind === "lattice" ? [{ bundle: sha256, ...figures }] : [],
    );
    await this.loadChoices(({ choices }) => {
      byId("choices-table").replaceChildren(
        ...choicesTable([...bundles], [...choices, ...lattices], this.state.values.a, choose),
      );
    }).catch(this.report);
  }

  show(sides) {
    if (!this.active) return; // another view took the map meanwhile
    const { layer, point } = this.state.values;
    for (const side of sides) {
      if (side.bundle.kind === "lattice") showLattice(this.panels[side.name], side, point);
      else this.showZone(this.panels[side.name], side);
      const words = bundleInWords(side.bundle);
      byId(`title-${side.name}`).textContent = sides.length > 1 ? `${side.name.toUpperCase()}: ${words}` : words;
    }
    byId("figures").replaceChildren(figuresTable(sides, this.state.values));
    const hints = sides.map(({ bundle }) => (bundle.kind === "lattice" ? CITY_HINTS : HINTS)[layer]);
    const conclusions = layer === "conclusion" ? sides.map((side) => this.concluded(side, sides.length)) : [];
    const words = [...new Set(hints), ...conclusions];
    byId("layer-hint").replaceChildren(...words.map((sentence) => element("p", {}, sentence)));
    this.showControls(sides);
  }

  showZone({ map, markers }, { bundle, figures, conclusion }) {
    const { place, previous } = this.state.values;
    const way = [previous, place].map((number) => this.overview.places[number]);
    map.showWays(previous === null ? [] : [{ kind: "true", points: way }], []);
    if (conclusion) map.showHeat(conclusion.places, conclusion.after);
    else map.showHeat(...overZone(bundle.zone, place, figures));
    markers.present.put(place);
    markers.previous.put(previous === place ? null : previous);
    markers.reported.put(conclusion?.output ?? null);
    markers.guess.put(conclusion?.guess ?? null);
    for (const name of ["vehicle", "heard"]) markers[name].put(null);
  }

  /** What the report changed, in words. */
  concluded(side, sides) {
    const { name, bundle, conclusion } = side;
    const map = sides > 1 ? `${name.toUpperCase()}: ` : "";
    if (bundle.kind === "lattice") return map + concludedOverCity(side);
    const at = conclusion.places.indexOf(this.state.values.place);
    return (
      `${map}To the recipient the true place was ` +
      `${percent(conclusion.before[at])} probable, and is ${percent(conclusion.after[at])} now. The best guess is ` +
      `expected to be ${metres(conclusion.error_m)} off; without the report, ${metres(conclusion.error_before_m)}.`
    );
  }

  showControls(sides) {
    const { previous, layer, point } = this.state.values;
    const zoned = sides.find(({ bundle }) => bundle.kind === "zones");
    byId("first").checked = previous === null;
    byId("first").disabled = !zoned || zoned.bundle.start === null;
    const words = sides.map((side) => {
      const map = sides.length > 1 ? `${side.name.toUpperCase()}: ` : "";
      return map + (side.bundle.kind === "lattice" ? whereInCity(side, point) : this.whereInZone(side));
    });
    byId("where").replaceChildren(...words.map((sentence) => element("p", {}, sentence)));
    byId("prior-field").hidden = !zoned || !this.overview.traffic || layer !== "conclusion";
    byId("draw-field").hidden = layer !== "conclusion";
  }

  whereInZone({ bundle, figures }) {
    const { place } = this.state.values;
    return (
      `Place ${place}, in zone ${bundle.zones[bundle.zone[place]]}, which has ${figures.places} places. ` +
      "A report tells its zone; where in it the vehicle is, the mechanism hides."
    );
  }
}
