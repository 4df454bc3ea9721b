// A device that reports perturbed locations by a verified bundle, and a tracker for recipients of the reports.

export { Budget } from "./budget.js";
export { Bundle, loadBundle } from "./bundle.js";
export { Device } from "./device.js";
export {
  GeoblanketError, InputError, LatticeViolation, LedgerError, MismatchError, ParameterError, PolicyError, RandomnessError,
  RefusedError,
} from "./errors.js";
export { Fence, Fences, drawFence } from "./fences.js";
export { Ledger } from "./ledger.js";
export { DEFAULT_POLICY } from "./policy.js";
export { IndexedDbStore, LocalStorageStore, MemoryStore } from "./stores.js";
export { MotionModel, loadMotionModel } from "./motion_model.js";
export { Tracker } from "./tracker.js";
