// JSON in one form only: what Python's `json.dumps(value, sort_keys=True, allow_nan=False)` writes. Whole numbers become
// bigints, so that none is rounded; whatever is not in this form is refused.

const LONGEST_NUMBER = 4300;
const DEEPEST = 500;
const SHORT_ESCAPES = { '"': '"', "\\": "\\", b: "\b", t: "\t", n: "\n", f: "\f", r: "\r" };
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:e[+-][0-9]+)?/y;
const PLAIN = /[ !#-[\]-~]*/y;

/**
 * Parse canonical JSON.
 *
 * @param {Uint8Array} bytes
 * @returns {unknown} objects are Maps, whole numbers bigints
 * @throws {SyntaxError} It is anything else.
 */
export function parseCanonical(bytes) {
  let text = "";
  for (let start = 0; start < bytes.length; start += 8192) {
    text += String.fromCharCode(...bytes.subarray(start, start + 8192));
  }
  const parser = new Parser(text);
  const value = parser.value(0);
  if (parser.position !== text.length) throw new SyntaxError("more than one value");
  return value;
}

class Parser {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.position = 0;
  }

  /** @param {number} depth @returns {unknown} */
  value(depth) {
    if (depth > DEEPEST) throw new SyntaxError("too deep");
    const first = this.text[this.position];
    if (first === "{") return this.object(depth);
    if (first === "[") return this.list(depth);
    if (first === '"') return this.string();
    for (const [word, value] of /** @type {[string, unknown][]} */ ([["true", true], ["false", false], ["null", null]])) {
      if (this.text.startsWith(word, this.position)) {
        this.position += word.length;
        return value;
      }
    }
    return this.number();
  }

  /** @param {string} wanted */
  expect(wanted) {
    if (!this.text.startsWith(wanted, this.position)) throw new SyntaxError("another character was expected");
    this.position += wanted.length;
  }

  /** @param {string} wanted @returns {boolean} whether it was there */
  skip(wanted) {
    const is = this.text.startsWith(wanted, this.position);
    if (is) this.position += wanted.length;
    return is;
  }

  /** @param {number} depth */
  object(depth) {
    const result = new Map();
    let last = null;
    this.expect("{");
    if (this.skip("}")) return result;
    do {
      const key = this.string();
      if (last !== null && compareCodePoints(last, key) >= 0) throw new SyntaxError("keys are not in order");
      last = key;
      this.expect(": ");
      result.set(key, this.value(depth + 1));
    } while (this.skip(", "));
    this.expect("}");
    return result;
  }

  /** @param {number} depth */
  list(depth) {
    const result = [];
    this.expect("[");
    if (this.skip("]")) return result;
    do result.push(this.value(depth + 1));
    while (this.skip(", "));
    this.expect("]");
    return result;
  }

  string() {
    let result = "";
    this.expect('"');
    for (;;) {
      PLAIN.lastIndex = this.position;
      const plain = PLAIN.exec(this.text)[0];
      result += plain;
      this.position += plain.length;
      if (this.skip('"')) return result;
      this.expect("\\");
      result += this.escaped();
    }
  }

  escaped() {
    const letter = this.text[this.position];
    this.position += 1;
    if (Object.hasOwn(SHORT_ESCAPES, letter ?? "")) return SHORT_ESCAPES[letter];
    const digits = this.text.slice(this.position, this.position + 4);
    if (letter !== "u" || !/^[0-9a-f]{4}$/.test(digits)) throw new SyntaxError("another escape was expected");
    this.position += 4;
    const character = String.fromCharCode(parseInt(digits, 16));
    if (/[ -~\b\t\n\f\r]/.test(character)) throw new SyntaxError("a character is escaped without need");
    return character;
  }

  number() {
    NUMBER.lastIndex = this.position;
    const found = NUMBER.exec(this.text);
    if (found === null || found[0].length > LONGEST_NUMBER) throw new SyntaxError("a value was expected");
    this.position += found[0].length;
    if (/^-?[0-9]+$/.test(found[0])) {
      if (found[0] === "-0") throw new SyntaxError("a number is not in its usual form");
      return BigInt(found[0]);
    }
    const value = Number(found[0]);
    if (!Number.isFinite(value) || pythonDouble(value) !== found[0]) {
      throw new SyntaxError("a number is not in its usual form");
    }
    return value;
  }
}

/** @param {string} first @param {string} second */
function compareCodePoints(first, second) {
  const [left, right] = [[...first], [...second]];
  const shared = Math.min(left.length, right.length);
  for (let index = 0; index < shared; index += 1) {
    const apart = left[index].codePointAt(0) - right[index].codePointAt(0);
    if (apart !== 0) return apart;
  }
  return left.length - right.length;
}

/** @param {number} value finite @returns {string} the double as Python writes it */
function pythonDouble(value) {
  if (value === 0) return Object.is(value, -0) ? "-0.0" : "0.0";
  const [mantissa, exponentText] = value.toExponential().split("e");
  const exponent = Number(exponentText);
  if (exponent < -4 || exponent >= 16) {
    return `${mantissa}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  const sign = mantissa.startsWith("-") ? "-" : "";
  const digits = mantissa.replace(/[-.]/g, "");
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return `${sign}${whole}.${digits.slice(exponent + 1) || "0"}`;
}
