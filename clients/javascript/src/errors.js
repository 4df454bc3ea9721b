// Errors, by kind. No message repeats a location: errors end up in logs.

/** Base of all errors that are meant for callers. */
export class GeoblanketError extends Error {
  /** @param {string} message */
  constructor(message) {
    super(message);
    this.name = new.target.name;
  }
}

/** A file is damaged, hostile, too old, or of another kind. */
export class InputError extends GeoblanketError {}

/** A lattice does not keep its promise. */
export class LatticeViolation extends GeoblanketError {}

/** Two things do not belong together: a bundle of another domain, a model of another city. */
export class MismatchError extends GeoblanketError {}

/** A bundle promises less than the policy asks for. */
export class PolicyError extends GeoblanketError {}

/** An argument is not valid. */
export class ParameterError extends GeoblanketError {}

/** The system gives no randomness: nothing was drawn. */
export class RandomnessError extends GeoblanketError {}

/** The budget cannot be read or written: nothing is released. */
export class LedgerError extends GeoblanketError {}

/** No report now: the budget is spent, or a later report was made. */
export class RefusedError extends GeoblanketError {
  /**
   * @param {string} message
   * @param {"budget" | "time"} reason
   */
  constructor(message, reason) {
    super(message);
    /** @type {"budget" | "time"} */
    this.reason = reason;
  }
}
