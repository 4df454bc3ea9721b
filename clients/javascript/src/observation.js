// Likelihood of a report from each place, up to a factor. No promise depends on it, so doubles are exact enough.

import { MismatchError } from "./errors.js";

const SINK_BASE_LOG = Math.log(2 ** 44);

/** The observation model of a lattice: the likelihood of a report from each place. */
export class ObservationModel {
  /**
   * @param {import("./bundle.js").Bundle} bundle
   * @param {import("./motion_model.js").MotionModel} model
   */
  constructor(bundle, model) {
    const { lattice } = bundle;
    const { spec } = lattice;
    this.lattice = lattice;
    this.unitM = Number(spec.plane.unitMm) / 1000;
    this.places = model.placeCount;
    this.#rate = (Math.LN2 * (Number(spec.rate) * 2049 + 2 ** 20)) / 2 ** 44;
    this.#least = Math.log(Number(spec.floor));
    // A place stands for all points near it, so its likelihood has no sharp peak.
    this.#spread2 = Float64Array.from(model.spreadsM, (spreadM) => (spreadM / this.unitM) ** 2);
    this.#x = new Float64Array(this.places);
    this.#y = new Float64Array(this.places);
    this.#height = new Float64Array(this.places);
    let inside = 0;
    for (let place = 0; place < this.places; place += 1) {
      const [latE7, lonE7] = [BigInt(model.placesE7[2 * place]), BigInt(model.placesE7[2 * place + 1])];
      if (place < model.mapPlaces && spec.plane.holds(latE7, lonE7)) inside += 1;
      [this.#x[place], this.#y[place]] = spec.plane.unitOfE7(latE7, lonE7);
      this.#height[place] = logHeight(lattice, this.#x[place], this.#y[place]);
    }
    if (2 * inside < model.mapPlaces) throw new MismatchError("The motion model is of another city than the bundle.");
  }

  #rate;
  #least;
  #spread2;
  #x;
  #y;
  #height;

  /**
   * Return how probable a report is from each place, up to a factor.
   *
   * @param {number} cell
   * @returns {Float32Array}
   */
  likelihood(cell) {
    const { cellUnits: n, across, side } = this.lattice;
    const centreX = (cell % across) * n + Math.floor(n / 2);
    const centreY = Math.floor(cell / across) * n + Math.floor(n / 2);
    const logs = this.#height.map((height, place) => {
      const [east, north] = [apart(this.#x[place], centreX, side), apart(this.#y[place], centreY, side)];
      const distance = Math.sqrt(east * east + north * north + this.#spread2[place]);
      const log = Math.max(height - this.#rate * distance, this.#least);
      // What is missing to a whole goes to the first cell, from everywhere alike.
      return cell === 0 ? Math.max(log, SINK_BASE_LOG) + Math.log1p(Math.exp(-Math.abs(log - SINK_BASE_LOG))) : log;
    });
    const largest = logs.reduce((most, log) => Math.max(most, log), -Infinity);
    return Float32Array.from(logs, (log) => Math.exp(log - largest));
  }
}

/** @param {number} point @param {number} centre @param {number} side @returns {number} distance along one axis of the torus */
function apart(point, centre, side) {
  const distance = Math.abs(point - centre);
  return Math.min(distance, side - distance);
}

/** @param {import("./lattice.js").Lattice} lattice @param {number} x @param {number} y */
function logHeight(lattice, x, y) {
  const n = lattice.cellUnits;
  const [east, north] = [Math.abs((x % n) - Math.floor(n / 2)), Math.abs((y % n) - Math.floor(n / 2))];
  const [larger, smaller] = [Math.max(east, north), Math.min(east, north)];
  const multiplier = lattice.multiplier((larger * (larger + 1)) / 2 + smaller);
  return Math.log(multiplier) + (31 - Number(lattice.spec.shift)) * Math.LN2;
}
