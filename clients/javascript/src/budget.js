// What reports may cost in every sliding window of time, in whole millionths per kilometre.

import { ParameterError, RefusedError } from "./errors.js";

const LARGEST_EPSILON = 1e9;
const LONGEST_WINDOW_S = 10 * 366 * 86_400;

/**
 * @typedef {object} Answer A report as it is stored: never where the vehicle was.
 * @property {number} slotMs start of its slot, milliseconds since 1970
 * @property {number} costMicro
 * @property {number} cell
 * @property {number} latE7
 * @property {number} lonE7
 * @property {string | null} request
 * @property {number} madeMs when it was made, in real elapsed time; in a replay, the start of its slot
 */

/** The most that may be spent in any window of time. */
export class Budget {
  /**
   * @param {object} amounts
   * @param {number} amounts.epsilon what the reports of a window may add up to, per kilometre
   * @param {number} amounts.windowS the length of the window, seconds
   */
  constructor({ epsilon, windowS }) {
    amount("epsilon", epsilon, LARGEST_EPSILON);
    amount("windowS", windowS, LONGEST_WINDOW_S);
    this.epsilon = epsilon;
    this.windowS = windowS;
    /** Rounded down. */
    this.micro = scaled(epsilon, 6, false);
    /** Rounded up. */
    this.windowMs = scaled(windowS, 3, true);
    Object.freeze(this);
  }
}

/** @param {string} name @param {unknown} value @param {number} largest */
function amount(name, value, largest) {
  if (typeof value !== "number" || !(value > 0 && value <= largest)) {
    throw new ParameterError(`The budget's ${name} must be a number above 0 and up to ${largest}.`);
  }
}

/**
 * Multiply the shortest decimal of a number by a power of ten, and round, without floating point.
 *
 * @param {number} value positive
 * @param {number} power
 * @param {boolean} up
 */
function scaled(value, power, up) {
  const [mantissa, exponent] = value.toExponential().split("e");
  const [whole, fraction = ""] = mantissa.split(".");
  const digits = BigInt(whole + fraction);
  const places = Number(exponent) - fraction.length + power;
  if (places >= 0) return Number(digits * 10n ** BigInt(places));
  const divisor = 10n ** BigInt(-places);
  return Number(digits / divisor + (up && digits % divisor ? 1n : 0n));
}

/** What was spent in the window, and the answers that were given. */
export class Account {
  /**
   * @param {Budget} budget
   * @param {{answers?: Answer[], reports?: number, spentMicro?: number, lastSlotMs?: number | null}} [state]
   */
  constructor(budget, { answers = [], reports = 0, spentMicro = 0, lastSlotMs = null } = {}) {
    this.budget = budget;
    this.answers = answers;
    this.reports = reports;
    this.spentMicro = spentMicro;
    this.lastSlotMs = lastSlotMs;
  }

  /** @param {number} slotMs @param {string | null} request @returns {Answer | undefined} */
  stored(slotMs, request) {
    const asked = request === null ? undefined : this.answers.find((answer) => answer.request === request);
    return asked ?? this.answers.find((answer) => answer.slotMs === slotMs);
  }

  /** @param {number} slotMs @param {number} nowMs @returns {number} how many answers have left the window in both times */
  expiring(slotMs, nowMs) {
    const { windowMs } = this.budget;
    const stays = this.answers.findIndex(
      (answer) => answer.slotMs > slotMs - windowMs || answer.madeMs > nowMs - windowMs,
    );
    return stays < 0 ? this.answers.length : stays;
  }

  /** @param {number} slotMs @param {number} nowMs @returns {number} what is left, in millionths per kilometre */
  leftMicro(slotMs, nowMs) {
    const kept = this.answers.slice(this.expiring(slotMs, nowMs));
    return this.budget.micro - kept.reduce((sum, answer) => sum + answer.costMicro, 0);
  }

  /**
   * Return what is left after a report; throw unless it is allowed.
   *
   * @param {number} slotMs
   * @param {number} nowMs
   * @param {number} costMicro
   */
  checkedLeftMicro(slotMs, nowMs, costMicro) {
    if (this.lastSlotMs !== null && slotMs <= this.lastSlotMs) {
      throw new RefusedError("A later report exists already. Set the clock right, and report in order of time.", "time");
    }
    const left = this.leftMicro(slotMs, nowMs) - costMicro;
    if (left < 0) {
      throw new RefusedError("The privacy budget of this window of time is spent. Report again later.", "budget");
    }
    return left;
  }

  /** @param {Answer} answer @returns {Account} what counts after a report */
  after(answer) {
    return new Account(this.budget, {
      answers: [...this.answers.slice(this.expiring(answer.slotMs, answer.madeMs)), answer],
      reports: this.reports + 1,
      spentMicro: this.spentMicro + answer.costMicro,
      lastSlotMs: answer.slotMs,
    });
  }
}
