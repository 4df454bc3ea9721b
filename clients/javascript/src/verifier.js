// Whether the numbers of a lattice keep their promise, in whole numbers. It shares the tables of powers with what draws, and
// nothing else. All that is read is taken to be made by an enemy.

import { InputError, LatticeViolation } from "./errors.js";
import { Fraction, isqrt } from "./integers.js";
import { COARSE, FINE } from "./kernel.js";
import { Lattice } from "./lattice.js";

const TOTAL = 1n << 62n;
const SINK_BASE = 1n << 44n;
const LN2_ABOVE = new Fraction(6931471805599453095n, 10n ** 19n);
const ROUNDING = new Fraction(1n, 1n << 27n);
const LEAST_USED = new Fraction(95n, 100n);
const MOST_CELLS = 1n << 26n;
const MOST_UNITS_IN_CELL = 1024n;
const MOST_WORK = 1n << 30n;
const LARGEST_EPSILON_MICRO = 10n ** 9n;
/** The entries of a table in two pieces, of 16 and 15 bits: products with them stay below 2^53. */
const FINE_TOP = FINE.map((entry) => Math.floor(entry / 32768));
const FINE_REST = FINE.map((entry) => entry % 32768);
const POWERS = Float64Array.from({ length: 64 }, (_, bits) => 2 ** bits);
const HALVES = POWERS.map((power) => 1 / power);

/**
 * Verify a lattice, and return it.
 *
 * @param {import("./lattice.js").LatticeSpec} spec
 * @returns {Lattice}
 * @throws {LatticeViolation} It does not keep its promise.
 * @throws {InputError} The numbers cannot be a lattice.
 */
export function verifiedLattice(spec) {
  checkForm(spec);
  const epsilon = new Fraction(spec.epsilonMicro * spec.plane.unitMm, 10n ** 12n);
  const used = steepness(spec.rate, spec.floor);
  if (used.exceeds(epsilon)) violated("The kernel of the lattice falls faster than ε allows.");
  const kappa = epsilon.minus(used);
  const steepest = checkMultipliers(spec, kappa);
  if (epsilon.times(LEAST_USED).exceeds(used.plus(steepest))) {
    impossible("The lattice uses less of ε than one that was made for it: its numbers were edited.");
  }
  const totals = sumsOfWeights(spec);
  checkSink(totals, epsilon);
  checkWindow(spec);
  // Held within more than the mean error of a report, 2/ε km, reports would be off by more than their noise.
  const largestHoldMm = (2n * 10n ** 12n) / spec.epsilonMicro;
  if (spec.holdMm < 0n || spec.holdMm > largestHoldMm) {
    impossible(`A report can be held within 0 to ${largestHoldMm / 1000n} m, the mean error of a report at this ε.`);
  }
  return new Lattice(spec, totals);
}

/** @param {string} problem @returns {never} */
function violated(problem) {
  throw new LatticeViolation(problem);
}

/** @param {string} problem @returns {never} */
function impossible(problem) {
  throw new InputError(problem);
}

/** @param {bigint} rate @param {bigint} floor @returns {Fraction} what kernel, rounding and floor take of ε, by unit */
function steepness(rate, floor) {
  const steps = new Fraction(rate * 2049n, 1n << 20n).plus(new Fraction(1n));
  return LN2_ABOVE.times(steps).times(new Fraction(1n, 1n << 24n)).plus(new Fraction(1n, floor)).plus(ROUNDING);
}

/** @param {import("./lattice.js").LatticeSpec} spec */
function checkForm(spec) {
  const { cellUnits: n, multipliers } = spec;
  const side = spec.plane.side;
  /** @param {boolean} sound @param {string} what */
  const check = (sound, what) => {
    if (!sound) impossible(`The numbers of the lattice cannot be one: wrong is ${what}.`);
  };
  check(n >= 1n && n <= MOST_UNITS_IN_CELL, "the size of a cell");
  check(side % n === 0n, "the frame, which is not a whole number of cells wide");
  const across = side / n;
  check(across ** 2n <= MOST_CELLS, "the number of cells");
  check(spec.halfWindow >= 1n && spec.halfWindow < MOST_UNITS_IN_CELL, "the window");
  const window = windowOf(spec);
  const reach = (window * n < side ? window * n : side) / 2n + n;
  check(2n * reach ** 2n < 1n << 30n, "the window, which is too wide");
  check(spec.epsilonMicro > 0n && spec.epsilonMicro <= LARGEST_EPSILON_MICRO, "ε");
  check(spec.rate > 0n && spec.rate * isqrt((2n * reach ** 2n) << 22n) < TOTAL, "the rate");
  check(spec.shift >= 0n && spec.shift < 62n, "the shift");
  check(spec.floor >= 1n && spec.floor * across ** 2n < TOTAL, "the floor");
  const half = n / 2n;
  check(BigInt(multipliers.length) === ((half + 1n) * (half + 2n)) / 2n, "the number of multipliers");
  check(multipliers.every((multiplier) => multiplier > 0), "the multipliers");
  check(((half + 1n) ** 2n * window ** 2n) / 2n <= MOST_WORK, "the work to verify it");
  check(((half + 1n) ** 2n * n ** 2n) / 2n <= MOST_WORK, "the work to verify it");
}

/** @param {import("./lattice.js").LatticeSpec} spec @returns {bigint} cells along one side of the window */
function windowOf(spec) {
  const across = spec.plane.side / spec.cellUnits;
  const wanted = 2n * spec.halfWindow + 1n;
  return wanted < across ? wanted : across;
}

/**
 * Check all pairs of positions in a cell; return the steepest ratio found, by unit.
 *
 * @param {import("./lattice.js").LatticeSpec} spec
 * @param {Fraction} kappa
 */
function checkMultipliers(spec, kappa) {
  const n = Number(spec.cellUnits);
  // Each row twice in a row, and all rows twice: no index has to be wrapped.
  const width = 2 * n;
  const table = new Float64Array(width * width);
  for (let east = 0; east < width; east += 1) {
    for (let north = 0; north < width; north += 1) {
      const [first, second] = [Math.min(east % n, n - (east % n)), Math.min(north % n, n - (north % n))];
      const [large, small] = [Math.max(first, second), Math.min(first, second)];
      table[east * width + north] = spec.multipliers[(large * (large + 1)) / 2 + small];
    }
  }
  let steepest = new Fraction(0n);
  for (let east = 1; east <= n / 2; east += 1) {
    for (let north = 0; north <= east; north += 1) {
      const distance = new Fraction(isqrt(BigInt(east * east + north * north) << 32n), 1n << 16n);
      const most = kappa.times(distance).times(new Fraction(1n << 31n)).floor();
      const allowed = most < 1n << 31n ? most : 1n << 31n;
      const share = Number(allowed) / 2 ** 31;
      let largest = 0;
      let above = 0;
      let below = 1;
      for (let p = 0; p < n; p += 1) {
        const here = p * width;
        const there = (p - east + n) * width - north + n;
        for (let q = 0; q < n; q += 1) {
          const multiplier = table[here + q];
          const other = table[there + q];
          // The product is right to 2^-22: only what is nearer than that to the limit is computed exactly.
          if (other - multiplier > share * multiplier - 1e-3) {
            if (BigInt(other - multiplier) << 31n > allowed * BigInt(multiplier)) {
              violated(
                "The multipliers of the lattice change faster within a cell than ε allows: its cells are too coarse, or " +
                  "its rate is too large.",
              );
            }
          }
          const ratio = other / multiplier;
          if (ratio > largest) {
            largest = ratio;
            above = other - multiplier;
            below = multiplier;
          }
        }
      }
      const steepness = new Fraction(BigInt(Math.max(above, 0)), BigInt(below)).over(distance);
      if (steepness.exceeds(steepest)) steepest = steepness;
    }
  }
  return steepest.exceeds(kappa) ? kappa : steepest;
}

/**
 * Return the sum of all cells' weights for each position, in the order of the multipliers.
 *
 * @param {import("./lattice.js").LatticeSpec} spec
 * @returns {bigint[]}
 */
function sumsOfWeights(spec) {
  const [n, side, window] = [Number(spec.cellUnits), Number(spec.plane.side), Number(windowOf(spec))];
  const across = BigInt(side / n);
  const outside = (across ** 2n - BigInt(window) ** 2n) * spec.floor;
  const half = Math.floor(n / 2);
  const squares = Array.from({ length: half + 1 }, (_, position) => squaresFrom(position, n, side, window));
  const far = farRoot(spec);
  const totals = [];
  for (let large = 0; large <= half; large += 1) {
    for (let small = 0; small <= large; small += 1) {
      const total = sumOfWindow(spec, squares[large], squares[small], spec.multipliers[totals.length], far) + outside;
      totals.push(total);
    }
  }
  return totals;
}

/** @param {number} position @param {number} n @param {number} side @param {number} window */
function squaresFrom(position, n, side, window) {
  const halfSide = Math.floor(side / 2);
  return Float64Array.from({ length: window }, (_, index) => {
    const apart = (index - Math.floor(window / 2)) * n - position;
    const turned = (((apart + halfSide) % side) + side) % side;
    return (turned - halfSide) ** 2;
  });
}

/**
 * Return from which root on no weight is above the floor: beyond it, the exact value is smaller, and a mantissa is rounded by
 * 8 at most.
 *
 * @param {import("./lattice.js").LatticeSpec} spec
 * @returns {number}
 */
function farRoot(spec) {
  const largest = largestMultiplier(spec);
  let [near, far] = [0n, 1n << 26n]; // all roots are below 2^26
  while (near < far) {
    const middle = (near + far) / 2n;
    if (boundAt((middle * spec.rate) >> 20n, largest, spec.shift) <= spec.floor) far = middle;
    else near = middle + 1n;
  }
  return Number(far);
}

/**
 * Return the sum of a window's weights. Small ones, the usual ones, are added as they are; large ones in two parts.
 *
 * @param {import("./lattice.js").LatticeSpec} spec
 * @param {Float64Array} eastSquares
 * @param {Float64Array} northSquares
 * @param {number} multiplier
 * @param {number} far the root from which on all weights are the floor
 */
function sumOfWindow({ rate, shift, floor }, eastSquares, northSquares, multiplier, far) {
  const rateHigh = Number(rate / 1048576n);
  const rateLow = Number(rate % 1048576n);
  const floorHigh = Number(floor >> 16n);
  const floorLow = Number(floor & 0xffffn);
  const least = Number(floor); // rounded where it is above 2^53, and no small weight is above 2^47
  const startPlaces = Number(shift);
  const upperFactor = multiplier >>> 15;
  const lowerFactor = multiplier & 32767;
  const farScaled = far * far;
  let floors = 0;
  let small = 0;
  let folded = 0; // 2^52 each, from `small`
  let high = 0; // 2^16 each
  let low = 0;
  for (let row = 0; row < northSquares.length; row += 1) {
    const north = northSquares[row];
    for (let column = 0; column < eastSquares.length; column += 1) {
      const scaled = (north + eastSquares[column]) * 4194304;
      if (scaled >= farScaled) {
        floors += 1;
        continue;
      }
      let root = Math.floor(Math.sqrt(scaled));
      if (root * root > scaled) root -= 1;
      else if ((root + 1) * (root + 1) <= scaled) root += 1;
      const z = root * rateHigh + Math.floor((root * rateLow) / 1048576);
      const exponent = Math.floor(z / 16777216);
      const part = (z - exponent * 16777216) | 0;
      const coarse = COARSE[part >>> 12];
      const fine = part & 4095;
      const mantissa = Math.floor((coarse * FINE_TOP[fine] + Math.floor((coarse * FINE_REST[fine]) / 32768)) / 65536);
      const places = Math.min(exponent + startPlaces, 63) | 0;
      const bottom = mantissa * lowerFactor;
      const carried = Math.floor(bottom / 32768);
      const top = mantissa * upperFactor + carried; // the product is top·2^15 + what is left of bottom
      if (places >= 15) {
        const weight = Math.floor(top * HALVES[places - 15]);
        if (weight > least) small += weight;
        else floors += 1;
        if (small >= 4503599627370496) {
          small -= 4503599627370496;
          folded += 1;
        }
      } else {
        const upper = Math.floor(top * 0.5 * HALVES[places]);
        const rest = top - upper * 2 * POWERS[places];
        const lower = rest * POWERS[15 - places] + Math.floor((bottom - carried * 32768) * HALVES[places]);
        if (upper > floorHigh || (upper === floorHigh && lower > floorLow)) {
          high += upper;
          low += lower;
          if (high >= 68719476736) {
            high -= 68719476736;
            folded += 1;
          }
        } else {
          floors += 1;
        }
      }
    }
  }
  return BigInt(floors) * floor + BigInt(small) + BigInt(low) + (BigInt(high) << 16n) + (BigInt(folded) << 52n);
}

/** @param {bigint[]} totals @param {Fraction} epsilon */
function checkSink(totals, epsilon) {
  let [least, most] = [TOTAL - totals[0], TOTAL - totals[0]];
  for (const total of totals) {
    const left = TOTAL - total;
    if (left < least) least = left;
    if (left > most) most = left;
  }
  if (least < SINK_BASE) violated("The weights of the lattice leave less to the sink than they must.");
  if (most > 2n * SINK_BASE) impossible("The weights of the lattice do not add up: its numbers do not belong together.");
  if (new Fraction(most, least).exceeds(epsilon.plus(new Fraction(1n)))) {
    violated("What the sink of the lattice gets varies more than ε allows.");
  }
}

/** @param {import("./lattice.js").LatticeSpec} spec */
function checkWindow(spec) {
  const n = spec.cellUnits;
  if (2n * spec.halfWindow + 1n >= spec.plane.side / n) return;
  const nearest = (spec.halfWindow + 1n) * n - n / 2n;
  const z = (isqrt(nearest ** 2n << 22n) * spec.rate) >> 20n;
  if (boundAt(z, largestMultiplier(spec), spec.shift) > spec.floor) {
    violated("Cells outside the window of the lattice would weigh more than its floor.");
  }
}

/** @param {import("./lattice.js").LatticeSpec} spec */
function largestMultiplier(spec) {
  return BigInt(spec.multipliers.reduce((most, multiplier) => Math.max(most, multiplier), 0));
}

/** @param {bigint} z @param {bigint} multiplier @param {bigint} shift @returns {bigint} what no weight from there on exceeds */
function boundAt(z, multiplier, shift) {
  const part = Number(z & 0xffffffn);
  const mantissa = (BigInt(COARSE[part >> 12]) * BigInt(FINE[part & 4095])) >> 31n;
  return ((mantissa + 9n) * multiplier) >> ((z >> 24n) + shift);
}
