/** The legend of the maps. */

import { colours, STEPS } from "./theme.js";
import { element } from "./words.js";

const TITLES = {
  report: "Probability that a place is reported, %",
  conclusion: "Probability of a place to the recipient, %",
};
const MARKS = {
  report: [["present", "vehicle"], ["previous", "previous place"]],
  conclusion: [["present", "vehicle"], ["previous", "previous"], ["reported", "reported"], ["guess", "best guess"]],
  replay: [["present", "true place"], ["reported", "reported"], ["guess", "recipient's guess"]],
}; // prettier-ignore

/** Show the legend of "report", "conclusion" or "replay". */
export function showLegend(container, kind) {
  const marks = MARKS[kind].map(([mark, words]) => element("span", {}, element("i", { class: `marker ${mark}` }), words));
  container.replaceChildren(...(kind in TITLES ? scale(kind) : []), element("div", { class: "marks" }, ...marks));
}

function scale(kind) {
  const classes = colours()[kind].map((colour, index) => {
    const swatch = element("i");
    swatch.style.background = colour;
    const from = index === 0 ? 0 : STEPS[index - 1];
    return element("span", {}, swatch, String(from * 100));
  });
  return [element("p", {}, TITLES[kind]), element("div", { class: "scale" }, ...classes)];
}
