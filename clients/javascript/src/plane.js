// The plane of a frame: coordinates as whole units, without stretching any distance.

import { ParameterError } from "./errors.js";
import { absolute, ceilDivide, floorDivide, isqrt, mod, roundHalfEven } from "./integers.js";

const SCALE_BITS = 30n;
const HALF_CIRCLE_E7 = 1_800_000_000n;
const RADIUS_MM = 6_371_008_800n;
const LARGEST_LATITUDE_E7 = 850_000_000n;
const LARGEST_WIDTH_E7 = 900_000_000n;

// Real numbers as whole numbers of 2^-256: 77 digits.
const BITS = 256n;
const ONE = 1n << BITS;
const PI = (314159265358979323846264338327950288419716939937510n << BITS) / 10n ** 50n;

/** @param {bigint} first @param {bigint} second */
const product = (first, second) => (first * second) >> BITS;
/** @param {bigint} first @param {bigint} second */
const quotient = (first, second) => (first << BITS) / second;

/** A square frame on the Earth. What is wrong with its numbers, `problem` says. */
export class Plane {
  /** @type {bigint} Units in 1e-7 degrees of latitude, times 2^30. */ northScale = 0n;
  /** @type {bigint} Units in 1e-7 degrees of longitude, times 2^30. */ eastScale = 0n;
  /** @type {bigint} Latitude of the northern edge. */ northE7 = 0n;
  /** @type {bigint} Longitudes from edge to edge. */ widthE7 = 0n;
  /** @type {string | null} Why there is no such frame. */ problem;

  /**
   * @param {bigint} southE7 latitude of the southern edge, 1e-7 degrees
   * @param {bigint} westE7 longitude of the western edge, 1e-7 degrees
   * @param {bigint} unitMm millimetres in a unit
   * @param {bigint} side units from edge to edge
   */
  constructor(southE7, westE7, unitMm, side) {
    this.southE7 = southE7;
    this.westE7 = westE7;
    this.unitMm = unitMm;
    this.side = side;
    this.problem = this.#measured();
  }

  /** @returns {string | null} */
  #measured() {
    if (this.unitMm < 1n || this.unitMm > 1_000_000n || this.side < 1n || this.side > 1n << 31n) {
      return "a frame needs units of 1 mm to 1 km and 1 to 2^31 of them from edge to edge";
    }
    if (this.westE7 < -HALF_CIRCLE_E7 || this.westE7 >= HALF_CIRCLE_E7) {
      return "the western edge of a frame must lie between −180° and 180°";
    }
    const unitsPerE7 = product((PI * RADIUS_MM) / 180n / 10n ** 7n / this.unitMm, ONE - ONE / 10n ** 40n);
    this.northScale = (unitsPerE7 << SCALE_BITS) >> BITS;
    this.northE7 = this.southE7 + ceilDivide(this.side << SCALE_BITS, this.northScale);
    const [south, north] = [absolute(this.southE7), absolute(this.northE7)];
    const edge = south > north ? south : north;
    if (edge > LARGEST_LATITUDE_E7) return "the frame reaches beyond 85° of latitude";
    const cosEdge = cosine(degrees(edge));
    const widestE7 = ((quotient(this.side << BITS, product(unitsPerE7, cosEdge)) * 105n) / 100n) >> BITS;
    if (widestE7 > LARGEST_WIDTH_E7) return "the frame is too wide";
    const flat = product(cosEdge, cosine(degrees(widestE7) / 2n));
    const cosLargest = quotient(flat, isqrt((product(flat, flat) + ONE - product(cosEdge, cosEdge)) << BITS));
    const exact = product(product(unitsPerE7, cosLargest) << SCALE_BITS, ONE - ONE / 10n ** 30n);
    this.eastScale = exact >> BITS;
    if (this.eastScale < 1n) return "the frame is too wide";
    this.widthE7 = ceilDivide(this.side << SCALE_BITS, this.eastScale);
    return this.widthE7 > widestE7 ? "the frame is too wide" : null;
  }

  /** @returns {bigint} how far a coordinate can lie from its point of the frame, millimetres */
  get roundingMm() {
    return isqrt((this.unitMm * this.unitMm) / 2n) + 9n;
  }

  /**
   * @param {bigint} latE7
   * @param {bigint} lonE7
   * @returns {[number, number]} x and y; outside the frame, of its nearest point
   */
  unitOfE7(latE7, lonE7) {
    const half = this.widthE7 / 2n;
    const east = inCircle(lonE7 - this.westE7 - half) + half;
    const rounding = 1n << (SCALE_BITS - 1n);
    const x = (east * this.eastScale + rounding) >> SCALE_BITS;
    const y = ((latE7 - this.southE7) * this.northScale + rounding) >> SCALE_BITS;
    return [this.#clamped(x), this.#clamped(y)];
  }

  /**
   * @param {bigint} x
   * @param {bigint} y
   * @returns {[bigint, bigint]} latitude and longitude of a point of the frame, 1e-7 degrees: the inverse of `unitOfE7`
   */
  e7OfUnit(x, y) {
    /** @param {bigint} units @param {bigint} scale */
    const e7 = (units, scale) => floorDivide((units << (SCALE_BITS + 1n)) + scale, 2n * scale);
    return [this.southE7 + e7(y, this.northScale), inCircle(this.westE7 + e7(x, this.eastScale))];
  }

  /** @param {bigint} value */
  #clamped(value) {
    if (value < 0n) return 0;
    return Number(value < this.side ? value : this.side - 1n);
  }

  /**
   * @param {bigint} latE7
   * @param {bigint} lonE7
   * @returns {boolean} whether a coordinate lies in the frame
   */
  holds(latE7, lonE7) {
    const east = mod(lonE7 - this.westE7, 2n * HALF_CIRCLE_E7);
    return this.southE7 <= latE7 && latE7 <= this.northE7 && east <= this.widthE7;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @returns {[number, number]} latitude and longitude of a point of the frame, degrees
   */
  degrees(x, y) {
    const lat = (Number(this.southE7) + y * (2 ** 30 / Number(this.northScale))) / 1e7;
    const lon = (Number(this.westE7) + x * (2 ** 30 / Number(this.eastScale))) / 1e7;
    return [lat, ((lon + 180) % 360) - 180];
  }
}

/** @param {bigint} lonE7 @returns {bigint} the same longitude, from −180° to below 180° */
export function inCircle(lonE7) {
  return mod(lonE7 + HALF_CIRCLE_E7, 2n * HALF_CIRCLE_E7) - HALF_CIRCLE_E7;
}

/** @param {bigint} e7 1e-7 degrees @returns {bigint} radians */
function degrees(e7) {
  return (PI * e7) / 180n / 10n ** 7n;
}

/** @param {bigint} radians below π/2 @returns {bigint} */
function cosine(radians) {
  const square = product(radians, radians);
  let [term, total] = [ONE, ONE];
  for (let index = 1n; term !== 0n; index += 2n) {
    term = -product(term, square) / (index * (index + 1n));
    total += term;
  }
  return total;
}

/**
 * Check a location.
 *
 * @param {unknown} lat degrees
 * @param {unknown} lon degrees
 * @returns {[bigint, bigint]} whole 1e-7 degrees
 */
export function locationE7(lat, lon) {
  const latE7 = degreesE7(lat, "latitude", 90);
  const lonE7 = degreesE7(lon, "longitude", 180);
  return [latE7, lonE7 === HALF_CIRCLE_E7 ? -HALF_CIRCLE_E7 : lonE7];
}

/** @param {unknown} value @param {string} name @param {number} largest */
function degreesE7(value, name, largest) {
  if (typeof value !== "number") throw new ParameterError(`The ${name} must be a number of degrees.`);
  // NaN compares as false.
  if (!(value >= -largest && value <= largest)) {
    throw new ParameterError(`The ${name} must be from -${largest} to ${largest} degrees.`);
  }
  return BigInt(roundHalfEven(value * 1e7));
}
