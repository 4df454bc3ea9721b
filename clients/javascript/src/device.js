// Reports of one vehicle, within a budget.
//
// Every location takes the same steps: check the input, find what it counts as, look for a stored answer, check the budget,
// draw, store the answer and its cost durably, and only then return it. Refusals depend on times and costs only.

import { ShiftDrawing } from "./anchor.js";
import { Bundle, loadBundle } from "./bundle.js";
import { LedgerError, ParameterError } from "./errors.js";
import { modulo } from "./lattice.js";
import { Ledger } from "./ledger.js";
import { locationE7 } from "./plane.js";
import { checkPolicy } from "./policy.js";
import { MemoryStore } from "./stores.js";
import { systemWord } from "./system.js";

const EARLIEST_MS = 946_684_800_000;
const LATEST_MS = 4_102_444_800_000;
const LONGEST_REQUEST = 200;
const CLOCK_TOLERANCE_S = 86_400;

/**
 * @typedef {object} Report A reported location. It depends on the true location only through the random draw.
 * @property {number} cell
 * @property {number} lat latitude of the cell's centre, degrees
 * @property {number} lon
 * @property {number} slot intervals of the bundle since 1970
 * @property {string} time start of the slot, ISO 8601 in UTC: publish this, not the time of the fix
 * @property {number} left what is left of the budget of this window, per kilometre
 * @property {boolean} stored whether this repeats an earlier answer, at no cost
 */

/** Reports of one vehicle by a bundle. Make one with `Device.open`, and close it. */
export class Device {
  #bundle;
  #ledger;
  #toleranceMs;
  #shifts;
  #words;
  /** @type {Promise<unknown>} */
  #last = Promise.resolve();

  /**
   * @param {Bundle} bundle
   * @param {Ledger} ledger
   * @param {{clockToleranceS?: number, words?: import("./words.js").Words}} [options] `words` are for tests
   */
  constructor(bundle, ledger, { clockToleranceS = CLOCK_TOLERANCE_S, words = systemWord } = {}) {
    checkBudget(bundle, ledger.budget);
    this.#bundle = bundle;
    this.#ledger = ledger;
    this.#toleranceMs = ledger.replay ? Infinity : clockToleranceS * 1000;
    this.#shifts = bundle.anchor === null ? null : new ShiftDrawing(bundle.anchor, bundle.lattice.spec.plane.side);
    this.#words = words;
  }

  /**
   * Open a bundle and a ledger.
   *
   * @param {Uint8Array | ArrayBuffer | Bundle} bundle a file, or a bundle that was loaded
   * @param {object} options
   * @param {import("./ledger.js").Store} [options.store] has the ledger that `Ledger.create` made; without one, the budget is
   *   kept in memory
   * @param {import("./budget.js").Budget} [options.budget] without a store, the budget; with one, the budget it must have
   * @param {Partial<import("./policy.js").Policy>} [options.policy] the least that the bundle must promise
   * @param {number} [options.clockToleranceS] how far the time of a report may be from the system's clock, seconds
   * @param {boolean} [options.replay] for simulations: any time is accepted, and only the times of reports count
   */
  static async open(bundle, { store, budget, policy = {}, clockToleranceS = CLOCK_TOLERANCE_S, replay = false }) {
    if (!(clockToleranceS >= 0 && clockToleranceS < Infinity)) {
      throw new ParameterError("clockToleranceS must be zero or more seconds. For data of any time, open a replay.");
    }
    const loaded = bundle instanceof Bundle ? bundle : await loadBundle(bundle);
    checkPolicy(loaded, policy);
    const ledger = await openLedger(store, budget, replay);
    try {
      return new Device(loaded, ledger, { clockToleranceS });
    } catch (error) {
      await ledger.close();
      throw error;
    }
  }

  get bundle() {
    return this.#bundle;
  }

  get budget() {
    return this.#ledger.budget;
  }

  /**
   * Report a location: draw a cell, store it and what it cost, and return it. Every valid location gets an answer; a slot or a
   * request that was answered before gets the same one again.
   *
   * @param {number} lat degrees (WGS 84)
   * @param {number} lon degrees
   * @param {Date | number} time when; a number is in seconds since 1970
   * @param {{request?: string | null}} [options] a name for the request, so that a repeated one is recognised
   * @returns {Promise<Report>}
   * @throws {ParameterError} The input is not a location and a time.
   * @throws {RefusedError} The budget is spent, or a later report was made.
   * @throws {LedgerError} Nothing could be stored; nothing is released.
   */
  report(lat, lon, time, { request = null } = {}) {
    // One after the other: each must see what the one before has spent.
    const made = this.#last.then(() => this.#report(lat, lon, time, request));
    this.#last = made.catch(() => {});
    return made;
  }

  /** @param {unknown} lat @param {unknown} lon @param {unknown} time @param {unknown} request @returns {Promise<Report>} */
  async #report(lat, lon, time, request) {
    const { intervalMs, lattice, anchor: anchorSpec, anchorFrame } = this.#bundle;
    const [latE7, lonE7] = locationE7(lat, lon);
    const timeMs = checkedTimeMs(time, this.#toleranceMs);
    const name = checkedRequest(request);
    const [x, y] = lattice.spec.plane.unitOfE7(latE7, lonE7);
    const slotMs = timeMs - modulo(timeMs, intervalMs);
    const nowMs = this.#ledger.nowMs(slotMs);
    const account = this.#ledger.account;
    const earlier = account.stored(slotMs, name);
    if (earlier !== undefined) return this.#reportOf(earlier, account.leftMicro(account.lastSlotMs ?? 0, nowMs), true);
    const costMicro = Number(lattice.spec.epsilonMicro);
    let anchor = anchorSpec === null ? null : (account.anchor(slotMs, anchorFrame) ?? null);
    const isNew = anchorSpec !== null && anchor === null;
    const left = account.checkedLeftMicro(slotMs, nowMs, costMicro, isNew ? Number(anchorSpec.epsilonMicro) : 0);
    if (isNew) anchor = this.#drawnAnchor(slotMs);
    const [shiftEast, shiftNorth] = anchor?.shift ?? [0, 0];
    const cell = lattice.cellOf((x + shiftEast) % lattice.side, (y + shiftNorth) % lattice.side, this.#words());
    const [cellLatE7, cellLonE7] = lattice.centerE7(cell);
    const answer = { slotMs, costMicro, cell, latE7: cellLatE7, lonE7: cellLonE7, request: name, madeMs: nowMs };
    await this.#ledger.write(answer, isNew ? anchor : null);
    return this.#reportOf(answer, left, false);
  }

  /** @param {number} slotMs @returns {import("./budget.js").Anchor} */
  #drawnAnchor(slotMs) {
    const { anchor, anchorFrame: frame } = this.#bundle;
    const periodMs = Number(anchor.periodS) * 1000;
    const startsMs = slotMs - modulo(slotMs, periodMs);
    const shift = this.#shifts.draw(this.#words);
    return { slotMs, startsMs, endsMs: startsMs + periodMs, costMicro: Number(anchor.epsilonMicro), frame, shift };
  }

  /** @param {import("./budget.js").Answer} answer @param {number} leftMicro @param {boolean} stored @returns {Report} */
  #reportOf({ cell, latE7, lonE7, slotMs }, leftMicro, stored) {
    const time = new Date(slotMs).toISOString();
    return { cell, lat: latE7 / 1e7, lon: lonE7 / 1e7, slot: slotMs / this.#bundle.intervalMs, time, left: leftMicro / 1e6, stored };
  }

  /**
   * Return what seems wrong with a location, or null: for the driver. It must never decide whether a report is made, which
   * would disclose where the vehicle is.
   *
   * @param {number} lat
   * @param {number} lon
   * @returns {string | null}
   */
  warningFor(lat, lon) {
    const [latE7, lonE7] = locationE7(lat, lon);
    const plane = this.#bundle.lattice.spec.plane;
    if (latE7 === 0n && lonE7 === 0n) return "This is the location that receivers give without a fix.";
    if (plane.holds(latE7, lonE7)) return null;
    if (Math.abs(lon) <= 90 && plane.holds(lonE7, latE7)) {
      return "Latitude and longitude seem to be exchanged: the latitude comes first.";
    }
    return "This location lies outside the area of the bundle, and counts as the nearest point of its edge.";
  }

  /** Close the ledger; reports that were asked for are made first. */
  async close() {
    await this.#last;
    this.#last = Promise.reject(new LedgerError("The device is closed."));
    this.#last.catch(() => {});
    await this.#ledger.close();
  }
}

/** @param {import("./ledger.js").Store | undefined} store @param {import("./budget.js").Budget | undefined} budget @param {boolean} replay */
async function openLedger(store, budget, replay) {
  if (store !== undefined) return Ledger.open(store, { budget, replay });
  if (budget === undefined) throw new ParameterError("Give a store with a ledger, or a budget to be kept in memory.");
  const memory = new MemoryStore();
  await Ledger.create(memory, budget, { replay });
  return Ledger.open(memory, { replay });
}

/** @param {Bundle} bundle @param {import("./budget.js").Budget} budget */
function checkBudget(bundle, budget) {
  if (bundle.intervalMs > budget.windowMs) {
    throw new ParameterError("The window of the budget is shorter than the interval between reports.");
  }
  if (bundle.lattice.spec.epsilonMicro > BigInt(budget.micro)) {
    throw new ParameterError(`One report costs ${bundle.epsilon} per km, more than the whole budget.`);
  }
  if (bundle.anchor !== null && bundle.anchor.epsilonMicro > BigInt(budget.anchorMicro)) {
    throw new ParameterError("An anchor costs more than the whole budget for anchors.");
  }
}

/** @param {unknown} time @param {number} toleranceMs @returns {number} whole milliseconds since 1970 */
function checkedTimeMs(time, toleranceMs) {
  if (!(time instanceof Date) && typeof time !== "number") {
    throw new ParameterError("The time must be a Date or a number of seconds.");
  }
  const exact = time instanceof Date ? time.getTime() : time * 1000;
  // NaN compares as false.
  if (!(exact >= EARLIEST_MS && exact < LATEST_MS)) {
    throw new ParameterError("The time must be from 2000 to 2099; as a number, in seconds, not milliseconds.");
  }
  const timeMs = Math.floor(exact);
  const now = Date.now();
  if (timeMs < now - toleranceMs) {
    throw new ParameterError("The time lies too far in the past. Set the clock right; for old data, open a replay.");
  }
  if (timeMs > now + toleranceMs) throw new ParameterError("The time lies in the future. Set the clock right.");
  return timeMs;
}

/** @param {unknown} request @returns {string | null} */
function checkedRequest(request) {
  if (request === null) return null;
  const isName = typeof request === "string" && /^(?:[^\p{C}\p{Z}]| )+$/u.test(request) && [...request].length <= LONGEST_REQUEST;
  if (!isName) {
    throw new ParameterError(`The name of a request must be printable text of 1 to ${LONGEST_REQUEST} characters.`);
  }
  return request;
}
