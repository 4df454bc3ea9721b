// The anchor of a period: a secret shift, drawn by rejection, exactly.

import { mod, absolute } from "./integers.js";
import { kernelAt, slope } from "./kernel.js";
import { below } from "./words.js";

const TOP_BITS = 61n;

/**
 * @typedef {object} AnchorSpec
 * @property {bigint} epsilonMicro ε₀ in millionths per kilometre
 * @property {bigint} periodS
 * @property {bigint} rate
 * @property {bigint} floor
 */

/** @typedef {[number, number]} Shift Units east and north, each from 0 to below the side of the frame. */

/** Draws shifts on a frame. */
export class ShiftDrawing {
  #anchor;
  #side;
  #rings;

  /**
   * @param {AnchorSpec} anchor
   * @param {bigint} side
   */
  constructor(anchor, side) {
    this.#anchor = anchor;
    this.#side = side;
    this.#rings = rings(anchor, side);
  }

  /** @param {bigint} east @param {bigint} north @returns {bigint} the weight of a shift */
  weight(east, north) {
    return weightAt(this.#anchor, this.#shortest(east) ** 2n + this.#shortest(north) ** 2n, 0n);
  }

  /** @param {bigint} along */
  #shortest(along) {
    const [forth, back] = [mod(along, this.#side), mod(-along, this.#side)];
    return forth < back ? forth : back;
  }

  /** @param {import("./words.js").Words} words @returns {Shift} */
  draw(words) {
    const all = this.#rings.at(-1).upTo;
    for (;;) {
      const chosen = below(all, words);
      const { inner, width, bound } = this.#rings.find((ring) => chosen < ring.upTo);
      const east = below(width, words) - width / 2n;
      const north = below(width, words) - width / 2n;
      if (absolute(east) < inner && absolute(north) < inner) continue;
      if (below(bound, words) < this.weight(east, north)) {
        return [Number(mod(east, this.#side)), Number(mod(north, this.#side))];
      }
    }
  }
}

/** @param {AnchorSpec} anchor @param {bigint} square @param {bigint} slack */
function weightAt(anchor, square, slack) {
  const { mantissa, exponent } = kernelAt(square, anchor.rate);
  const weight = ((mantissa + slack) << (TOP_BITS - 31n)) >> exponent;
  return weight > anchor.floor ? weight : anchor.floor;
}

/** @param {AnchorSpec} anchor @param {bigint} side */
function rings(anchor, side) {
  const step = BigInt(Math.max(Math.floor(1 / (2 * slope(anchor.rate).toNumber())), 1));
  const found = [];
  let [inner, bound, upTo] = [0n, 1n << TOP_BITS, 0n];
  /** @param {bigint} width */
  const add = (width) => {
    upTo += width ** 2n * bound;
    found.push({ inner, width, bound, upTo });
  };
  while (bound > anchor.floor && inner + step < side / 2n) {
    add(2n * (inner + step) - 1n);
    inner += step;
    bound = weightAt(anchor, inner ** 2n, 9n);
  }
  add(side);
  return found;
}
