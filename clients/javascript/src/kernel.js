// The kernel e^(−ε'·distance) in whole numbers, and sums of weights.
//
// Doubles hold whole numbers up to 2^53 exactly, and all products here are split so that none is larger. Weights can be:
// a sum is kept as high·2^31 + low.

import { isqrt } from "./integers.js";

const TABLE = 1 << 12;
/** 2^bits and 2^-bits. */
const DOUBLED = Float64Array.from({ length: 64 }, (_, bits) => 2 ** bits);
const HALVED = Float64Array.from({ length: 64 }, (_, bits) => 2 ** -bits);

/** @returns {[Float64Array, Float64Array]} ⌊2^31·2^(−i/2^12)⌋ and ⌊2^31·2^(−i/2^24)⌋ */
function powers() {
  const bits = 192n;
  let root = 1n << (bits - 1n); // 1/2; then its square root, twelve times, and twelve times again
  const tables = [];
  for (let part = 0; part < 2; part += 1) {
    for (let halving = 0; halving < 12; halving += 1) root = isqrt(root << bits);
    const entries = new Float64Array(TABLE);
    let entry = 1n << bits;
    for (let index = 0; index < TABLE; index += 1) {
      entries[index] = Number(entry >> (bits - 31n));
      entry = (entry * root) >> bits;
    }
    tables.push(entries);
  }
  return [tables[0], tables[1]];
}

/** Tables of powers of two; see `docs/bundle-format.md` for their hashes. */
export const [COARSE, FINE] = powers();
const FINE_HIGH = FINE.map((entry) => Math.floor(entry / 65536));
const FINE_LOW = FINE.map((entry) => entry % 65536);

/**
 * Weights of cells in a row, in doubles that hold them exactly.
 *
 * `fill` computes the weight of each cell as high·2^31 + low.
 */
export class RowWeights {
  /**
   * @param {{rate: bigint, shift: bigint, floor: bigint}} numbers of a lattice whose form was checked
   * @param {number} length cells in a row
   */
  constructor({ rate, shift, floor }, length) {
    this.high = new Float64Array(length);
    this.low = new Float64Array(length);
    this._rateHigh = Number(rate >> 24n) * 16;
    this._rateLow = Number(rate & 0xffffffn);
    this._shift = Number(shift);
    this._floorHigh = Number(floor >> 31n);
    this._floorLow = Number(floor & 0x7fffffffn);
  }

  /**
   * @param {number} rowSquare squared distance across the row, units
   * @param {Float64Array} squares squared distances along the row, units
   * @param {number} multiplier
   */
  fill(rowSquare, squares, multiplier) {
    const { high, low, _rateHigh: rateHigh, _rateLow: rateLow, _shift: shift } = this;
    const { _floorHigh: floorHigh, _floorLow: floorLow } = this;
    const multiplierHigh = multiplier >>> 16;
    const multiplierLow = multiplier & 65535;
    for (let index = 0; index < squares.length; index += 1) {
      const scaled = (rowSquare + squares[index]) * 4194304; // below 2^52
      let root = Math.floor(Math.sqrt(scaled));
      if (root * root > scaled) root -= 1;
      else if ((root + 1) * (root + 1) <= scaled) root += 1;
      const z = root * rateHigh + Math.floor(root * rateLow / 1048576);
      const exponent = Math.floor(z / 16777216);
      const part = (z - exponent * 16777216) | 0;
      const coarse = COARSE[part >> 12];
      const fine = part & 4095;
      const mantissa = Math.floor(
        (coarse * FINE_HIGH[fine] + Math.floor(coarse * FINE_LOW[fine] / 65536)) / 32768,
      );
      const lower = mantissa * multiplierLow;
      const lowerHigh = Math.floor(lower / 65536);
      const upper = mantissa * multiplierHigh + lowerHigh; // the product is upper·2^16 + rest
      const places = Math.min(exponent + shift, 63) | 0;
      let weightHigh = 0;
      let weightLow = 0;
      if (places >= 16) {
        const weight = Math.floor(upper * HALVED[places - 16]);
        weightHigh = Math.floor(weight / 2147483648);
        weightLow = weight - weightHigh * 2147483648;
      } else {
        const scale = DOUBLED[places];
        weightHigh = Math.floor(upper / 32768 * HALVED[places]);
        const rest = upper - weightHigh * 32768 * scale;
        weightLow = rest * DOUBLED[16 - places] + Math.floor((lower - lowerHigh * 65536) * HALVED[places]);
      }
      const isAbove = weightHigh > floorHigh || (weightHigh === floorHigh && weightLow > floorLow);
      high[index] = isAbove ? weightHigh : floorHigh;
      low[index] = isAbove ? weightLow : floorLow;
    }
  }

  /** @returns {bigint} the sum of the row */
  sum() {
    let [high, low] = [0, 0];
    for (let index = 0; index < this.high.length; index += 1) {
      high += this.high[index];
      low += this.low[index];
    }
    return (BigInt(high) << 31n) + BigInt(low);
  }
}

/**
 * @param {number} length cells of the window along one side
 * @param {number} n units in a cell
 * @param {number} side units in the frame
 * @param {number} position of the point from its cell's centre, 0 to ⌊n/2⌋
 * @returns {Float64Array} squared distances along one axis
 */
export function axisSquares(length, n, side, position) {
  const squares = new Float64Array(length);
  for (let index = 0; index < length; index += 1) {
    const apart = Math.abs((index - Math.floor(length / 2)) * n - position);
    const wrapped = Math.min(apart, side - apart);
    squares[index] = wrapped * wrapped;
  }
  return squares;
}
