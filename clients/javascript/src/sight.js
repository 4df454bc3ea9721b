// How probable a report is from each place and each shift of the anchor, up to a factor. Nothing is promised by it: doubles do.

import { MismatchError, ParameterError } from "./errors.js";
import { slope } from "./kernel.js";

const SINK_BASE_LOG = Math.log(2 ** 44);
const SHIFT_MASS = 0.995;
const MOST_SHIFTS = 4096;
const STEP_OF_SCALE = 0.8;
const [SHORTEST_STEP_M, LONGEST_STEP_M] = [50, 250];

/**
 * @typedef {object} Shifts The shifts of an anchor that a recipient thinks of.
 * @property {Float64Array} east metres
 * @property {Float64Array} north metres
 * @property {Float32Array} chances how probable each is at the start of a period
 * @property {number | null} periodMs
 */

/** @type {Shifts} */
export const NO_SHIFT = { east: new Float64Array(1), north: new Float64Array(1), chances: Float32Array.of(1), periodMs: null };

/**
 * Return a grid of shifts that holds 99.5 % of an anchor's distribution.
 *
 * @param {import("./anchor.js").AnchorSpec} anchor
 * @param {number} unitM
 * @param {number} [stepM] from one shift to the next; by default 0.8/ε₀ km, from 50 to 250 m
 * @returns {Shifts}
 */
export function shiftsOf(anchor, unitM, stepM) {
  const scaleM = 1000 / (Number(anchor.epsilonMicro) / 1e6);
  const step = stepM ?? Math.min(Math.max(STEP_OF_SCALE * scaleM, SHORTEST_STEP_M), LONGEST_STEP_M);
  if (!(step > 0)) throw new ParameterError("Shifts must be more than 0 m apart.");
  const half = Math.floor(Math.min(10 * scaleM, step * Math.sqrt(MOST_SHIFTS)) / step);
  const rate = slope(anchor.rate).toNumber() / unitM;
  const grid = [];
  for (let row = -half; row <= half; row += 1) {
    for (let column = -half; column <= half; column += 1) {
      const [east, north] = [column * step, row * step];
      grid.push({ east, north, chance: Math.exp(-rate * Math.hypot(east, north)) });
    }
  }
  grid.sort((first, second) => second.chance - first.chance);
  const wanted = SHIFT_MASS * grid.reduce((sum, { chance }) => sum + chance, 0);
  let [kept, mass] = [0, 0];
  while (kept < grid.length && mass < wanted) {
    mass += grid[kept].chance;
    kept += 1;
  }
  const likely = grid.slice(0, kept);
  return {
    east: Float64Array.from(likely, ({ east }) => east),
    north: Float64Array.from(likely, ({ north }) => north),
    chances: Float32Array.from(likely, ({ chance }) => chance / mass),
    periodMs: Number(anchor.periodS) * 1000,
  };
}

/** What a recipient knows of a lattice. */
export class LatticeSight {
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
    this.#rate = slope(spec.rate).toNumber();
    this.#least = Math.log(Number(spec.floor));
    // A place stands for all points near it: what is seen from it has no sharp peak.
    this.#spread2 = (model.spreadM / this.unitM) ** 2;
    this.#x = new Float64Array(this.places);
    this.#y = new Float64Array(this.places);
    this.#height = new Float64Array(this.places);
    let inside = 0;
    for (let place = 0; place < this.places; place += 1) {
      const [latE7, lonE7] = [BigInt(model.placesE7[2 * place]), BigInt(model.placesE7[2 * place + 1])];
      if (spec.plane.holds(latE7, lonE7)) inside += 1;
      [this.#x[place], this.#y[place]] = spec.plane.unitOfE7(latE7, lonE7);
      this.#height[place] = logHeight(lattice, this.#x[place], this.#y[place]);
    }
    if (2 * inside < this.places) throw new MismatchError("The motion model is of another city than the bundle.");
  }

  #rate;
  #least;
  #spread2;
  #x;
  #y;
  #height;

  /**
   * Return how probable a report is from each place and shift, up to a factor, by place, then by shift.
   *
   * @param {number} cell
   * @param {Shifts} shifts
   * @returns {Float32Array}
   */
  likelihood(cell, shifts) {
    const { cellUnits: n, across, side } = this.lattice;
    const centreX = (cell % across) * n + Math.floor(n / 2);
    const centreY = Math.floor(cell / across) * n + Math.floor(n / 2);
    const width = shifts.chances.length;
    const logs = new Float64Array(this.places * width);
    let largest = -Infinity;
    for (let place = 0, index = 0; place < this.places; place += 1) {
      for (let shift = 0; shift < width; shift += 1, index += 1) {
        const east = apart(this.#x[place] + shifts.east[shift] / this.unitM, centreX, side);
        const north = apart(this.#y[place] + shifts.north[shift] / this.unitM, centreY, side);
        const distance = Math.sqrt(east * east + north * north + this.#spread2);
        let log = Math.max(this.#height[place] - this.#rate * distance, this.#least);
        // What is missing to a whole goes to the first cell, from everywhere alike.
        if (cell === 0) log = Math.max(log, SINK_BASE_LOG) + Math.log1p(Math.exp(-Math.abs(log - SINK_BASE_LOG)));
        logs[index] = log;
        if (log > largest) largest = log;
      }
    }
    return Float32Array.from(logs, (log) => Math.exp(log - largest));
  }
}

/** @param {number} point @param {number} centre @param {number} side @returns {number} distance along one axis of the torus */
function apart(point, centre, side) {
  const distance = Math.abs(point - Math.floor(point / side) * side - centre);
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
