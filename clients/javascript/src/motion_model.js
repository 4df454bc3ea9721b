// A public model of how vehicles move: a Markov chain over recent places, read from a file.

import { hasKeys, readArrays } from "./array_file.js";
import { InputError, MismatchError } from "./errors.js";

const MAGIC = "GBMOTION";
const LARGEST_BYTES = 2 ** 33;
const MOST_PLACES = 1 << 20;
const MOST_STATES = 1 << 26;
const LONGEST_MEMORY = 3;
const MOST_STEPS = 3600;
const TOLERANCE = 1e-3;
const LARGEST_SPREAD_M = 100_000;
const DTYPES = {
  places_e7: "<i4", states: "<i4", start: "<f4", offsets: "<i8", targets: "<i4", chances: "<f4", hours: "<f4", lengths: "<f4",
};
const RADIUS_M = 6_371_008.8;
const RADIAN = Math.PI / 180;

/**
 * @typedef {object} Chain
 * @property {Int32Array} placesE7 latitude and longitude of each place, 1e-7 degrees
 * @property {Int32Array} present the present place of each state
 * @property {number} memory places of the longest state
 * @property {Float32Array} start how probable each state is where nothing is known
 * @property {Int32Array} offsets where the moves from each state start
 * @property {Int32Array} targets the state that each move leads to
 * @property {Float32Array} chances
 * @property {number} intervalS seconds of a step
 * @property {number} spreadM how far a vehicle is from its place, root mean square, metres
 * @property {boolean} hasRoads whether the places belong to a road graph
 * @property {number} [cells] how many of the last places are cells around the map
 * @property {number} [cellM] the side of a cell, metres
 */

/** A motion model. Made by `loadMotionModel`. */
export class MotionModel {
  /** @param {Chain} chain */
  constructor(chain) {
    this.placesE7 = chain.placesE7;
    this.present = chain.present;
    this.memory = chain.memory;
    this.start = chain.start;
    this.offsets = chain.offsets;
    this.targets = chain.targets;
    this.chances = chain.chances;
    this.intervalS = chain.intervalS;
    this.spreadM = chain.spreadM;
    this.hasRoads = chain.hasRoads;
    this.placeCount = chain.placesE7.length / 2;
    this.mapPlaces = this.placeCount - (chain.cells ?? 0);
    /** How far a vehicle is from each place, root mean square, metres. */
    this.spreadsM = new Float32Array(this.placeCount).fill(chain.spreadM).fill((chain.cellM ?? 0) / Math.sqrt(6), this.mapPlaces);
    this.stateCount = chain.present.length;
    const [lat, lon] = [0, 1].map((axis) => extremes(chain.placesE7, axis));
    /** The middle of the places, degrees. */
    this.origin = [(lat[0] * 1e-7 + lat[1] * 1e-7) / 2, (lon[0] * 1e-7 + lon[1] * 1e-7) / 2];
    this.x = new Float32Array(this.placeCount);
    this.y = new Float32Array(this.placeCount);
    for (let place = 0; place < this.placeCount; place += 1) {
      const [x, y] = this.toPlane(chain.placesE7[2 * place] * 1e-7, chain.placesE7[2 * place + 1] * 1e-7);
      this.x[place] = x;
      this.y[place] = y;
    }
  }

  /** @param {number} lat @param {number} lon @returns {[number, number]} metres east and north of the origin */
  toPlane(lat, lon) {
    const scale = RADIAN * RADIUS_M;
    return [(lon - this.origin[1]) * scale * Math.cos(this.origin[0] * RADIAN), (lat - this.origin[0]) * scale];
  }

  /** @param {number} x @param {number} y @returns {[number, number]} latitude and longitude */
  toDegrees(x, y) {
    const scale = RADIAN * RADIUS_M;
    return [y / scale + this.origin[0], x / (scale * Math.cos(this.origin[0] * RADIAN)) + this.origin[1]];
  }

  /** @param {number} intervalS @returns {number} how many steps there are between reports */
  stepsIn(intervalS) {
    const steps = Math.round(intervalS / this.intervalS);
    if (!(steps >= 1 && steps <= MOST_STEPS) || Math.abs(steps * this.intervalS - intervalS) > 1e-6 * intervalS) {
      throw new MismatchError(`Reports come every ${intervalS} s, and a step of the motion model takes ${this.intervalS} s.`);
    }
    return steps;
  }

  /** @param {Float32Array} belief by state @returns {Float32Array} one step further */
  moved(belief) {
    const result = new Float32Array(belief.length);
    for (let state = 0; state < this.stateCount; state += 1) {
      for (let move = this.offsets[state]; move < this.offsets[state + 1]; move += 1) {
        result[this.targets[move]] += this.chances[move] * belief[state];
      }
    }
    return result;
  }
}

/** @param {Int32Array} pairs @param {number} axis @returns {[number, number]} the least and the largest */
function extremes(pairs, axis) {
  let [least, most] = [Infinity, -Infinity];
  for (let index = axis; index < pairs.length; index += 2) {
    least = Math.min(least, pairs[index]);
    most = Math.max(most, pairs[index]);
  }
  return [least, most];
}

/**
 * Read a motion model.
 *
 * @param {Uint8Array | ArrayBuffer} file
 * @returns {Promise<MotionModel>}
 * @throws {InputError} The file is damaged, or something else.
 */
export async function loadMotionModel(file) {
  const data = new Uint8Array(file).slice();
  const { fields, arrays } = await readArrays(data, { magic: MAGIC, kind: "a motion model", largestBytes: LARGEST_BYTES });
  const chain = parsed(fields, arrays);
  if (chain === null) throw new InputError("The file is not a motion model: its parts do not fit together.");
  return new MotionModel(chain);
}

/** @param {Map<string, any>} fields @param {Map<string, import("./array_file.js").StoredArray>} arrays @returns {Chain | null} */
function parsed(fields, arrays) {
  if (!hasKeys(fields, ["interval_s", "learned", "places_identity", "spread_m"])) return null;
  if (arrays.size !== Object.keys(DTYPES).length) return null;
  if (Object.entries(DTYPES).some(([name, dtype]) => arrays.get(name)?.dtype !== dtype)) return null;
  const [intervalS, spreadM] = [fields.get("interval_s"), fields.get("spread_m")].map((value) =>
    typeof value === "number" || typeof value === "bigint" ? Number(value) : NaN,
  );
  if (!(intervalS > 0 && intervalS <= 86_400 && spreadM >= 0 && spreadM <= LARGEST_SPREAD_M)) return null;
  const shapes = Object.fromEntries(Object.keys(DTYPES).map((name) => [name, arrays.get(name).shape]));
  const [places, states, memory] = [shapes.places_e7[0], shapes.states[0], shapes.states[1]];
  const isShaped =
    String(shapes.places_e7) === `${places},2` && places >= 1 && places <= MOST_PLACES &&
    shapes.states.length === 2 && memory >= 1 && memory <= LONGEST_MEMORY && states >= 1 && states <= MOST_STATES &&
    String(shapes.start) === `${states}` && String(shapes.offsets) === `${states + 1}` &&
    shapes.targets.length === 1 && String(shapes.targets) === String(shapes.chances) &&
    String(shapes.hours) === "24" && String(shapes.lengths) === "18";
  if (!isShaped) return null;
  const hasRoads = fields.get("places_identity") !== "";
  const [placesE7, table, targets] = ["places_e7", "states", "targets"].map((name) => integers(arrays.get(name).bytes));
  const [start, chances, hours, lengths] = ["start", "chances", "hours", "lengths"].map((name) => singles(arrays.get(name).bytes));
  const offsets = longs(arrays.get("offsets").bytes);
  if (offsets[0] !== 0 || offsets[states] !== targets.length) return null;
  if (![hours, lengths, start].every(isDistribution)) return null;
  for (let state = 0; state < states; state += 1) {
    if (!(offsets[state] < offsets[state + 1]) || offsets[state + 1] > targets.length) return null;
    if (!isDistribution(chances.subarray(offsets[state], offsets[state + 1]))) return null;
    if (table[state * memory] < 0) return null;
  }
  if (targets.some((target) => target < 0 || target >= states)) return null;
  if (table.some((place) => place < -1 || place >= places)) return null;
  if (placesE7.some((value, index) => Math.abs(value) > (index % 2 === 0 ? 900_000_000 : 1_800_000_000))) return null;
  const present = Int32Array.from({ length: states }, (_, state) => table[state * memory]);
  let longest = 1;
  for (let index = 0; index < table.length; index += 1) if (table[index] >= 0) longest = Math.max(longest, (index % memory) + 1);
  return { placesE7, present, memory: longest, start, offsets: Int32Array.from(offsets), targets, chances, intervalS, spreadM, hasRoads };
}

/** @param {Float32Array} values */
function isDistribution(values) {
  let sum = 0;
  for (const value of values) {
    if (!(value >= 0)) return false;
    sum += value;
  }
  return Math.abs(sum - 1) < TOLERANCE;
}

/** @param {Uint8Array} bytes */
const view = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** @param {Uint8Array} bytes */
function integers(bytes) {
  const from = view(bytes);
  return Int32Array.from({ length: bytes.length / 4 }, (_, index) => from.getInt32(4 * index, true));
}

/** @param {Uint8Array} bytes */
function singles(bytes) {
  const from = view(bytes);
  return Float32Array.from({ length: bytes.length / 4 }, (_, index) => from.getFloat32(4 * index, true));
}

/** @param {Uint8Array} bytes */
function longs(bytes) {
  const from = view(bytes);
  return Float64Array.from({ length: bytes.length / 8 }, (_, index) => Number(from.getBigInt64(8 * index, true)));
}
