// Reports of one vehicle, within a budget.
//
// Every location takes the same steps: check the input, replace it by the centre of a fence that holds it, look for a stored
// answer, check the budget, draw, or repeat the last answer at rest, store the answer and its cost durably, and only then return
// it. Refusals depend on times and costs only.

import { Bundle, loadBundle } from "./bundle.js";
import { LedgerError, ParameterError } from "./errors.js";
import { Fences, isPrintable } from "./fences.js";
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
   * @param {boolean} [options.holdInMemory] whether the point where the last report was drawn is kept in memory only: after a
   *   restart the next report is drawn, at its cost, instead of held. By default it is kept in the store
   */
  static async open(bundle, options) {
    const { store, budget, policy = {}, clockToleranceS = CLOCK_TOLERANCE_S, replay = false, holdInMemory = false } = options;
    if (!(clockToleranceS >= 0 && clockToleranceS < Infinity)) {
      throw new ParameterError("clockToleranceS must be zero or more seconds. For data of any time, open a replay.");
    }
    const loaded = bundle instanceof Bundle ? bundle : await loadBundle(bundle);
    checkPolicy(loaded, policy);
    const ledger = await openLedger(store, budget, { replay, holdInMemory });
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

  /** The fences that are applied to every position. `asJson` exports them. */
  get fences() {
    return this.#ledger.fences;
  }

  /**
   * Draw a fence around a place, once, and keep it in the store. A place that had one gets the same one back.
   *
   * @param {number} lat the place, degrees (WGS 84); it is not kept
   * @param {number} lon degrees
   * @param {import("./fences.js").FenceOptions} options see `drawFence`
   * @returns {Promise<import("./fences.js").Fence>}
   * @throws {ParameterError} A fence in use holds the place already, or its name is taken.
   */
  addFence(lat, lon, options) {
    return this.#inTurn(async () => {
      const [fences, fence] = this.fences.withPlace(lat, lon, options, this.#words);
      await this.#ledger.setFences(fences);
      return fence;
    });
  }

  /** @param {string} name of a fence that is not used any more; its centre is kept @returns {Promise<void>} */
  removeFence(name) {
    return this.#inTurn(() => this.#ledger.setFences(this.fences.without(name)));
  }

  /** @param {string} text what `fences.asJson()` or `geoblanket fence export` wrote @returns {Promise<void>} */
  importFences(text) {
    return this.#inTurn(() => this.#ledger.setFences(this.fences.withAll(Fences.parsed(text))));
  }

  /** @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  #inTurn(work) {
    // Reports run one after the other, because each must see what earlier ones spent.
    const done = this.#last.then(work);
    this.#last = done.catch(() => {});
    return done;
  }

  /**
   * Report a location: draw a cell, store it and what it cost, and return it. Every valid location gets an answer; a slot or a
   * request that was answered before gets the same one again. At rest the last answer is repeated at no cost, if the bundle
   * says so.
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
    return this.#inTurn(() => this.#report(lat, lon, time, request));
  }

  /** @param {unknown} lat @param {unknown} lon @param {unknown} time @param {unknown} request @returns {Promise<Report>} */
  async #report(lat, lon, time, request) {
    const { intervalMs, lattice, domain: frame } = this.#bundle;
    const [latE7, lonE7] = locationE7(lat, lon);
    const timeMs = checkedTimeMs(time, this.#toleranceMs);
    const name = checkedRequest(request);
    const point = lattice.spec.plane.unitOfE7(...this.fences.applyE7(latE7, lonE7));
    const slotMs = timeMs - modulo(timeMs, intervalMs);
    const nowMs = this.#ledger.nowMs(slotMs);
    const account = this.#ledger.account;
    const earlier = account.stored(slotMs, name);
    if (earlier !== undefined) return this.#reportOf(earlier, account.leftMicro(account.lastSlotMs ?? 0, nowMs), true);
    const { drawnAt } = this.#ledger;
    const isHeld = drawnAt !== null && drawnAt.frame === frame && lattice.holds(point, drawnAt.point);
    const costMicro = isHeld ? 0 : Number(lattice.spec.epsilonMicro);
    const left = account.checkedLeftMicro(slotMs, nowMs, costMicro);
    // A cell is drawn even at rest, and discarded, so that both cases take the same steps.
    const drawnCell = lattice.cellOf(...point, this.#words());
    const [drawnLatE7, drawnLonE7] = lattice.centerE7(drawnCell);
    const drawn = { cell: drawnCell, latE7: drawnLatE7, lonE7: drawnLonE7 };
    const { cell, latE7: cellLatE7, lonE7: cellLonE7 } = isHeld ? account.answers.at(-1) : drawn;
    const answer = { slotMs, costMicro, cell, latE7: cellLatE7, lonE7: cellLonE7, request: name, madeMs: nowMs };
    const newlyDrawnAt = this.#bundle.holdM > 0 ? { slotMs, frame, point } : null;
    await this.#ledger.write(answer, isHeld ? drawnAt : newlyDrawnAt);
    return this.#reportOf(answer, left, false);
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

/**
 * @param {import("./ledger.js").Store | undefined} store
 * @param {import("./budget.js").Budget | undefined} budget
 * @param {{replay: boolean, holdInMemory: boolean}} options
 */
async function openLedger(store, budget, { replay, holdInMemory }) {
  if (store !== undefined) return Ledger.open(store, { budget, replay, holdInMemory });
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
  if (!isPrintable(request, LONGEST_REQUEST)) {
    throw new ParameterError(`The name of a request must be printable text of 1 to ${LONGEST_REQUEST} characters.`);
  }
  return request;
}
