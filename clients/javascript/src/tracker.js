// A tracker: follows vehicles by what they released, report by report, at no cost in privacy. Predict by the motion model,
// weigh by the report, normalise; with an anchor, place and shift are told together.

import { ParameterError } from "./errors.js";
import { LatticeSight, NO_SHIFT, shiftsOf } from "./sight.js";

const ANYWHERE = 1e-5;
const LONGEST_GAP_MS = 2 * 3_600_000;
const LATEST_MS = 4_102_444_800_000;
const LEAST_TOTAL = 2 ** -126;
const ITERATIONS = 6;
const SMOOTHING_M = 20;
const SHARE_WITHIN = 0.9;
const BIN_M = 20;
const BINS = 5000;
const MASS_LEFT_OUT = 1e-4;

/** @typedef {"used" | "late" | "repeated" | "conflicting" | "impossible"} Outcome What became of a report. */

/**
 * @typedef {object} Tracked Where a vehicle is, by what it reported.
 * @property {number} lat degrees
 * @property {number} lon
 * @property {number} radiusM the circle that holds the vehicle with a probability of 90 %, metres
 * @property {Outcome} outcome
 */

/** Follows vehicles by their released reports. Reports of a vehicle come in the order of its slots. */
export class Tracker {
  #model;
  #sight;
  #shifts;
  #start;
  #steps;
  #intervalMs;
  /** @type {Map<string, {slot: number, cell: number, belief: Float32Array}>} */
  #vehicles = new Map();

  /**
   * @param {import("./bundle.js").Bundle} bundle
   * @param {import("./motion_model.js").MotionModel} model
   * @param {{shiftStepM?: number, fullMemory?: boolean}} [options] with an anchor: how finely its shifts are told apart, and
   *   whether the whole memory of the model is used, which takes much more time
   */
  constructor(bundle, model, { shiftStepM, fullMemory = false } = {}) {
    this.#model = bundle.anchor !== null && model.memory > 1 && !fullMemory ? model.ofOrder1() : model;
    this.#sight = new LatticeSight(bundle, this.#model);
    this.#shifts = bundle.anchor === null ? NO_SHIFT : shiftsOf(bundle.anchor, this.#sight.unitM, shiftStepM);
    this.#intervalMs = bundle.intervalMs;
    this.#steps = this.#model.stepsIn(bundle.intervalMs / 1000);
    const { start } = this.#model;
    const { chances } = this.#shifts;
    this.#start = new Float32Array(start.length * chances.length);
    for (let state = 0, index = 0; state < start.length; state += 1) {
      for (let shift = 0; shift < chances.length; shift += 1, index += 1) this.#start[index] = start[state] * chances[shift];
    }
  }

  /**
   * Take a report into account, and return where the vehicle is.
   *
   * @param {string} vehicle its name
   * @param {number} slot as the report has it
   * @param {number} cell as the report has it
   * @returns {Tracked}
   */
  see(vehicle, slot, cell) {
    if (!Number.isInteger(cell) || cell < 0 || cell >= this.#sight.lattice.cells) {
      throw new ParameterError(`There are ${this.#sight.lattice.cells} cells, counted from 0.`);
    }
    if (!Number.isInteger(slot) || slot < 0 || slot * this.#intervalMs >= LATEST_MS) {
      throw new ParameterError("Slots go from 1970 to 2099.");
    }
    const known = this.#vehicles.get(vehicle);
    if (known !== undefined && slot <= known.slot) {
      const same = known.cell === cell ? "repeated" : "conflicting";
      return this.#estimated(known.belief, slot === known.slot ? same : "late");
    }
    const isNew = known === undefined || (slot - known.slot) * this.#intervalMs > Math.max(LONGEST_GAP_MS, this.#intervalMs);
    let belief = isNew ? this.#start.slice() : this.#predicted(known.belief, (slot - known.slot) * this.#steps);
    if (!isNew && this.#period(slot) !== this.#period(known.slot)) belief = this.#renewed(belief);
    const outcome = this.#weigh(belief, cell);
    this.#vehicles.set(vehicle, { slot, cell, belief });
    return this.#estimated(belief, outcome);
  }

  /**
   * Return where a vehicle will be some slots after its last report.
   *
   * @param {string} vehicle
   * @param {number} [ahead] slots
   */
  estimate(vehicle, ahead = 0) {
    const known = this.#vehicles.get(vehicle);
    if (known === undefined) throw new ParameterError("No report of this vehicle is known.");
    if (!Number.isInteger(ahead) || ahead < 0 || ahead * this.#intervalMs > Math.max(LONGEST_GAP_MS, this.#intervalMs)) {
      throw new ParameterError("One can look two hours ahead.");
    }
    const { lat, lon, radiusM } = this.#estimated(this.#predicted(known.belief, ahead * this.#steps), "used");
    return { lat, lon, radiusM };
  }

  /** @param {string} vehicle */
  forget(vehicle) {
    this.#vehicles.delete(vehicle);
  }

  /** @param {Float32Array} belief @param {number} steps */
  #predicted(belief, steps) {
    let result = belief;
    for (let step = 0; step < steps; step += 1) result = this.#model.moved(result, this.#shifts.chances.length);
    if (steps === 0) return belief;
    // A vehicle may be anywhere: no report is then impossible for good.
    return result.map((chance, index) => (1 - ANYWHERE) * chance + ANYWHERE * this.#start[index]);
  }

  /** @param {number} slot */
  #period(slot) {
    return this.#shifts.periodMs === null ? 0 : Math.floor((slot * this.#intervalMs) / this.#shifts.periodMs);
  }

  /** @param {Float32Array} belief @returns {Float32Array} of the place alone: a new period has a shift of its own */
  #renewed(belief) {
    const { chances } = this.#shifts;
    const result = new Float32Array(belief.length);
    for (let from = 0; from < belief.length; from += chances.length) {
      let sum = 0;
      for (let shift = 0; shift < chances.length; shift += 1) sum += belief[from + shift];
      for (let shift = 0; shift < chances.length; shift += 1) result[from + shift] = sum * chances[shift];
    }
    return result;
  }

  /** @param {Float32Array} belief changed in place @param {number} cell @returns {Outcome} */
  #weigh(belief, cell) {
    const width = this.#shifts.chances.length;
    const { present } = this.#model;
    const likelihood = this.#sight.likelihood(cell, this.#shifts);
    const weighed = new Float32Array(belief.length);
    let total = 0;
    for (let state = 0, index = 0; state < present.length; state += 1) {
      const seen = present[state] * width;
      for (let shift = 0; shift < width; shift += 1, index += 1) {
        weighed[index] = belief[index] * likelihood[seen + shift];
        total += weighed[index];
      }
    }
    const isPossible = total > LEAST_TOTAL;
    const kept = isPossible ? weighed : belief.slice();
    if (!isPossible) total = kept.reduce((sum, chance) => sum + chance, 0);
    for (let index = 0; index < belief.length; index += 1) belief[index] = kept[index] / total;
    return isPossible ? "used" : "impossible";
  }

  /** @param {Float32Array} belief @param {Outcome} outcome @returns {Tracked} */
  #estimated(belief, outcome) {
    const width = this.#shifts.chances.length;
    const { present, placeCount } = this.#model;
    const places = new Float64Array(placeCount);
    for (let state = 0, index = 0; state < present.length; state += 1) {
      for (let shift = 0; shift < width; shift += 1, index += 1) places[present[state]] += belief[index];
    }
    const [x, y, radiusM] = pointAndRadius(places, this.#model.x, this.#model.y);
    const [lat, lon] = this.#model.toDegrees(x, y);
    // A place stands for points around it, so that the vehicle can be off it.
    return { lat, lon, radiusM: Math.hypot(radiusM, this.#model.spreadM), outcome };
  }
}

/**
 * Return the point of least expected distance (Weiszfeld's iteration), and the radius around it that holds 90 %.
 *
 * @param {Float64Array} chances of places
 * @param {Float32Array} x
 * @param {Float32Array} y
 * @returns {[number, number, number]} metres
 */
function pointAndRadius(chances, x, y) {
  const least = (chances.reduce((sum, chance) => sum + chance, 0) * MASS_LEFT_OUT) / chances.length;
  const likely = Array.from(chances.keys()).filter((place) => chances[place] >= least);
  let [pointX, pointY] = [0, 0];
  for (let round = 0; round <= ITERATIONS; round += 1) {
    let [total, sumX, sumY] = [0, 0, 0];
    for (const place of likely) {
      const apart2 = (x[place] - pointX) ** 2 + (y[place] - pointY) ** 2 + SMOOTHING_M ** 2;
      const weight = chances[place] * (round === 0 ? 1 : 1 / Math.sqrt(apart2));
      total += weight;
      sumX += weight * x[place];
      sumY += weight * y[place];
    }
    [pointX, pointY] = [sumX / total, sumY / total];
  }
  const rings = new Float64Array(BINS);
  for (const place of likely) {
    const distance = Math.hypot(x[place] - pointX, y[place] - pointY);
    rings[Math.min(Math.floor(distance / BIN_M), BINS - 1)] += chances[place];
  }
  const wanted = SHARE_WITHIN * rings.reduce((sum, mass) => sum + mass, 0);
  let [ring, held] = [0, rings[0]];
  while (held < wanted && ring < BINS - 1) {
    ring += 1;
    held += rings[ring];
  }
  return [pointX, pointY, (ring + 1) * BIN_M];
}
