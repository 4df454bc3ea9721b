// Fences: places that stay hidden, for any number of reports.
//
// Once per place, a centre is drawn uniformly from the whole metres within the reach of the place. From then on every position
// within the radius counts as the centre, before anything else happens. The place itself is not kept. A second draw for the same
// place would narrow it down: so a removed fence leaves its centre behind.

import { ParameterError } from "./errors.js";
import { floorDivide } from "./integers.js";
import { Plane, inCircle, locationE7 } from "./plane.js";
import { systemWord } from "./system.js";
import { below } from "./words.js";

const MARGIN_M = 300;
const MOST_FENCES = 20;
const UNIT_MM = 1000n;
const DEGREE_E7 = 10_000_000n;
const FRAME_MARGIN_M = 25_000n;
const METRES_PER_DEGREE = 111_195n;
const SIDE = METRES_PER_DEGREE + 1n + 2n * FRAME_MARGIN_M;
const LEAST_REACH_M = 100;
const LARGEST_REACH_M = 10_000;
const LARGEST_MARGIN_M = 2_000;
/** Both positions are rounded to whole metres of the frame, each by less than a metre. */
const ROUNDING_M = 2;
const LARGEST_LATITUDE_E7 = 83n * DEGREE_E7;
const LONGEST_NAME = 60;
const LONGEST_TEXT = 1 << 16;
const FORMAT = 1;
/** The parts of a fence in JSON, and here. */
const PARTS = {
  name: "name", lat_e7: "latE7", lon_e7: "lonE7", reach_m: "reachM", radius_m: "radiusM", south_e7: "southE7", west_e7: "westE7",
  active: "active",
};

/**
 * @typedef {object} FenceParts
 * @property {string} name
 * @property {number} latE7 latitude of the centre, 1e-7 degrees
 * @property {number} lonE7
 * @property {number} reachM the place lies within this distance of the centre, metres
 * @property {number} radiusM positions within this distance of the centre count as the centre, metres
 * @property {number} southE7 the south-western corner of the frame in which it was drawn, 1e-7 degrees
 * @property {number} westE7
 * @property {boolean} active whether it is in use
 */

/** @typedef {{radiusKm: number, marginM?: number, name?: string}} FenceOptions */

/** A disc whose positions all count as its centre. Make one with `drawFence`. */
export class Fence {
  #plane;
  #center;
  #spanE7;

  /** @param {FenceParts} parts */
  constructor({ name, latE7, lonE7, reachM, radiusM, southE7, westE7, active }) {
    const isWhole = [latE7, lonE7, reachM, radiusM, southE7, westE7].every(Number.isSafeInteger);
    if (!isWhole || typeof active !== "boolean" || !isPrintable(name, LONGEST_NAME)) {
      throw new ParameterError("A fence has a name of 1 to 60 printable characters, and whole numbers.");
    }
    const isRadius =
      reachM >= LEAST_REACH_M && reachM <= LARGEST_REACH_M &&
      radiusM >= reachM && radiusM <= LARGEST_REACH_M + LARGEST_MARGIN_M + ROUNDING_M;
    if (!isRadius) throw new ParameterError("The radius of a fence is out of range.");
    if (Math.abs(latE7) > 9e8 || lonE7 < -18e8 || lonE7 >= 18e8) {
      throw new ParameterError("The centre of a fence is not on Earth.");
    }
    this.name = name;
    this.latE7 = latE7;
    this.lonE7 = lonE7;
    this.reachM = reachM;
    this.radiusM = radiusM;
    this.southE7 = southE7;
    this.westE7 = westE7;
    this.active = active;
    this.#plane = new Plane(BigInt(southE7), BigInt(westE7), UNIT_MM, SIDE);
    if (this.#plane.problem !== null) throw new ParameterError(`There is no such fence: ${this.#plane.problem}.`);
    this.#center = this.#plane.unitOfE7(BigInt(latE7), BigInt(lonE7));
    const room = Math.min(...this.#center, ...this.#center.map((along) => Number(SIDE) - 1 - along));
    if (room <= radiusM) throw new ParameterError("The disc of a fence leaves its frame.");
    // No position within the radius differs more from the centre in latitude.
    this.#spanE7 = (BigInt(radiusM + ROUNDING_M) * DEGREE_E7) / METRES_PER_DEGREE + 1n;
    Object.freeze(this);
  }

  /** @param {Fence} other @returns {boolean} whether both may have been drawn for one place: it lies within reach of either centre */
  mayHidePlaceOf(other) {
    // In the frame that shrinks distances more, both reaches and the triangle inequality hold.
    const apart = [this.#plane, other.#plane].map((plane) => {
      const [[x, y], [otherX, otherY]] = [this, other].map(({ latE7, lonE7 }) => plane.unitOfE7(BigInt(latE7), BigInt(lonE7)));
      return Math.hypot(Number(x - otherX), Number(y - otherY));
    });
    return Math.min(...apart) <= this.reachM + other.reachM + ROUNDING_M;
  }

  /** @param {bigint} latE7 @param {bigint} lonE7 @returns {boolean} whether a position lies within the radius of the centre */
  holdsE7(latE7, lonE7) {
    const north = latE7 - BigInt(this.latE7);
    if (north > this.#spanE7 || north < -this.#spanE7) return false; // most positions are far away
    const [x, y] = this.#plane.unitOfE7(latE7, lonE7);
    return (x - this.#center[0]) ** 2 + (y - this.#center[1]) ** 2 <= this.radiusM ** 2;
  }
}

/**
 * Draw a fence around a place. Do this once per place.
 *
 * @param {number} lat the place, degrees (WGS 84); it is not kept
 * @param {number} lon degrees
 * @param {FenceOptions} options `radiusKm`: how far the centre may lie from the place, .1 to 10; `marginM`: what belongs to the
 *   place, metres around it, 0 to 2,000; `name`: how people tell it from others
 * @param {import("./words.js").Words} [words] for tests
 * @returns {Fence}
 */
export function drawFence(lat, lon, { radiusKm, marginM = MARGIN_M, name = "home" }, words = systemWord) {
  const [latE7, lonE7] = locationE7(lat, lon);
  const [reachM, margin] = metres(radiusKm, marginM);
  if (!isPrintable(name, LONGEST_NAME)) {
    throw new ParameterError(`The name of a fence must have 1 to ${LONGEST_NAME} printable characters.`);
  }
  if (latE7 > LARGEST_LATITUDE_E7 || latE7 < -LARGEST_LATITUDE_E7) {
    throw new ParameterError("A fence cannot lie beyond 83° of latitude.");
  }
  const plane = randomFrame(latE7, lonE7, words);
  const [x, y] = plane.unitOfE7(latE7, lonE7);
  const [east, north] = pointInDisc(BigInt(reachM), words);
  const [centerLatE7, centerLonE7] = plane.e7OfUnit(BigInt(x) + east, BigInt(y) + north);
  return new Fence({
    name, latE7: Number(centerLatE7), lonE7: Number(centerLonE7), reachM, radiusM: reachM + margin + ROUNDING_M,
    southE7: Number(plane.southE7), westE7: Number(plane.westE7), active: true,
  });
}

/**
 * @param {bigint} reach
 * @param {import("./words.js").Words} words
 * @returns {[bigint, bigint]} one of the whole points within a distance of the origin, each with the same probability
 */
export function pointInDisc(reach, words) {
  for (;;) {
    const [east, north] = [below(2n * reach + 1n, words) - reach, below(2n * reach + 1n, words) - reach];
    if (east * east + north * north <= reach * reach) return [east, north];
  }
}

/** @param {bigint} latE7 @param {bigint} lonE7 @param {import("./words.js").Words} words */
function randomFrame(latE7, lonE7, words) {
  // The frame of a position in a grid of degrees. The grid's offset is drawn without a look at the position.
  const [up, right] = [below(DEGREE_E7, words), below(DEGREE_E7, words)];
  const south = floorDivide(latE7 - up, DEGREE_E7) * DEGREE_E7 + up;
  const west = floorDivide(lonE7 - right, DEGREE_E7) * DEGREE_E7 + right;
  const frameSouth = south - (FRAME_MARGIN_M * DEGREE_E7) / METRES_PER_DEGREE;
  const { widthE7 } = new Plane(frameSouth, 0n, UNIT_MM, SIDE);
  return new Plane(frameSouth, inCircle(west + floorDivide(DEGREE_E7 - widthE7, 2n)), UNIT_MM, SIDE);
}

/** @param {unknown} radiusKm @param {unknown} marginM @returns {[number, number]} reach and margin in whole metres, rounded up */
function metres(radiusKm, marginM) {
  // NaN compares as false.
  if (typeof radiusKm !== "number" || !(1000 * radiusKm >= LEAST_REACH_M && 1000 * radiusKm <= LARGEST_REACH_M)) {
    throw new ParameterError("The radius of a fence must be .1 to 10 km.");
  }
  if (typeof marginM !== "number" || !(marginM >= 0 && marginM <= LARGEST_MARGIN_M)) {
    throw new ParameterError("The margin of a fence must be 0 to 2,000 m.");
  }
  return [Math.ceil(1000 * radiusKm), Math.ceil(marginM)];
}

/** The fences of one vehicle, the first made first. It cannot be changed: `with…` and `without` return others. */
export class Fences {
  /** @param {readonly Fence[]} [all] in use and taken away */
  constructor(all = []) {
    if (all.length > MOST_FENCES) {
      throw new ParameterError(
        `A vehicle can have ${MOST_FENCES} fences, those that were taken away included. Use larger ones.`,
      );
    }
    if (new Set(all.map(({ name }) => name)).size < all.length) {
      throw new ParameterError("Two fences have the same name. Give each a name of its own.");
    }
    this.all = Object.freeze([...all]);
    Object.freeze(this);
  }

  /**
   * @param {bigint} latE7
   * @param {bigint} lonE7
   * @returns {[bigint, bigint]} what a position counts as: itself, or the centre of the first fence in use that holds it
   */
  applyE7(latE7, lonE7) {
    const first = this.#inUse(latE7, lonE7);
    return first === undefined ? [latE7, lonE7] : [BigInt(first.latE7), BigInt(first.lonE7)];
  }

  /** @param {bigint} latE7 @param {bigint} lonE7 */
  #inUse(latE7, lonE7) {
    return this.all.find((fence) => fence.active && fence.holdsE7(latE7, lonE7));
  }

  /**
   * Return these and a fence around one more place, and that fence; see `drawFence`. A place inside a fence that was taken away
   * gets that one back, with its own centre and radius.
   *
   * @param {number} lat
   * @param {number} lon
   * @param {FenceOptions} options
   * @param {import("./words.js").Words} [words] for tests
   * @returns {[Fences, Fence]}
   * @throws {ParameterError} A fence in use holds the place already, or its name is taken.
   */
  withPlace(lat, lon, options, words = systemWord) {
    const [latE7, lonE7] = locationE7(lat, lon);
    metres(options.radiusKm, options.marginM ?? MARGIN_M);
    if (this.#inUse(latE7, lonE7) !== undefined) {
      throw new ParameterError(
        "A fence holds this place already. A second one would show where the two overlap, so none was made.",
      );
    }
    const former = this.all.find((fence) => fence.holdsE7(latE7, lonE7));
    if (former !== undefined) {
      const back = new Fence({ ...former, active: true });
      return [new Fences(this.all.map((fence) => (fence === former ? back : fence))), back];
    }
    this.#refuseTaken(options.name ?? "home");
    const drawn = drawFence(lat, lon, options, words);
    return [new Fences([...this.all, drawn]), drawn];
  }

  /** @param {string} name @returns {Fences} these with one of them out of use; its centre stays */
  without(name) {
    if (!this.all.some((fence) => fence.active && fence.name === name)) {
      const names = this.all.map((fence) => fence.name).join(", ");
      throw new ParameterError(`No fence in use has this name. There are: ${names || "none"}.`);
    }
    return new Fences(this.all.map((fence) => (fence.name === name ? new Fence({ ...fence, active: false }) : fence)));
  }

  /**
   * Return these and others, as imported from another device; a fence that is the same counts once.
   *
   * @param {Fences} others
   * @throws {ParameterError} A centre of one lies in another, or a name is taken: two draws for one place tell where it is.
   */
  withAll(others) {
    const isGiven = (/** @type {Fence} */ fence) => others.all.some((other) => isSame(fence, other));
    const added = others.all.filter((other) => !this.all.some((fence) => isSame(fence, other)));
    for (const other of added) {
      this.#refuseTaken(other.name);
      for (const fence of this.all) {
        if (!isGiven(fence) && fence.mayHidePlaceOf(other)) {
          throw new ParameterError(
            `The fences '${fence.name}' and '${other.name}' may be for one place, and together they would show where it is. ` +
              "Keep the older one on every device.",
          );
        }
      }
    }
    const kept = this.all.map((fence) => {
      const active = fence.active || others.all.some((other) => other.active && isSame(fence, other));
      return new Fence({ ...fence, active });
    });
    return new Fences([...kept, ...added]);
  }

  /** @param {unknown} name */
  #refuseTaken(name) {
    if (this.all.some((fence) => fence.name === name)) {
      throw new ParameterError("There is, or was, a fence of this name. Choose another name.");
    }
  }

  /** @returns {string} all of them as a JSON text: what is kept, backed up, and taken to another device */
  asJson() {
    const fences = this.all.map((fence) =>
      Object.fromEntries(Object.entries(PARTS).map(([key, part]) => [key, fence[/** @type {keyof FenceParts} */ (part)]])),
    );
    const text = JSON.stringify({ format: FORMAT, fences }, null, 1);
    return `${text.replace(/[^ -~\n]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)}\n`;
  }

  /**
   * @param {string} text
   * @returns {Fences} the fences in a JSON text
   * @throws {ParameterError} It is anything else.
   */
  static parsed(text) {
    const { format, fences } = strictObject(text, ["format", "fences"]);
    if (format !== FORMAT || !Array.isArray(fences)) refuseText();
    const keys = Object.keys(PARTS);
    return new Fences(
      fences.map((values) => {
        if (!hasKeys(values, keys)) refuseText();
        return new Fence(/** @type {FenceParts} */ (Object.fromEntries(keys.map((key) => [PARTS[key], values[key]]))));
      }),
    );
  }
}

/** @param {Fence} first @param {Fence} second */
function isSame(first, second) {
  return Object.keys(first).every((part) => part === "active" || first[part] === second[part]);
}

/** @returns {never} */
function refuseText() {
  throw new ParameterError("This is not a list of fences as `geoblanket fence export` writes it.");
}

/** @param {unknown} value @param {string[]} keys @returns {boolean} whether it is an object with these keys and no others */
function hasKeys(value, keys) {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject && Object.keys(value).length === keys.length && keys.every((key) => Object.hasOwn(value, key));
}

/**
 * Parse a JSON object in which each key comes once, and whole numbers are written as such.
 *
 * @param {unknown} text
 * @param {string[]} keys
 * @returns {Record<string, any>}
 */
function strictObject(text, keys) {
  if (typeof text !== "string" || text.length > LONGEST_TEXT) refuseText();
  let [value, isStrict] = [null, false];
  try {
    value = JSON.parse(text);
    // Without white space the text must equal the value written again, which excludes a repeated key, or 1.0.
    const compact = text.replace(/"(?:[^"\\]|\\.)*"|[ \t\n\r]+/g, (part) =>
      part[0] === '"' ? JSON.stringify(JSON.parse(part)) : "",
    );
    isStrict = compact === JSON.stringify(value);
  } catch {
    refuseText();
  }
  if (!isStrict || !hasKeys(value, keys)) refuseText();
  return value;
}

/** @param {unknown} text @param {number} longest characters @returns {text is string} */
export function isPrintable(text, longest) {
  return typeof text === "string" && /^(?:[^\p{C}\p{Z}]| )+$/u.test(text) && [...text].length <= longest;
}
