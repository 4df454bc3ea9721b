// The least that a bundle must promise before a device uses it.

import { ParameterError, PolicyError } from "./errors.js";

/**
 * @typedef {object} Policy
 * @property {number} largestEpsilon The largest ε of a report, per kilometre.
 * @property {number} largestCost The largest cost of a report, per kilometre.
 * @property {number} smallestExtentM The least width of the frame, metres.
 * @property {number} largestRoundingM How far a coordinate may be rounded at most, metres.
 */

/** @type {Policy} */
export const DEFAULT_POLICY = Object.freeze({
  largestEpsilon: 20, largestCost: 100, smallestExtentM: 400, largestRoundingM: 10,
});

/**
 * @param {import("./bundle.js").Bundle} bundle
 * @param {Partial<Policy>} policy
 * @throws {PolicyError} The bundle promises less.
 */
export function checkPolicy(bundle, policy) {
  const { largestEpsilon, largestCost, smallestExtentM, largestRoundingM } = { ...DEFAULT_POLICY, ...policy };
  if (!(largestEpsilon >= 0 && largestCost >= 0 && smallestExtentM >= 0 && largestRoundingM >= 0)) {
    throw new ParameterError("The numbers of a policy must be 0 or more.");
  }
  const problems = [];
  const extentM = (bundle.lattice.side * Number(bundle.lattice.spec.plane.unitMm)) / 1000;
  if (bundle.epsilon > largestEpsilon) problems.push(`its ε is ${bundle.epsilon} per km, more than ${largestEpsilon}`);
  if (bundle.epsilon > largestCost) problems.push(`a report costs ${bundle.epsilon} per km, more than ${largestCost}`);
  const roundingM = Number(bundle.lattice.spec.plane.roundingMm) / 1000;
  if (roundingM > largestRoundingM) {
    problems.push(`it rounds a coordinate by up to ${roundingM} m, more than ${largestRoundingM} m`);
  }
  if (extentM < smallestExtentM) problems.push(`its frame is ${extentM} m wide, less than ${smallestExtentM} m`);
  if (problems.length) {
    throw new PolicyError(`The bundle promises less than the policy asks for: ${problems.join("; ")}.`);
  }
}
