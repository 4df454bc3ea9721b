// Whole numbers of any size: roots, quotients, fractions.

/** @param {bigint} value @param {bigint} by positive @returns {bigint} from 0 to below `by` */
export function mod(value, by) {
  const rest = value % by;
  return rest < 0n ? rest + by : rest;
}

/** @param {bigint} value @param {bigint} by positive @returns {bigint} the quotient, rounded down */
export function floorDivide(value, by) {
  const quotient = value / by;
  return quotient * by > value ? quotient - 1n : quotient;
}

/** @param {bigint} value @param {bigint} by positive @returns {bigint} the quotient, rounded up */
export function ceilDivide(value, by) {
  return -floorDivide(-value, by);
}

/** @param {bigint} value @returns {bigint} */
export function absolute(value) {
  return value < 0n ? -value : value;
}

/** @param {bigint} value 0 or more @returns {number} how many binary digits it has; 0 for 0 */
export function bitLength(value) {
  if (value === 0n) return 0;
  const digits = value.toString(16);
  return 4 * digits.length - Math.clz32(parseInt(digits[0], 16)) + 28;
}

/** @param {bigint} value 0 or more @returns {bigint} its square root, rounded down */
export function isqrt(value) {
  if (value < 2n) return value;
  // From above, Newton's steps descend to the root and stop there.
  let root = 1n << BigInt((bitLength(value) + 1) >> 1);
  for (;;) {
    const next = (root + value / root) >> 1n;
    if (next >= root) return root;
    root = next;
  }
}

/** @param {number} value @returns {number} the nearest whole number; of two, the even one */
export function roundHalfEven(value) {
  const below = Math.floor(value);
  const rest = value - below;
  if (rest !== 0.5) return rest < 0.5 ? below : below + 1;
  return below % 2 === 0 ? below : below + 1;
}

/** A fraction of whole numbers; the denominator is positive. It is not reduced. */
export class Fraction {
  /**
   * @param {bigint} numerator
   * @param {bigint} [denominator] positive
   */
  constructor(numerator, denominator = 1n) {
    this.numerator = numerator;
    this.denominator = denominator;
  }

  /** @param {Fraction} other */
  plus(other) {
    return new Fraction(
      this.numerator * other.denominator + other.numerator * this.denominator,
      this.denominator * other.denominator,
    );
  }

  /** @param {Fraction} other */
  minus(other) {
    return this.plus(new Fraction(-other.numerator, other.denominator));
  }

  /** @param {Fraction} other */
  times(other) {
    return new Fraction(this.numerator * other.numerator, this.denominator * other.denominator);
  }

  /** @param {Fraction} other positive */
  over(other) {
    return new Fraction(this.numerator * other.denominator, this.denominator * other.numerator);
  }

  /** @param {Fraction} other @returns {boolean} */
  exceeds(other) {
    return this.numerator * other.denominator > other.numerator * this.denominator;
  }

  /** @returns {bigint} rounded down */
  floor() {
    return floorDivide(this.numerator, this.denominator);
  }
}
