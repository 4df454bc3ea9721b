// Whole numbers from random words.

import { bitLength } from "./integers.js";

const WORD_BITS = 62;

/** @typedef {() => bigint} Words Each call gives a word of 62 random bits. */

/**
 * Draw a whole number below a limit, each with the same probability.
 *
 * @param {bigint} limit positive
 * @param {Words} words
 * @returns {bigint}
 */
export function below(limit, words) {
  const bits = bitLength(limit - 1n);
  const count = Math.ceil(bits / WORD_BITS);
  const surplus = BigInt(count * WORD_BITS - bits);
  for (;;) {
    let number = 0n;
    for (let index = 0; index < count; index += 1) number = (number << BigInt(WORD_BITS)) | words();
    number >>= surplus;
    if (number < limit) return number;
  }
}
