/** What is reported from a place of a zone, or from a coordinate of a lattice. */

import { boxAround, boxAt, nearestPlace } from "./geometry.js";
import { PlaceMarker, PointMarker } from "./markers.js";
import * as service from "./service.js";
import { figuresTable } from "./tables.js";
import { byId, View } from "./view.js";
import { bundleInWords, coordinate, factor, metres, number, percent } from "./words.js";

const perKm = (cost) => (cost === null ? "–" : `${number(cost)} per km`);

export class ExploreView extends View {
  constructor(...parts) {
    super("explore", ...parts);
    const { state, overview, map } = this;
    this.load = service.latestOnly(() => (this.isLattice ? this.askLattice() : this.askZones()));
    this.markers = {
      previous: new PlaceMarker(map, "previous", "Previous place", {
        among: () => overview.places.map((_, place) => place),
        moved: (previous) => state.set({ previous }),
      }),
      present: new PlaceMarker(map, "present", "Vehicle", {
        among: () => this.inZones,
        moved: (place) => this.moveTo(overview.places[place]),
      }),
      vehicle: new PointMarker(map, "present", "Vehicle", {
        step: () => this.bundle.lattice.cell_m,
        moved: (point) => this.moveTo(point),
      }),
    };
    this.onClick((point) => this.moveTo(point));
    byId("first").addEventListener("change", ({ target }) =>
      state.set({ previous: target.checked ? null : this.neighbour(state.values.place) }),
    );
    byId("regime").addEventListener("change", ({ target }) => state.set({ regime: target.value }));
    state.on(["view", "bundle", "place", "previous", "regime", "point"], () => this.refresh());
  }

  get isLattice() {
    return this.bundle.kind === "lattice";
  }

  /** Places with a mechanism: those that can be clicked. */
  get inZones() {
    const zoned = [this.bundle, ...this.overview.bundles].find(({ kind }) => kind === "zones");
    return zoned?.zone.flatMap((zone, place) => (zone < 0 ? [] : [place])) ?? [];
  }

  /** The first view of the map: the zone of the vehicle, or the reach of most reports of a lattice. */
  get inSight() {
    const { place, point } = this.state.values;
    if (this.isLattice) return boxAt(point, this.bundle.figures.most_error_m);
    const { zone } = this.bundle;
    return boxAround(this.overview.places.filter((_, other) => zone[other] === zone[place]));
  }

  /** The nearest other place: where a vehicle may well have come from. */
  neighbour(place) {
    const others = this.overview.places.flatMap((_, other) => (other === place ? [] : [other]));
    return nearestPlace(this.overview.places, others, this.overview.places[place]);
  }

  /** Move the vehicle; the place and the coordinate follow each other. @param {[number, number]} point */
  moveTo(point) {
    const { places } = this.overview;
    if (!places.length) return this.state.set({ point });
    const place = nearestPlace(places, this.inZones, point);
    const previous = this.state.values.previous === null ? null : this.neighbour(place);
    return this.state.set({ place, previous, point: this.isLattice ? point : places[place] });
  }

  async askLattice() {
    const [lon, lat] = this.state.values.point;
    return service.atCoordinate({ bundle: this.bundle.sha256, lat, lon });
  }

  async askZones() {
    const { place, previous, regime } = this.state.values;
    const { sha256, start } = this.bundle;
    return service.atPlace({ bundle: sha256, place, previous, regime: previous === null ? start : regime });
  }

  async refresh() {
    if (!this.active) {
      for (const marker of Object.values(this.markers)) marker.put(null);
      return;
    }
    await this.attempt(() => this.load((answer) => this.show(answer)));
  }

  show(answer) {
    if (!this.active) return; // another view took the map meanwhile
    byId("title").textContent = bundleInWords(this.bundle);
    if (this.isLattice) this.showLattice(answer);
    else this.showZones(answer);
  }

  showLattice({ heat, inside }) {
    const { lattice, epsilon, figures } = this.bundle;
    const { point } = this.state.values;
    this.map.showWays([], []);
    this.map.showBlocks(heat);
    this.markers.vehicle.put(point);
    for (const name of ["present", "previous"]) this.markers[name].put(null);
    const hold = lattice.hold_m
      ? ` At rest the report is held: within ${number(lattice.hold_m)} m the last one is repeated.`
      : " Nothing is held: the noise of a parked car averages out.";
    byId("where").textContent =
      `At ${coordinate(point)}. A report is one of ${lattice.cells.toLocaleString("en")} cells of ${number(lattice.cell_m)} m. ` +
      `It tells no zone: any coordinate of the frame may lie behind it, with ε = ${epsilon}.${hold}` +
      (inside ? "" : " This is outside the frame, so its nearest point counts.");
    const night = lattice.hold_m ? "one draw, however long: at rest the report is held" : "8 hours, if every interval is reported";
    this.showFigures(figures, [["19 of 20 are within", "of the true place", metres(figures.most_error_m)]], "ε", night);
  }

  showZones(answer) {
    const { place, previous } = this.state.values;
    const { zone, zones, start, regimes } = this.bundle;
    const way = [previous, place].map((number) => this.overview.places[number]);
    this.map.showWays(previous === null ? [] : [{ kind: "true", points: way }], []);
    this.map.showPlaces(...overZone(zone, place, answer));
    this.markers.vehicle.put(null);
    this.markers.present.put(place);
    this.markers.previous.put(previous === place ? null : previous);
    byId("where").textContent =
      `Place ${place}, in zone ${zones[zone[place]]}, which has ${answer.places} places. A report tells its zone; where in it ` +
      "the vehicle is, the mechanism hides.";
    byId("first").checked = previous === null;
    byId("first").disabled = start === null;
    byId("regime-field").hidden = regimes.length < 2;
    byId("regime").replaceChildren(...regimes.map((name) => new Option(name, name)));
    byId("regime").value = this.state.values.regime;
    const loss = answer.loss === null ? "–" : `${number(answer.loss)} ${answer.unit}`;
    const lossHint = answer.loss === null ? "the bundle has no record of its build beside it" : `by design; ${this.bundle.loss}`;
    const rows = [
      ["The true place is reported", "of the time. Seldom does not mean hidden: see Replay", percent(answer.exact)],
      ["Expected loss in this zone", lossHint, loss],
    ];
    this.showFigures(answer, rows, "ε(1 + Σw)", "8 hours, if every interval is reported");
  }

  /** Show the figures of a report; `rows` are those that only this kind of mechanism has. */
  showFigures(figures, rows, sum, night) {
    const { epsilon, cost, night_cost: nightCost, interval_s: interval } = this.bundle;
    const hour = interval === null ? null : (cost * 3600) / interval;
    const table = figuresTable([
      ["Half of all reports are within", "of the true place. Further off is more private, and less useful", metres(figures.median_error_m)],
      ["Mean error of a report", "from the true place to the reported one", metres(figures.error_m)],
      ...rows,
      ["Odds between two points 100 m apart", "one report changes them by at most this factor; × 1 would tell nothing", `× ${factor(epsilon * 0.1)}`],
      ["An hour on the road costs", `the sum of ${sum}, if every interval is reported: a trip as a whole is not hidden`, perKm(hour)],
      ["A night at one place costs", night, perKm(nightCost)],
    ]); // prettier-ignore
    byId("figures").replaceChildren(table);
  }
}

/** All places of a zone with the probability that each is reported, often 0. */
function overZone(zone, place, { outputs, probability }) {
  const probabilityOf = new Map(outputs.map((output, index) => [output, probability[index]]));
  const places = zone.flatMap((number, other) => (number === zone[place] ? [other] : []));
  return [places, places.map((other) => probabilityOf.get(other) ?? 0)];
}
