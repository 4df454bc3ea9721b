// A bundle with a lattice: its file read strictly, and verified exactly before anything is returned.

import { hasKeys, readArrays } from "./array_file.js";
import { rightAfterOneReport } from "./certainty.js";
import { InputError, MismatchError } from "./errors.js";
import { Plane } from "./plane.js";
import { isSigned, sha256, sha256OfText } from "./system.js";
import { verifiedLattice } from "./verifier.js";

const MAGIC = "GBBUNDL2";
const SIGNED_PREFIX = "geoblanket bundle 1\0";
const KIND = "a bundle of mechanisms";
const LARGEST_BYTES = 2 ** 30;
const LARGEST = 1n << 62n;
const LARGEST_VERSION = 1n << 53n;
const LARGEST_INTERVAL_MS = 86_400_000n;
const DISCLOSED = "when a report was made";
const DISCLOSED_BY_HOLD = "when a report was made, and when the vehicle rests";
const APART_M = 100;
const FORMAT = 2n;
const FORMAT_WITH_ANCHORS = 1n;
const HEADER_KEYS = ["clock", "disclosed", "domain", "lattice", "mechanisms", "snapping_radius_mm", "version"];
const LATTICE_NUMBERS = [
  "cell_units", "epsilon_micro", "floor", "format", "half_window", "hold_mm", "rate", "shift", "side", "south_e7", "unit_mm",
  "west_e7",
];

/** A verified bundle. Made by `loadBundle`; it cannot change. */
export class Bundle {
  #right;

  /** @param {{version: bigint, domain: string, sha256: string, intervalMs: bigint, lattice: import("./lattice.js").Lattice}} parts */
  constructor(parts) {
    /** The publisher's own number, which only grows. */
    this.version = Number(parts.version);
    /** Hash of the frame and its cells (hexadecimal). */
    this.domain = parts.domain;
    /** Hash of the file (hexadecimal). */
    this.sha256 = parts.sha256;
    /** Milliseconds from one slot to the next. */
    this.intervalMs = Number(parts.intervalMs);
    this.lattice = parts.lattice;
    Object.freeze(this);
  }

  /** ε of a report, per kilometre. */
  get epsilon() {
    return Number(this.lattice.spec.epsilonMicro) / 1e6;
  }

  /** Within this distance of its last draw a vehicle repeats the last report at no cost, metres; 0: never. */
  get holdM() {
    return Number(this.lattice.spec.holdMm) / 1000;
  }

  /** How sure anyone can be after one report, in the words of the Python package's `bundle.promise`. */
  get certain() {
    // As a sentence says "right", it is rounded up.
    this.#right ??= Math.ceil(100 * rightAfterOneReport(this.lattice.spec, APART_M) - 1e-6);
    return (
      `The best guess between two locations, ${APART_M} m apart, is right ${this.#right} times in 100 after one report ` +
      `(50 would be chance; ε = ${Number(this.epsilon.toPrecision(9))} per km).`
    );
  }

  /** What is promised, in the words of the Python package's `bundle.promise`. */
  get guarantee() {
    const epsilon = Number(this.epsilon.toPrecision(9));
    const addedM = Number(((2 * Number(this.lattice.spec.plane.roundingMm)) / 1000).toPrecision(3));
    const stays = this.holdM === 0 ? "" : "; a stay costs one report";
    return (
      `${this.certain} Each report changes the odds between two locations, d km apart, by at most a factor of e^(${epsilon}·d), with ${addedM} m ` +
      `added to d for rounding${stays}; disclosed: ${this.holdM === 0 ? DISCLOSED : DISCLOSED_BY_HOLD}; nothing was learned from anyone.`
    );
  }
}

/**
 * Read a bundle with a lattice, and verify it.
 *
 * @param {Uint8Array | ArrayBuffer} file
 * @param {object} [trust] which bundles are accepted
 * @param {string} [trust.domain] the hash of the domain that it must have
 * @param {number} [trust.minimumVersion] older ones are refused
 * @param {string} [trust.publicKey] an Ed25519 key in PEM form: the bundle must be signed by it. The promise never depends on it
 * @param {Uint8Array | ArrayBuffer} [trust.signature] what lies beside the bundle, with `.sig` added to its name
 * @returns {Promise<Bundle>}
 * @throws {InputError} The file is damaged, hostile, too old, or has no lattice.
 * @throws {LatticeViolation} It does not keep its promise.
 * @throws {MismatchError} It is for another domain.
 */
export async function loadBundle(file, { domain, minimumVersion = 0, publicKey, signature } = {}) {
  // A copy: what was checked is what is used.
  const data = new Uint8Array(file).slice();
  if (publicKey !== undefined) await checkSignature(data, publicKey, new Uint8Array(signature ?? 0));
  const { fields, arrays } = await readArrays(data, { magic: MAGIC, kind: KIND, largestBytes: LARGEST_BYTES });
  const header = await parsedHeader(fields);
  const multipliers = tableOf(arrays, header.section.cell_units);
  if (domain !== undefined && domain !== header.domain) throw new MismatchError("The bundle is for another domain.");
  if (header.version < BigInt(minimumVersion)) {
    throw new InputError(`The bundle is version ${header.version}, older than the ${minimumVersion} that is asked for.`);
  }
  const { section, plane } = header;
  const lattice = verifiedLattice({
    plane,
    epsilonMicro: section.epsilon_micro,
    cellUnits: section.cell_units,
    rate: section.rate,
    shift: section.shift,
    floor: section.floor,
    halfWindow: section.half_window,
    multipliers,
    holdMm: section.hold_mm,
  });
  return new Bundle({ ...header, sha256: await sha256(data), lattice });
}

/** @param {string} problem @returns {never} */
function refuse(problem) {
  throw new InputError(`The file is not ${KIND} that can be used: ${problem}.`);
}

/** @param {Uint8Array} data @param {string} publicKey @param {Uint8Array} signature */
async function checkSignature(data, publicKey, signature) {
  const digest = Uint8Array.from((await sha256(data)).match(/../g), (octet) => parseInt(octet, 16));
  const message = Uint8Array.from([...new TextEncoder().encode(SIGNED_PREFIX), ...digest]);
  if (signature.length !== 64 || !(await isSigned(publicKey, signature, message))) {
    throw new InputError("The bundle has no signature by this key.");
  }
}

/** @param {Map<string, unknown>} fields */
async function parsedHeader(fields) {
  if (!fields.has("lattice")) refuse("it has zones and no lattice, which only the Python package reads");
  keysAre(fields, HEADER_KEYS);
  const section = parsedSection(fields.get("lattice"));
  const plane = new Plane(section.south_e7, section.west_e7, section.unit_mm, section.side);
  if (plane.problem !== null) refuse(plane.problem);
  const intervalMs = parsedClock(fields.get("clock"));
  const version = wholeNumber(fields, "version", 0n, LARGEST_VERSION);
  const domain = await domainOf(section);
  const mechanisms = fields.get("mechanisms");
  const follows =
    fields.get("domain") === domain &&
    fields.get("disclosed") === (section.hold_mm === 0n ? DISCLOSED : DISCLOSED_BY_HOLD) &&
    fields.get("snapping_radius_mm") === plane.roundingMm &&
    Array.isArray(mechanisms) && mechanisms.length === 0;
  if (!follows) refuse("what it says beside its lattice does not follow from it");
  return { section, plane, intervalMs, version, domain };
}

/** @param {unknown} values @returns {Record<string, bigint>} */
function parsedSection(values) {
  if (values instanceof Map && values.get("format") === FORMAT_WITH_ANCHORS) {
    refuse(
      "its lattice is of version 0.2, whose anchors average out over nights; make it again with `geoblanket lattice`, in seconds",
    );
  }
  const section = keysAre(values, LATTICE_NUMBERS);
  if (section.get("format") !== FORMAT) {
    refuse(`its lattice has the format ${FORMAT + 1n} or later, which only newer software can read`);
  }
  return Object.fromEntries(LATTICE_NUMBERS.map((name) => [name, wholeNumber(section, name, -LARGEST, LARGEST)]));
}

/** @param {unknown} values @returns {bigint} the interval of the clock of a lattice */
function parsedClock(values) {
  const clock = keysAre(values, ["interval_ms", "regimes", "start", "time_zone"]);
  const interval = wholeNumber(clock, "interval_ms", 1n, LARGEST_INTERVAL_MS);
  const regimes = clock.get("regimes");
  const hours = Array.isArray(regimes) && regimes.length === 1 && Array.isArray(regimes[0]) ? regimes[0] : [];
  const isAllDay =
    hours.length === 2 && hours[0] === "all day" &&
    Array.isArray(hours[1]) && hours[1].length === 24 && hours[1].every((hour, index) => hour === BigInt(index));
  if (!isAllDay || clock.get("start") !== "start" || clock.get("time_zone") !== "UTC") {
    refuse("what it says beside its lattice does not follow from it");
  }
  return interval;
}

/** @param {Record<string, bigint>} section */
function domainOf(section) {
  const names = ["cell_units", "side", "south_e7", "unit_mm", "west_e7"];
  const plane = names.map((name) => `"${name}": ${section[name]}`).join(", ");
  return sha256OfText(`[{"lattice": {${plane}}}, {}]`);
}

/** @param {Map<string, import("./array_file.js").StoredArray>} arrays @param {bigint} cellUnits */
function tableOf(arrays, cellUnits) {
  const table = arrays.get("multipliers");
  if (table === undefined || arrays.size !== 1) refuse("its parts are not those of a lattice");
  const half = (cellUnits > 0n ? cellUnits : 0n) / 2n;
  const count = ((half + 1n) * (half + 2n)) / 2n;
  if (table.dtype !== "<i4" || table.shape.length !== 1 || BigInt(table.shape[0]) !== count) {
    refuse("its table of multipliers has another type or size");
  }
  const view = new DataView(table.bytes.buffer, table.bytes.byteOffset, table.bytes.byteLength);
  return Int32Array.from({ length: table.shape[0] }, (_, index) => view.getInt32(4 * index, true));
}

/** @param {unknown} values @param {string[]} names */
function keysAre(values, names) {
  if (!hasKeys(values, names)) refuse(`there must be the keys ${names.join(", ")}, and no others`);
  return values;
}

/** @param {Map<string, unknown>} values @param {string} name @param {bigint} least @param {bigint} most */
function wholeNumber(values, name, least, most) {
  const value = values.get(name);
  if (typeof value !== "bigint" || value < least || value > most) {
    refuse(`'${name}' must be a whole number from ${least} to ${most}`);
  }
  return value;
}
