/** The promise of a bundle, what is disclosed, and the cost, in plain words. */

import { ringFactors, ringMetres } from "./rings_view.js";
import { bundleInWords, element, factor, metres, number } from "./words.js";

const list = (items) => element("ul", {}, ...items.map((item) => element("li", {}, item)));

function table(titles, rows) {
  const cells = (row) => row.map((cell, index) => (index ? element("td", {}, cell) : element("th", { scope: "row" }, cell)));
  return element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...titles.map((title) => element("th", { scope: "col" }, title)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells(row)))),
  );
}

/** Write the promise of a bundle, in the service's own sentences. @param {HTMLElement} container @param {object} bundle */
export function showPromise(container, bundle) {
  const { sections, factors, totals_per_km: totals } = bundle.promise;
  const { "What it means": meaning, ...others } = sections;
  const isLattice = bundle.kind === "lattice";
  const lead = isLattice ? [meaning[0], meaning.at(-1)] : [meaning[0]]; // how sure anyone can be; of a lattice, what nights tell
  container.replaceChildren(
    element("h1", {}, "What is promised"),
    element("p", { class: "hint" }, `For the bundle ${bundle.name}: ${bundleInWords(bundle)}.`),
    element("p", { class: "lead", id: "lead" }, lead.join(" ")),
    ...(isLattice ? rings(bundle) : []),
    element("h2", {}, "What it means"),
    list(meaning.filter((sentence) => !lead.includes(sentence))),
    table(
      ["points apart", "one report changes their odds by at most"],
      factors.map(({ distance_km: km, factor }) => [metres(1000 * km), `× ${factorInWords(factor)}`]),
    ),
    element("h2", {}, "What reports add up to"),
    table(
      ["reports", "cost at most"],
      Object.entries(totals).map(([reports, cost]) => [reports, `${number(cost)} per km`]),
    ),
    ...Object.entries(others).flatMap(([title, sentences]) => [element("h2", {}, title), list(sentences)]),
  );
}

function rings(bundle) {
  const rows = ringFactors.map((times) => [
    `${times} times`,
    ...[bundle.epsilon, 30 * bundle.night_cost].map((spent) => metresOrLess(ringMetres(times, spent))),
  ]);
  return [
    element(
      "p",
      { class: "hint" },
      "Take a home in the centre and another home on a ring. One report changes the odds between the two by at most the " +
        "factor on the ring, whatever else is known. Click the map to move the rings.",
    ),
    table(["odds change by at most", "one report", "30 nights at home, no fence"], rows),
  ];
}

const factorInWords = (value) => factor(Math.log(value));
const metresOrLess = (distance) => (distance < 1 ? "less than 1 m" : metres(distance));
