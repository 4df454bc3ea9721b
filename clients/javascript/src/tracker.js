// A tracker: follows vehicles by what they released, report by report, at no cost in privacy. Predict by the motion model,
// weigh by the report, normalise. A report that is held, and so repeated, says that the vehicle did not move, and no more.

import { ParameterError } from "./errors.js";
import { ObservationModel } from "./observation.js";
import { surrounded } from "./surroundings.js";

const ANYWHERE = 1e-5;
// In a chain of order 1, which forgets directions, this share of a belief takes a second step in each step.
const AGAIN = 0.5;
const LONGEST_GAP_MS = 2 * 3_600_000;
const LATEST_MS = 4_102_444_800_000;
const LEAST_TOTAL = 2 ** -126;
const ITERATIONS = 6;
const SMOOTHING_M = 20;
const SHARE_WITHIN = 0.9;
const BIN_M = 10;
const BINS = 10_000;
const MASS_LEFT_OUT = 1e-4;

/** @typedef {"used" | "late" | "repeated" | "conflicting" | "impossible"} Outcome How a report was taken into account. */

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
  #observations;
  #steps;
  #isHeld;
  #intervalMs;
  /** @type {Map<string, {slot: number, cell: number, belief: Float32Array}>} */
  #vehicles = new Map();

  /**
   * @param {import("./bundle.js").Bundle} bundle
   * @param {import("./motion_model.js").MotionModel} model
   */
  constructor(bundle, model) {
    this.#model = model.hasRoads ? surrounded(model, bundle.epsilon) : model;
    this.#observations = new ObservationModel(bundle, this.#model);
    this.#intervalMs = bundle.intervalMs;
    this.#steps = model.stepsIn(bundle.intervalMs / 1000);
    this.#isHeld = bundle.holdM > 0;
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
    if (!Number.isInteger(cell) || cell < 0 || cell >= this.#observations.lattice.cells) {
      throw new ParameterError(`There are ${this.#observations.lattice.cells} cells, counted from 0.`);
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
    if (!isNew && this.#isHeld && cell === known.cell) {
      known.slot = slot;
      return this.#estimated(known.belief, "used");
    }
    const belief = isNew ? this.#model.start.slice() : this.#predicted(known.belief, (slot - known.slot) * this.#steps);
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
    for (let step = 0; step < steps; step += 1) {
      const once = this.#model.moved(result);
      const twice = this.#model.memory === 1 ? this.#model.moved(once) : once;
      result = once.map((chance, index) => chance + AGAIN * (twice[index] - chance));
    }
    if (steps === 0) return belief;
    // A vehicle may be anywhere: no report is then impossible for good.
    return result.map((chance, index) => (1 - ANYWHERE) * chance + ANYWHERE * this.#model.start[index]);
  }

  /** @param {Float32Array} belief changed in place @param {number} cell @returns {Outcome} */
  #weigh(belief, cell) {
    const { present } = this.#model;
    const likelihood = this.#observations.likelihood(cell);
    const weighed = belief.map((chance, state) => chance * likelihood[present[state]]);
    let total = weighed.reduce((sum, chance) => sum + chance, 0);
    const isPossible = total > LEAST_TOTAL;
    const kept = isPossible ? weighed : belief.slice();
    if (!isPossible) total = kept.reduce((sum, chance) => sum + chance, 0);
    for (let index = 0; index < belief.length; index += 1) belief[index] = kept[index] / total;
    return isPossible ? "used" : "impossible";
  }

  /** @param {Float32Array} belief @param {Outcome} outcome @returns {Tracked} */
  #estimated(belief, outcome) {
    const { present, placeCount } = this.#model;
    const places = new Float64Array(placeCount);
    belief.forEach((chance, state) => { places[present[state]] += chance; });
    const [x, y, radiusM] = pointAndRadius(places, this.#model);
    const [lat, lon] = this.#model.toDegrees(x, y);
    return { lat, lon, radiusM, outcome };
  }
}

/**
 * Return the point of least expected distance (Weiszfeld's iteration), and the radius around it that holds 90 %.
 *
 * @param {Float64Array} chances of places
 * @param {import("./motion_model.js").MotionModel} model has the places; each stands for points around it
 * @returns {[number, number, number]} metres
 */
function pointAndRadius(chances, { x, y, spreadsM }) {
  const least = (chances.reduce((sum, chance) => sum + chance, 0) * MASS_LEFT_OUT) / chances.length;
  const likely = Array.from(chances.keys()).filter((place) => chances[place] >= least);
  let [pointX, pointY] = [0, 0];
  for (let round = 0; round <= ITERATIONS; round += 1) {
    let [total, sumX, sumY] = [0, 0, 0];
    for (const place of likely) {
      const apart2 = (x[place] - pointX) ** 2 + (y[place] - pointY) ** 2 + Math.max(spreadsM[place], SMOOTHING_M) ** 2;
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
  let [total, off] = [0, 0];
  for (const place of likely) {
    total += chances[place];
    off += chances[place] * spreadsM[place] ** 2;
  }
  return [pointX, pointY, Math.hypot((ring + 1) * BIN_M, Math.sqrt(off / total))];
}
