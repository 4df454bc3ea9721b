/** The legend of the map. */

import { colours, HECTARE_STEPS, STEPS } from "./theme.js";
import { element } from "./words.js";

const TITLES = { zones: "Probability that a place is reported, %", lattice: "Reports from here per hectare, %" };
const ABOVE = { zones: STEPS, lattice: HECTARE_STEPS };
const MARKS = {
  replay: [["present", "true place"], ["reported", "reported"], ["guess", "tracked"], ["within", "90 % circle"]],
  home: [
    ["present", "home"], ["reported", "reported"], ["guess", "attacker's guess"], ["within", "holds 9 homes of 10"],
    ["fence", "fence"],
  ],
  try: [["present", "you, for this page alone"], ["reported", "what would be told"], ["fence", "fence"]],
}; // prettier-ignore
const EXPLORED = { zones: [["present", "vehicle"], ["previous", "previous place"]], lattice: [["present", "vehicle"]] };

/**
 * Show the legend.
 * @param {string} view
 * @param {"zones"|"lattice"} kind Of the bundle on the map.
 */
export function showLegend(container, view, kind) {
  const marks = (MARKS[view] ?? EXPLORED[kind]).map(([mark, words]) =>
    element("span", {}, element("i", { class: `marker ${mark}` }), words),
  );
  container.replaceChildren(...(view in MARKS ? [] : scale(kind)), element("div", { class: "marks" }, ...marks));
}

function scale(kind) {
  const classes = colours().report.map((colour, index) => {
    const swatch = element("i");
    swatch.style.background = colour;
    const from = index === 0 ? 0 : ABOVE[kind][index - 1];
    return element("span", {}, swatch, String(Number((from * 100).toPrecision(3))));
  });
  return [element("p", {}, TITLES[kind]), element("div", { class: "scale" }, ...classes)];
}
