/** Figures in a table, and means over the reports so far. */

import { element, metres, percent } from "./words.js";

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** A mean over the reports so far. @param {number[]} values Metres. */
export const soFar = (values, now) => metres(mean(values.slice(0, now + 1)));

/** How often the circle held the vehicle so far. @param {{error_m: number[], radius_m: number[]}} tracked */
export const heldSoFar = ({ error_m: errors, radius_m: radii }, now) =>
  percent(mean(errors.slice(0, now + 1).map((error, index) => (error <= radii[index] ? 1 : 0))));

/**
 * A table of figures.
 * @param {[string, string, ...string[]][]} rows A title, a hint, and a value for each column.
 * @param {string[]} columns Their titles; none if there is one column.
 */
export function figuresTable(rows, columns = []) {
  const lines = rows.map(([title, hint, ...values]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, title, element("small", {}, hint)),
      ...values.map((value) => element("td", {}, value)),
    ),
  );
  const head = ["", ...columns].map((title) => element(title ? "th" : "td", title ? { scope: "col" } : {}, title));
  const header = columns.length ? [element("thead", {}, element("tr", {}, ...head))] : [];
  return element("table", { class: "figures" }, ...header, element("tbody", {}, ...lines));
}
