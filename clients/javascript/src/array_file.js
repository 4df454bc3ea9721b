// The container: a canonical JSON header and named arrays, each with its hash.

import { parseCanonical } from "./canonical_json.js";
import { InputError } from "./errors.js";
import { sha256 } from "./system.js";

const BEFORE_HEADER = 48;
const LARGEST_HEADER = 1 << 20;
const ALIGNMENT = 64;
const MOST_DIMENSIONS = 4;
const ITEM_BYTES = new Map([["|u1", 1], ["<i4", 4], ["<i8", 8], ["<u4", 4], ["<f4", 4], ["<f8", 8]]);

/**
 * @typedef {object} StoredArray
 * @property {string} dtype
 * @property {number[]} shape
 * @property {Uint8Array} bytes A copy of its own.
 */

/**
 * Read a file, and check all of its hashes.
 *
 * @param {Uint8Array} data the whole file
 * @param {{magic: string, kind: string, largestBytes: number}} what
 * @returns {Promise<{fields: Map<string, unknown>, arrays: Map<string, StoredArray>}>}
 * @throws {InputError} It is damaged, or something else.
 */
export async function readArrays(data, { magic, kind, largestBytes }) {
  /** @param {string} problem @returns {never} */
  const refuse = (problem) => {
    throw new InputError(`The file is not ${kind}: ${problem}.`);
  };
  if (data.length > largestBytes) refuse(`it has ${data.length} bytes, more than the ${largestBytes} allowed`);
  if (data.length < BEFORE_HEADER) refuse("it is too short");
  if (String.fromCharCode(...data.subarray(0, 8)) !== magic) refuse("it starts with other bytes");
  const headerSize = new DataView(data.buffer, data.byteOffset, data.byteLength).getBigUint64(8, true);
  if (headerSize > BigInt(Math.min(LARGEST_HEADER, data.length - BEFORE_HEADER))) refuse("its header does not fit the file");
  let end = BEFORE_HEADER + Number(headerSize);
  const text = data.slice(BEFORE_HEADER, end);
  if ((await sha256(text)) !== hexadecimal(data.subarray(16, BEFORE_HEADER))) refuse("its header was changed or damaged");
  const { fields, layout } = parsed(text) ?? refuse("its header cannot be read");
  let expected = end;
  for (const { size } of layout) expected += padding(expected) + size;
  if (expected !== data.length) refuse(`it should have ${expected} bytes and has ${data.length}`);
  /** @type {Map<string, StoredArray>} */
  const arrays = new Map();
  for (const { name, dtype, shape, digest, size } of layout) {
    const start = end + padding(end);
    const between = data.subarray(end, start);
    end = start + size;
    const bytes = data.slice(start, end);
    if (between.some((octet) => octet !== 0) || (await sha256(bytes)) !== digest) {
      refuse(`its part '${name}' was changed or damaged`);
    }
    arrays.set(name, { dtype, shape, bytes });
  }
  return { fields, arrays };
}

/** @param {number} position */
function padding(position) {
  return (ALIGNMENT - (position % ALIGNMENT)) % ALIGNMENT;
}

/** @param {Uint8Array} bytes */
function hexadecimal(bytes) {
  return Array.from(bytes, (octet) => octet.toString(16).padStart(2, "0")).join("");
}

/** @param {Uint8Array} text @returns fields and layout, or null unless the header is as it must be */
function parsed(text) {
  let header;
  try {
    header = parseCanonical(text);
  } catch {
    return null;
  }
  if (!hasKeys(header, ["arrays", "fields"])) return null;
  const [entries, fields] = [header.get("arrays"), header.get("fields")];
  if (!(entries instanceof Map) || !(fields instanceof Map)) return null;
  const layout = [];
  for (const [name, entry] of entries) {
    if (!hasKeys(entry, ["dtype", "sha256", "shape"])) return null;
    const itemBytes = ITEM_BYTES.get(entry.get("dtype"));
    const shape = entry.get("shape");
    if (itemBytes === undefined || !isShape(shape)) return null;
    const lengths = shape.map(Number);
    const size = lengths.reduce((product, length) => product * length, itemBytes);
    layout.push({ name, dtype: entry.get("dtype"), shape: lengths, digest: entry.get("sha256"), size });
  }
  return { fields, layout };
}

/** @param {unknown} value @returns {value is bigint[]} */
function isShape(value) {
  if (!Array.isArray(value) || value.length > MOST_DIMENSIONS) return false;
  if (!value.every((length) => typeof length === "bigint" && length >= 0n && length < 1n << 40n)) return false;
  return value.reduce((product, length) => product * (length || 1n), 1n) < 1n << 60n;
}

/** @param {unknown} value @param {string[]} names sorted @returns {value is Map<string, any>} */
export function hasKeys(value, names) {
  return value instanceof Map && value.size === names.length && names.every((name) => value.has(name));
}
