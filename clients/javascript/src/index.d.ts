/** Base of all errors that are meant for callers. */
export class GeoblanketError extends Error {}
/** A file is damaged, hostile, too old, or something else. */
export class InputError extends GeoblanketError {}
/** A lattice does not keep its promise. */
export class LatticeViolation extends GeoblanketError {}
/** The budget cannot be read or written: nothing is released. */
export class LedgerError extends GeoblanketError {}
/** What belongs together does not. */
export class MismatchError extends GeoblanketError {}
/** An argument is not what it must be. */
export class ParameterError extends GeoblanketError {}
/** A bundle promises less than the policy asks for. */
export class PolicyError extends GeoblanketError {}
/** The system gives no randomness: nothing was drawn. */
export class RandomnessError extends GeoblanketError {}
/** No report now: the budget is spent, or a later report was made. */
export class RefusedError extends GeoblanketError {
  readonly reason: "budget" | "time";
}

/** A bundle that was read and verified. */
export class Bundle {
  private constructor();
  /** The publisher's own number, which only grows. */
  readonly version: number;
  /** Hash of the frame and its cells (hexadecimal). */
  readonly domain: string;
  /** Hash of the file (hexadecimal). */
  readonly sha256: string;
  /** Milliseconds from one slot to the next. */
  readonly intervalMs: number;
  /** ε of a report, per kilometre. */
  readonly epsilon: number;
  /** Within this distance of where the last report was drawn, it is repeated at no cost, metres; 0: never. */
  readonly holdM: number;
  /** How sure anyone can be after one report, in words. */
  readonly certain: string;
  /** What is promised, in words. */
  readonly guarantee: string;
  /** The cells, numbered from 0, from west to east, then from south to north. */
  readonly lattice: { readonly cells: number };
}

/** Read a bundle with a lattice, and verify it exactly. */
export function loadBundle(
  file: Uint8Array | ArrayBuffer,
  trust?: {
    domain?: string;
    minimumVersion?: number;
    /** An Ed25519 key in PEM form: the bundle must be signed by it. */
    publicKey?: string;
    /** What lies beside the bundle, with `.sig` added to its name. */
    signature?: Uint8Array | ArrayBuffer;
  },
): Promise<Bundle>;

/** The most that may be spent in any window of time. */
export class Budget {
  /** @param amounts `epsilon`: what the reports of a window may add up to, per kilometre; `windowS`: its length, seconds */
  constructor(amounts: { epsilon: number; windowS: number });
  readonly epsilon: number;
  readonly windowS: number;
  readonly micro: number;
  readonly windowMs: number;
}

/** Keeps one text. */
export interface Store {
  /** Return the text; null if there is none. */
  read(): Promise<string | null>;
  /**
   * Replace the text `before` by `after`, wholly and durably, before the promise is fulfilled. Return false, and change nothing,
   * if the text is another one.
   */
  swap(before: string | null, after: string): Promise<boolean>;
  close?(): Promise<void>;
}

/** Keeps a text in memory: what was spent is forgotten with the page. */
export class MemoryStore implements Store {
  read(): Promise<string | null>;
  swap(before: string | null, after: string): Promise<boolean>;
}

/** Keeps a text in IndexedDB: the best store in a browser. */
export class IndexedDbStore implements Store {
  constructor(name?: string);
  read(): Promise<string | null>;
  swap(before: string | null, after: string): Promise<boolean>;
  close(): Promise<void>;
}

/** Keeps a text in localStorage, which browsers write to disk some time later. */
export class LocalStorageStore implements Store {
  constructor(key?: string);
  read(): Promise<string | null>;
  swap(before: string | null, after: string): Promise<boolean>;
}

/** What was spent, in a store. */
export class Ledger {
  private constructor();
  /** Make a new ledger, with nothing spent; refuse if the store has one. `replay`: only the times of reports count. */
  static create(store: Store, budget: Budget, options?: { replay?: boolean }): Promise<void>;
}

/** A disc whose positions all count as its centre. It holds nothing that the reports do not tell sooner or later. */
export class Fence {
  private constructor();
  readonly name: string;
  /** Latitude of the centre, 1e-7 degrees. */
  readonly latE7: number;
  readonly lonE7: number;
  /** The protected place lies within this distance of the centre, metres. */
  readonly reachM: number;
  /** Positions within this distance of the centre count as the centre, metres. */
  readonly radiusM: number;
  /** The south-western corner of the frame in which it was drawn, 1e-7 degrees. */
  readonly southE7: number;
  readonly westE7: number;
  /** Whether it is in use; a fence that was taken away keeps its centre. */
  readonly active: boolean;
}

export interface FenceOptions {
  /** How far the centre may lie from the place, kilometres, .1 to 10. */
  radiusKm: number;
  /** What belongs to the place, metres around it, 0 to 2,000; by default 300. */
  marginM?: number;
  /** How people tell it from others; by default "home". */
  name?: string;
}

/** Draw a fence around a place, degrees, which is not kept. Do this once per place; `Device.addFence` keeps it. */
export function drawFence(lat: number, lon: number, options: FenceOptions): Fence;

/** The fences of one vehicle, the first made first. It cannot be changed: `with…` and `without` return others. */
export class Fences {
  constructor(all?: readonly Fence[]);
  /** In use and taken away. */
  readonly all: readonly Fence[];
  /** Return these and a fence around one more place, and that fence. A place that had one gets the same one back. */
  withPlace(lat: number, lon: number, options: FenceOptions): [Fences, Fence];
  /** Return these with one of them out of use. Its centre stays. */
  without(name: string): Fences;
  /** Return these and those of another device; refuse two that may be for one place. */
  withAll(others: Fences): Fences;
  /** Return all of them as a JSON text, the one that `geoblanket fence export` writes. */
  asJson(): string;
  static parsed(text: string): Fences;
}

/** The least that a bundle must promise. */
export interface Policy {
  /** The largest ε of a report, per kilometre. */
  largestEpsilon: number;
  /** The largest cost of a report, per kilometre. */
  largestCost: number;
  /** The least width of the frame, metres. */
  smallestExtentM: number;
  /** How far a coordinate may be rounded at most, metres. */
  largestRoundingM: number;
}

export const DEFAULT_POLICY: Readonly<Policy>;

/** A reported location. It depends on the true location only through the random draw. */
export interface Report {
  readonly cell: number;
  /** Latitude of the cell's centre, degrees. */
  readonly lat: number;
  readonly lon: number;
  /** Intervals of the bundle since 1970. */
  readonly slot: number;
  /** Start of the slot, ISO 8601 in UTC: publish this, not the time of the fix. */
  readonly time: string;
  /** What is left of the budget of this window, per kilometre. */
  readonly left: number;
  /** Whether this repeats an earlier answer, at no cost. */
  readonly stored: boolean;
}

/** Reports of one vehicle by a bundle. */
export class Device {
  private constructor();
  /** Open a bundle, and the ledger of a store; without a store, the budget is kept in memory. */
  static open(
    bundle: Uint8Array | ArrayBuffer | Bundle,
    options: {
      store?: Store;
      budget?: Budget;
      policy?: Partial<Policy>;
      /** How far the time of a report may be from the system's clock, seconds. */
      clockToleranceS?: number;
      /** For simulations: any time is accepted, and only the times of reports count. */
      replay?: boolean;
      /** Whether the point where the last report was drawn is not stored: after a restart, the next report is drawn. */
      holdInMemory?: boolean;
    },
  ): Promise<Device>;
  readonly bundle: Bundle;
  readonly budget: Budget;
  /** What is applied to every position; `fences.asJson()` is a copy to keep. */
  readonly fences: Fences;
  /** Draw a fence around a place, degrees, once, and keep it in the store. The place is not kept. */
  addFence(lat: number, lon: number, options: FenceOptions): Promise<Fence>;
  /** Stop using a fence. Its centre is kept: a later fence for the same place must be the same. */
  removeFence(name: string): Promise<void>;
  /** Take over the fences that another device exported. */
  importFences(text: string): Promise<void>;
  /** Report a location; a number as `time` is in seconds since 1970. Reports are made one after the other. */
  report(lat: number, lon: number, time: Date | number, options?: { request?: string | null }): Promise<Report>;
  /** Return what seems wrong with a location, for the driver; it must never decide whether a report is made. */
  warningFor(lat: number, lon: number): string | null;
  close(): Promise<void>;
}

/** How vehicles move, as anyone may know it. */
export class MotionModel {
  private constructor();
  readonly placeCount: number;
  readonly stateCount: number;
  /** Seconds of a step. */
  readonly intervalS: number;
  /** Places of the longest state. */
  readonly memory: number;
}

/** Read a motion model. */
export function loadMotionModel(file: Uint8Array | ArrayBuffer): Promise<MotionModel>;

/** Where a vehicle is, by what it reported. */
export interface Estimate {
  /** Degrees. */
  readonly lat: number;
  readonly lon: number;
  /** The circle that holds the vehicle with a probability of 90 %, metres. */
  readonly radiusM: number;
}

export interface Tracked extends Estimate {
  readonly outcome: "used" | "late" | "repeated" | "conflicting" | "impossible";
}

/** Follows vehicles by their released reports, at no cost in privacy. */
export class Tracker {
  constructor(bundle: Bundle, model: MotionModel);
  /** Take a report into account, and return where the vehicle is. */
  see(vehicle: string, slot: number, cell: number): Tracked;
  /** Return where a vehicle will be some slots after its last report. */
  estimate(vehicle: string, ahead?: number): Estimate;
  forget(vehicle: string): void;
}
