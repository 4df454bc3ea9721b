/** What replays of zones and of lattices share: the tracked way on the map, and figures of recipients in a table. */

import { circle } from "./geometry.js";
import { element, metres, percent } from "./words.js";

export const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

/** A mean over the intervals so far, of those that have a value. */
export function soFar(values, now) {
  const past = values.slice(0, now + 1).filter((value) => value !== null);
  return past.length ? metres(mean(past)) : "–";
}

/** How often the circle held the vehicle so far. @param {{error_m: number[], radius_m: number[]}} tracked */
export const heldSoFar = ({ error_m: errors, radius_m: radii }, now) =>
  percent(mean(errors.slice(0, now + 1).map((error, index) => (error <= radii[index] ? 1 : 0))));

/** The circle around where the vehicle seems to be now, as a line. */
export const circleNow = ({ at, radius_m: radii }, now) => circle(at[now], radii[now]);

/** The points of some of the lines from one interval to the next, as one line. */
export const along = (lines, from, now) => lines.slice(from, now + 1).flat();

/**
 * A table of figures.
 * @param {[string, string, ...string[]][]} rows A title, a hint, and a value for each column.
 * @param {string[]} columns Their titles; none if there is one column.
 */
export function replayFigures(rows, columns = []) {
  const lines = rows.map(([title, hint, ...values]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, title, element("small", {}, hint)),
      ...values.map((value) => element("td", {}, value)),
    ),
  );
  const head = ["", ...columns].map((title) => element("th", { scope: "col" }, title));
  const header = columns.length ? [element("thead", {}, element("tr", {}, ...head))] : [];
  return element("table", { class: "figures" }, ...header, element("tbody", {}, ...lines));
}
