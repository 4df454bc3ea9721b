// A lattice that was verified: from a point and a word to a cell.

import { LatticeViolation } from "./errors.js";
import { RowWeights, axisSquares } from "./kernel.js";
import { roundHalfEven } from "./integers.js";

/**
 * @typedef {object} LatticeSpec The numbers of a lattice.
 * @property {import("./plane.js").Plane} plane
 * @property {bigint} epsilonMicro ε in millionths per kilometre
 * @property {bigint} cellUnits
 * @property {bigint} rate
 * @property {bigint} shift
 * @property {bigint} floor
 * @property {bigint} halfWindow
 * @property {Int32Array} multipliers
 * @property {bigint} holdMm within this distance of where the last report was drawn, it is repeated; 0: never
 */

/** Planar Laplace noise over a whole city, exact. Made by `verifiedLattice`. */
export class Lattice {
  #spec;
  #totals;
  #row;
  #holdUnits;

  /**
   * @param {LatticeSpec} spec
   * @param {bigint[]} totals the sums of all weights that were verified, by position
   */
  constructor(spec, totals) {
    this.#spec = spec;
    this.#totals = totals;
    this.#holdUnits = Number(spec.holdMm / spec.plane.unitMm);
    this.side = Number(spec.plane.side);
    this.cellUnits = Number(spec.cellUnits);
    this.across = this.side / this.cellUnits;
    this.windowLength = Math.min(2 * Number(spec.halfWindow) + 1, this.across);
    this.#row = new RowWeights(spec, this.windowLength);
    Object.freeze(this);
  }

  /** How many cells there are. */
  get cells() {
    return this.across ** 2;
  }

  get spec() {
    return this.#spec;
  }

  /** @param {number} index @returns {number} a multiplier */
  multiplier(index) {
    return this.#spec.multipliers[index];
  }

  /**
   * Return whether a point is near enough to the last draw to repeat the last report.
   *
   * @param {[number, number]} point
   * @param {[number, number]} drawn
   */
  holds([x, y], [drawnX, drawnY]) {
    return this.#holdUnits > 0 && (x - drawnX) ** 2 + (y - drawnY) ** 2 <= this.#holdUnits ** 2;
  }

  /**
   * Return the cell to which a word leads from a point. The work is the same for every word.
   *
   * @param {number} x
   * @param {number} y
   * @param {bigint} word from 0 to 2^62 − 1
   */
  cellOf(x, y, word) {
    const { cellUnits: n, across, side, windowLength: length } = this;
    const floor = this.#spec.floor;
    const middle = Math.floor(n / 2);
    const [column, row] = [Math.floor(x / n), Math.floor(y / n)];
    const [east, north] = [x - column * n - middle, y - row * n - middle];
    const larger = Math.max(Math.abs(east), Math.abs(north));
    const smaller = Math.min(Math.abs(east), Math.abs(north));
    const position = (larger * (larger + 1)) / 2 + smaller;
    const multiplier = this.multiplier(position);
    const along = axisSquares(length, n, side, larger);
    const across2 = axisSquares(length, n, side, smaller);
    const weights = this.#row;
    let [inside, before, inRow] = [0n, 0n, -1];
    for (let index = 0; index < length; index += 1) {
      weights.fill(across2[index], along, multiplier);
      const next = inside + weights.sum();
      if (inRow < 0 && word < next) [before, inRow] = [inside, index];
      inside = next;
    }
    const outside = across * across - length * length;
    if (inside + BigInt(outside) * floor !== this.#totals[position]) {
      throw new LatticeViolation("What this machine draws from is not what was verified: its arithmetic differs.");
    }
    weights.fill(across2[Math.max(inRow, 0)], along, multiplier);
    let inColumn = -1;
    let cumulative = before;
    for (let index = 0; index < length; index += 1) {
      cumulative += (BigInt(weights.high[index]) << 31n) + BigInt(weights.low[index]);
      if (inColumn < 0 && word < cumulative) inColumn = index;
    }
    const beyond = word < inside ? 0n : (word - inside) / floor;
    if (word >= inside && beyond >= BigInt(outside)) return 0;
    let [first, second] = word < inside ? [inColumn, inRow] : this.#outside(Number(beyond));
    if (Math.abs(east) < Math.abs(north)) [first, second] = [second, first];
    const [offsetEast, offsetNorth] = [first - Math.floor(length / 2), second - Math.floor(length / 2)];
    const inEast = modulo(column + (east < 0 ? -offsetEast : offsetEast), across);
    const inNorth = modulo(row + (north < 0 ? -offsetNorth : offsetNorth), across);
    return inNorth * across + inEast;
  }

  /** @param {number} index @returns {[number, number]} column and row of a cell outside the window */
  #outside(index) {
    const { across, windowLength: length } = this;
    const beside = across - length;
    if (index < beside * across) return [index % across, length + Math.floor(index / across)];
    const rest = index - beside * across;
    return [length + (rest % beside), Math.floor(rest / beside)];
  }

  /** @param {number} cell @returns {[number, number]} latitude and longitude of its centre, whole 1e-7 degrees */
  centerE7(cell) {
    const { cellUnits: n, across } = this;
    const middle = Math.floor(n / 2);
    const [lat, lon] = this.#spec.plane.degrees((cell % across) * n + middle, Math.floor(cell / across) * n + middle);
    return [roundHalfEven(lat * 1e7), roundHalfEven(lon * 1e7)];
  }
}

/** @param {number} value @param {number} by */
export function modulo(value, by) {
  return ((value % by) + by) % by;
}
