/** What happens at a coordinate with a lattice: the part of a map that shows one. */

import * as service from "./service.js";
import { coordinate, metres, number, percent } from "./words.js";

/** Ask what a lattice does at the chosen coordinate; `heard` is what was reported there, latitude and longitude. */
export async function askLattice(bundle, { point: [lon, lat], layer }, heard) {
  const question = { bundle: bundle.sha256, lat, lon };
  if (layer !== "conclusion") return { bundle, figures: await service.latticeOutlook(question), conclusion: null };
  const conclusion = await service.latticeConclusion({ ...question, report: heard });
  return { bundle, figures: conclusion, conclusion };
}

/** Show the answer on a map. */
export function showLattice({ map, markers }, { figures, conclusion }, point) {
  map.showWays([], []);
  map.showBlocks(figures.heat);
  markers.vehicle.put(point);
  markers.heard.put(conclusion ? [conclusion.report[1], conclusion.report[0]] : null);
  for (const name of ["present", "previous", "reported", "guess"]) markers[name].put(null);
}

/** What the report changed, in words. */
export function concludedOverCity({ conclusion: { before, after, recipient_error_m: error } }) {
  return (
    `To a recipient for whom all of the city is alike, the vehicle was within 250 m of its true coordinate with ` +
    `${percent(before)} before the report, and is with ${percent(after)} now. On average, the best guess after one ` +
    `report is ${metres(error)} off. Whoever gets all reports is nearer: see Replay.`
  );
}

/** Where the vehicle is, and what a report of it tells, in words. */
export function whereInCity({ bundle: { lattice, epsilon }, figures }, point) {
  const cell = `one of ${lattice.cells.toLocaleString("en")} cells of ${number(lattice.cell_m)} m`;
  const hold = lattice.hold_m
    ? ` At rest the report is held: within ${number(lattice.hold_m)} m the last one is repeated.`
    : " Nothing is held: the noise of a parked car averages out.";
  const outside = figures.inside ? "" : " This is outside the frame, so its nearest point counts.";
  return (
    `At ${coordinate(point)}. A report is ${cell}, and tells no zone: any coordinate of the frame may lie behind it, ` +
    `with ε = ${epsilon}.${hold}${outside}`
  );
}
