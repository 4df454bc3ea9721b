// The durable budget: one text in a store, replaced as a whole before a report is given out.
//
// The text has a checksum, and numbers that must agree: a damaged one is refused, and nothing is released. A store replaces
// it only if it still is what was read, so that two devices that share it cannot spend the same budget twice: the second one
// is refused. It never holds a true location. With an anchor it holds a secret, the shift of the last period.
// Only a report after the period removes the shift: by the clock alone, a late report could still need it, and draw another.

import { Account, Budget } from "./budget.js";
import { LedgerError, MismatchError, ParameterError } from "./errors.js";
import { randomName, sha256OfText } from "./system.js";

/**
 * @typedef {object} Store Keeps one text.
 * @property {() => Promise<string | null>} read Return the text; null if there is none.
 * @property {(before: string | null, after: string) => Promise<boolean>} swap Replace the text `before` by `after`, wholly and
 *   durably, before the promise is fulfilled; return false, and change nothing, if the text is another one.
 * @property {() => Promise<void>} [close]
 */

const FORMAT = "geoblanket ledger 1";

/** This page or process: what its own clock shows means nothing in another one. */
const RUN = randomName();

/** What was spent, in a store. Make it once with `Ledger.create`, then use `Ledger.open`. */
export class Ledger {
  #store;
  #text;
  #state;
  #broken = false;
  #session = randomName();

  /** @param {Store} store @param {string} text @param {ReturnType<typeof parsed>} state */
  constructor(store, text, state) {
    this.#store = store;
    this.#text = text;
    this.#state = state;
  }

  /**
   * Make a new ledger, with nothing spent; refuse if the store has one.
   *
   * @param {Store} store
   * @param {Budget} budget
   * @param {{replay?: boolean}} [options] `replay`: only the times of reports count, for simulations
   */
  static async create(store, budget, { replay = false } = {}) {
    const { epsilon, windowS, anchorEpsilon } = budget;
    const state = {
      budget: { epsilon, windowS, anchorEpsilon },
      replay,
      clock: { passedMs: 0, latestWallMs: Date.now(), wallMs: Date.now(), run: RUN, runMs: runMs() },
      ...accountState(new Account(budget)),
    };
    try {
      if (!(await stored(store, null, await sealed(state)))) {
        throw new LedgerError("There is a ledger already. It keeps what was spent.");
      }
    } finally {
      await store.close?.();
    }
  }

  /**
   * Open a ledger, and check all of it.
   *
   * @param {Store} store
   * @param {{budget?: Budget, replay?: boolean}} [options] what it must be
   * @throws {LedgerError} It is missing or damaged.
   */
  static async open(store, { budget, replay = false } = {}) {
    try {
      return await Ledger.#opened(store, budget, replay);
    } catch (error) {
      await store.close?.();
      throw error;
    }
  }

  /** @param {Store} store @param {Budget | undefined} budget @param {boolean} replay */
  static async #opened(store, budget, replay) {
    let text;
    try {
      text = await store.read();
    } catch (error) {
      throw new LedgerError(`The ledger cannot be read (${/** @type {Error} */ (error).message}). Nothing is released.`);
    }
    if (text === null) throw new LedgerError("There is no ledger. Make it once, with Ledger.create.");
    const state = parsed(await opened(text));
    if (budget && ["micro", "anchorMicro", "windowMs"].some((name) => budget[name] !== state.budget[name])) {
      throw new MismatchError("The ledger has another budget than the one asked for. It keeps the one it was made with.");
    }
    if (replay !== state.replay) throw new MismatchError("A ledger is for replays or for real reports, never both.");
    const ledger = new Ledger(store, text, state);
    // What the clocks show is stored at once: a wall clock that was set forward gains nothing afterwards. The new text is
    // another one in any case, so that whoever opened the ledger before can write no more.
    ledger.nowMs(0);
    await ledger.#write(ledger.account);
    return ledger;
  }

  /** @returns {Budget} */
  get budget() {
    return this.#state.budget;
  }

  get replay() {
    return this.#state.replay;
  }

  /** @returns {Account} */
  get account() {
    return this.#state.account;
  }

  /**
   * Return when a report in a slot is made: in real elapsed time or, in a replay, in the slot's own.
   *
   * Elapsed time never runs ahead of real time: it grows by the smaller of what wall clock and running clock say, and from one
   * run to the next by how much the wall clock is ahead of the latest time it ever showed.
   *
   * @param {number} slotMs
   */
  nowMs(slotMs) {
    if (this.replay) return slotMs;
    const { passedMs, latestWallMs, wallMs: before, run, runMs: runBefore } = this.#state.clock;
    const [wallMs, running] = [Date.now(), runMs()];
    const passed = run === RUN ? Math.min(wallMs - before, running - runBefore) : wallMs - latestWallMs;
    const clock = {
      passedMs: passedMs + Math.max(0, passed),
      latestWallMs: Math.max(latestWallMs, wallMs),
      wallMs,
      run: RUN,
      runMs: running,
    };
    this.#state = { ...this.#state, clock };
    return clock.passedMs;
  }

  /**
   * Store an answer, its cost and a new anchor, durably. After a failure nothing more is released until it is opened again.
   *
   * @param {import("./budget.js").Answer} answer
   * @param {import("./budget.js").Anchor | null} anchor
   */
  async write(answer, anchor) {
    await this.#write(this.account.after(answer, anchor));
  }

  /** @param {Account} account */
  async #write(account) {
    if (this.#broken) throw new LedgerError("The ledger is closed, or could not be written before. Open it again.");
    this.#broken = true;
    const { budget, replay, clock } = this.#state;
    const { epsilon, windowS, anchorEpsilon } = budget;
    const state = { budget: { epsilon, windowS, anchorEpsilon }, replay, clock, session: this.#session };
    const text = await sealed({ ...state, ...accountState(account) });
    if (!(await stored(this.#store, this.#text, text))) {
      throw new LedgerError("The ledger was changed by another device or page. Nothing is released.");
    }
    this.#text = text;
    this.#state = { ...this.#state, account };
    this.#broken = false;
  }

  async close() {
    this.#broken = true;
    await this.#store.close?.();
  }
}

/** @returns {number} whole milliseconds of a clock that nobody can set */
function runMs() {
  return Math.floor(performance.now());
}

/** @param {Store} store @param {string | null} before @param {string} after */
async function stored(store, before, after) {
  try {
    return await store.swap(before, after);
  } catch (error) {
    throw new LedgerError(`The ledger cannot be written (${/** @type {Error} */ (error).message}). Nothing is released.`);
  }
}

/** @param {Account} account */
function accountState({ answers, anchors, reports, spentMicro, anchorSpentMicro, lastSlotMs }) {
  return { answers, anchors, reports, spentMicro, anchorSpentMicro, lastSlotMs };
}

/** @param {object} state @returns {Promise<string>} the text of a ledger, with its checksum */
async function sealed(state) {
  const content = JSON.stringify({ format: FORMAT, ...state });
  return `${await sha256OfText(content)} ${content}`;
}

/** @returns {never} */
function refuseDamaged() {
  throw new LedgerError("The ledger is damaged, or of another version. What was spent is not known, so nothing is released.");
}

/** @param {string} text @returns {Promise<any>} */
async function opened(text) {
  const content = text.slice(65);
  if (text[64] !== " " || (await sha256OfText(content)) !== text.slice(0, 64)) refuseDamaged();
  try {
    return JSON.parse(content);
  } catch {
    return refuseDamaged();
  }
}

/** @param {any} state */
function parsed(state) {
  const isWhole = (/** @type {unknown} */ value) => Number.isSafeInteger(value) && /** @type {number} */ (value) >= 0;
  const isText = (/** @type {unknown} */ value) => typeof value === "string";
  try {
    const { clock, answers, anchors, reports, spentMicro, anchorSpentMicro, lastSlotMs } = state;
    const isSound =
      state.format === FORMAT && typeof state.replay === "boolean" &&
      [clock.passedMs, clock.latestWallMs, clock.wallMs, clock.runMs].every(isWhole) && isText(clock.run) &&
      [reports, spentMicro, anchorSpentMicro].every(isWhole) && (lastSlotMs === null ? reports === 0 : isWhole(lastSlotMs)) &&
      answers.every(
        (/** @type {any} */ answer, /** @type {number} */ index) =>
          [answer.slotMs, answer.costMicro, answer.cell, answer.madeMs].every(isWhole) &&
          [answer.latE7, answer.lonE7].every(Number.isSafeInteger) && (answer.request === null || isText(answer.request)) &&
          (index === 0 || answers[index - 1].slotMs < answer.slotMs),
      ) &&
      anchors.every(
        (/** @type {any} */ anchor) =>
          [anchor.slotMs, anchor.startsMs, anchor.endsMs, anchor.costMicro].every(isWhole) && isText(anchor.frame) &&
          (anchor.shift === null || (anchor.shift.length === 2 && anchor.shift.every(isWhole))),
      ) &&
      (answers.length === 0 ? reports === 0 : answers.at(-1).slotMs === lastSlotMs) && reports >= answers.length &&
      answers.reduce((/** @type {number} */ sum, /** @type {any} */ answer) => sum + answer.costMicro, 0) <= spentMicro &&
      anchors.reduce((/** @type {number} */ sum, /** @type {any} */ anchor) => sum + anchor.costMicro, 0) <= anchorSpentMicro;
    if (!isSound) refuseDamaged();
    const budget = new Budget(state.budget);
    return { budget, replay: state.replay, clock, account: new Account(budget, accountState(state)) };
  } catch (error) {
    if (error instanceof TypeError || error instanceof ParameterError) refuseDamaged();
    throw error;
  }
}
