// The durable budget: one text in a store, replaced as a whole before a report is given out.
//
// The text has a checksum, and numbers that must agree: a damaged one is refused, and nothing is released. A store replaces
// it only if it still is what was read, so that two devices that share it cannot spend the same budget twice: the second one
// is refused. It holds answers, costs and fences, which are no secrets, and one secret, if the bundle holds reports: the point
// where the last one was drawn, fenced. The next draw replaces it. With `holdInMemory` it is never stored.

import { Account, Budget } from "./budget.js";
import { LedgerError, MismatchError, ParameterError } from "./errors.js";
import { Fences } from "./fences.js";
import { randomName, sha256OfText } from "./system.js";

/**
 * @typedef {object} Store Keeps one text.
 * @property {() => Promise<string | null>} read Return the text; null if there is none.
 * @property {(before: string | null, after: string) => Promise<boolean>} swap Replace the text `before` by `after`, wholly and
 *   durably, before the promise is fulfilled; return false, and change nothing, if the text is another one.
 * @property {() => Promise<void>} [close]
 */

/**
 * @typedef {object} DrawnAt Where and when the last report was drawn. Never to be told to anyone.
 * @property {number} slotMs
 * @property {string} frame the domain of the bundle: in another frame the point means nothing
 * @property {[number, number]} point units east and north in the frame
 */

/**
 * @typedef {object} State
 * @property {Budget} budget
 * @property {boolean} replay
 * @property {{passedMs: number, latestWallMs: number, wallMs: number, run: string, runMs: number}} clock
 * @property {Account} account
 * @property {Fences} fences
 * @property {DrawnAt | null} drawnAt null where it is not known
 */

const FORMAT = "geoblanket ledger 2";
/** Version 0.2: with anchors, which are dropped, and without fences and held reports. */
const FORMAT_WITH_ANCHORS = "geoblanket ledger 1";

/** Id of this page or process, whose running clock is meaningless in another. */
const RUN = randomName();

/** What was spent, in a store. Make it once with `Ledger.create`, then use `Ledger.open`. */
export class Ledger {
  #store;
  #text;
  #state;
  #broken = false;
  #session = randomName();
  #holdInMemory;

  /** @param {Store} store @param {string} text @param {State} state @param {boolean} holdInMemory */
  constructor(store, text, state, holdInMemory) {
    this.#store = store;
    this.#text = text;
    this.#state = holdInMemory ? { ...state, drawnAt: null } : state;
    this.#holdInMemory = holdInMemory;
  }

  /**
   * Make a new ledger, with nothing spent; refuse if the store has one.
   *
   * @param {Store} store
   * @param {Budget} budget
   * @param {{replay?: boolean}} [options] `replay`: only the times of reports count, for simulations
   */
  static async create(store, budget, { replay = false } = {}) {
    const clock = { passedMs: 0, latestWallMs: Date.now(), wallMs: Date.now(), run: RUN, runMs: runMs() };
    const state = { budget, replay, clock, account: new Account(budget), fences: new Fences(), drawnAt: null };
    try {
      if (!(await stored(store, null, await sealed(state, "")))) {
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
   * @param {{budget?: Budget, replay?: boolean, holdInMemory?: boolean}} [options] what it must be; `holdInMemory`: where the
   *   last report was drawn is not stored, so that the first report after a restart is drawn
   * @throws {LedgerError} It is missing or damaged.
   */
  static async open(store, { budget, replay = false, holdInMemory = false } = {}) {
    try {
      return await Ledger.#opened(store, budget, replay, holdInMemory);
    } catch (error) {
      await store.close?.();
      throw error;
    }
  }

  /** @param {Store} store @param {Budget | undefined} budget @param {boolean} replay @param {boolean} holdInMemory */
  static async #opened(store, budget, replay, holdInMemory) {
    let text;
    try {
      text = await store.read();
    } catch (error) {
      throw new LedgerError(`The ledger cannot be read (${/** @type {Error} */ (error).message}). Nothing is released.`);
    }
    if (text === null) throw new LedgerError("There is no ledger. Make it once, with Ledger.create.");
    const state = parsed(await opened(text));
    if (budget && ["micro", "windowMs"].some((name) => budget[name] !== state.budget[name])) {
      throw new MismatchError("The ledger has another budget than the one asked for. It keeps the one it was made with.");
    }
    if (replay !== state.replay) throw new MismatchError("A ledger is for replays or for real reports, never both.");
    const ledger = new Ledger(store, text, state, holdInMemory);
    // What the clocks show is stored at once: a wall clock that was set forward gains nothing afterwards. The new text is
    // another one in any case, so that whoever opened the ledger before can write no more.
    ledger.nowMs(0);
    await ledger.#write({});
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

  /** The fences of the vehicle. @returns {Fences} */
  get fences() {
    return this.#state.fences;
  }

  /** @returns {DrawnAt | null} */
  get drawnAt() {
    return this.#state.drawnAt;
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
   * Store an answer and its cost, durably. After a failure nothing more is released until it is opened again.
   *
   * @param {import("./budget.js").Answer} answer
   * @param {DrawnAt | null} drawnAt where the last report was drawn, this one or, if it is held, an earlier one
   */
  async write(answer, drawnAt) {
    await this.#write({ account: this.account.after(answer), drawnAt });
  }

  /** @param {Fences} fences kept from now on, durably */
  async setFences(fences) {
    await this.#write({ fences });
  }

  /** @param {Partial<State>} changes */
  async #write(changes) {
    if (this.#broken) throw new LedgerError("The ledger is closed, or could not be written before. Open it again.");
    this.#broken = true;
    const state = { ...this.#state, ...changes };
    const text = await sealed(this.#holdInMemory ? { ...state, drawnAt: null } : state, this.#session);
    if (!(await stored(this.#store, this.#text, text))) {
      throw new LedgerError("The ledger was changed by another device or page. Nothing is released.");
    }
    this.#text = text;
    this.#state = state;
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

/** @param {State} state @param {string} session @returns {Promise<string>} the text of a ledger, with its checksum */
async function sealed({ budget, replay, clock, account, fences, drawnAt }, session) {
  const { answers, reports, spentMicro, lastSlotMs } = account;
  const { epsilon, windowS } = budget;
  const content = JSON.stringify({
    format: FORMAT, budget: { epsilon, windowS }, replay, clock, session, answers, reports, spentMicro, lastSlotMs,
    fences: fences.asJson(), drawnAt,
  });
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

/** @param {unknown} value */
const isWhole = (value) => Number.isSafeInteger(value) && /** @type {number} */ (value) >= 0;

/** @param {unknown} value */
const isText = (value) => typeof value === "string";

/**
 * @param {any} drawnAt
 * @param {any[]} answers
 * @param {number | null} lastSlotMs
 * @returns {boolean} whether there was no later draw: all later reports were held
 */
function isLastDraw({ slotMs, frame, point }, answers, lastSlotMs) {
  return (
    isWhole(slotMs) && isText(frame) && point.length === 2 && point.every(isWhole) && lastSlotMs !== null && slotMs <= lastSlotMs &&
    answers.every((answer) => answer.slotMs <= slotMs || answer.costMicro === 0)
  );
}

/** @param {any} found @returns {State} */
function parsed(found) {
  try {
    const isOld = found.format === FORMAT_WITH_ANCHORS;
    const state = isOld ? { ...found, format: FORMAT, fences: new Fences().asJson(), drawnAt: null } : found;
    const { clock, answers, reports, spentMicro, lastSlotMs, drawnAt } = state;
    const isSound =
      state.format === FORMAT && typeof state.replay === "boolean" &&
      [clock.passedMs, clock.latestWallMs, clock.wallMs, clock.runMs].every(isWhole) && isText(clock.run) &&
      [reports, spentMicro].every(isWhole) && (lastSlotMs === null ? reports === 0 : isWhole(lastSlotMs)) &&
      answers.every(
        (/** @type {any} */ answer, /** @type {number} */ index) =>
          [answer.slotMs, answer.costMicro, answer.cell, answer.madeMs].every(isWhole) &&
          [answer.latE7, answer.lonE7].every(Number.isSafeInteger) && (answer.request === null || isText(answer.request)) &&
          (index === 0 || answers[index - 1].slotMs < answer.slotMs),
      ) &&
      (answers.length === 0 ? reports === 0 : answers.at(-1).slotMs === lastSlotMs) && reports >= answers.length &&
      answers.reduce((/** @type {number} */ sum, /** @type {any} */ answer) => sum + answer.costMicro, 0) <= spentMicro &&
      (drawnAt === null || isLastDraw(drawnAt, answers, lastSlotMs));
    if (!isSound) refuseDamaged();
    const budget = new Budget(state.budget);
    const account = new Account(budget, { answers, reports, spentMicro, lastSlotMs });
    return { budget, replay: state.replay, clock, account, fences: Fences.parsed(state.fences), drawnAt };
  } catch (error) {
    if (error instanceof TypeError || error instanceof ParameterError) refuseDamaged();
    throw error;
  }
}
