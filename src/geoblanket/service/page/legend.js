/** The legend of the maps. */

import { colours, HECTARE_STEPS, STEPS } from "./theme.js";
import { element } from "./words.js";

const TITLES = {
  zones: { report: "Probability that a place is reported, %", conclusion: "Probability of a place to the recipient, %" },
  lattice: { report: "Reports from here per hectare, %", conclusion: "Probability of a hectare to the recipient, %" },
};
const ABOVE = { zones: STEPS, lattice: HECTARE_STEPS };
const MARKS = {
  report: [["present", "vehicle"], ["previous", "previous place"]],
  conclusion: [["present", "vehicle"], ["previous", "previous"], ["reported", "reported"], ["guess", "best guess"]],
  replay: [["present", "true place"], ["reported", "reported"], ["guess", "tracked"], ["within", "90 % circle"]],
}; // prettier-ignore

const CITY_MARKS = {
  report: [["present", "vehicle"]],
  conclusion: [["present", "vehicle"], ["reported", "reported"]],
  replay: [["present", "true"], ["reported", "reported"], ["guess", "tracked"], ["within", "90 % circle"]],
  home: [
    ["present", "home"], ["reported", "reported"], ["guess", "attacker's guess"], ["within", "holds 9 homes of 10"],
    ["fence", "fence"],
  ],
  try: [["present", "you, for this page alone"], ["reported", "what would be told"], ["fence", "fence"]],
}; // prettier-ignore

/**
 * Show the legend.
 * @param {"report"|"conclusion"|"home"|"replay"|"try"} shows
 * @param {string[]} kinds Of the bundles on the maps: "zones", "lattice" or both.
 */
export function showLegend(container, shows, kinds) {
  const marks = (kinds.includes("zones") && shows in MARKS ? MARKS : CITY_MARKS)[shows].map(([mark, words]) =>
    element("span", {}, element("i", { class: `marker ${mark}` }), words),
  );
  const scales = !(shows in TITLES.lattice) ? [] : kinds.flatMap((kind) => scale(shows, kind));
  container.replaceChildren(...scales, element("div", { class: "marks" }, ...marks));
}

function scale(shows, kind) {
  const classes = colours()[shows].map((colour, index) => {
    const swatch = element("i");
    swatch.style.background = colour;
    const from = index === 0 ? 0 : ABOVE[kind][index - 1];
    return element("span", {}, swatch, String(Number((from * 100).toPrecision(3))));
  });
  return [element("p", {}, TITLES[kind][shows]), element("div", { class: "scale" }, ...classes)];
}
