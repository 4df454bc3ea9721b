/** What is guaranteed, what is disclosed, and what it costs, in plain words. */

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

/** Write the promise of a bundle. @param {HTMLElement} container @param {object} bundle */
export function showPromise(container, bundle) {
  container.replaceChildren(...(bundle.kind === "lattice" ? ofLattice(bundle) : ofZones(bundle)));
}

function ofLattice(bundle) {
  const { lattice } = bundle;
  const rings = ringFactors.map((times) => [
    `${times} times`,
    ...[bundle.epsilon, 30 * bundle.night_cost].map((spent) => metresOrLess(ringMetres(times, spent))),
  ]);
  return [
    element("h1", {}, "What is promised"),
    element("p", { class: "hint" }, `For the bundle ${bundle.name}: ${bundleInWords(bundle)}.`),
    element("p", { class: "lead", id: "night" }, lattice.meaning.at(-1)),
    element(
      "p",
      { class: "hint" },
      "Take a home in the centre and another one on a ring. One report shifts the odds between the two by the factor on " +
        "the ring at most, whatever else is known. Click the map to move the rings.",
    ),
    table(["odds shift by at most", "one report", "30 nights at home, no fence"], rings),
    element("h2", {}, "Guaranteed"),
    list(lattice.meaning.slice(0, -1)),
    element("h2", {}, "Disclosed"),
    element("p", {}, `By design, a report tells ${bundle.disclosed}. It tells no zone.`),
    element("h2", {}, "Learned from"),
    element("p", {}, bundle.learned),
    element("h2", {}, "Not promised"),
    list(bundle.limits),
    element("h2", {}, "How it was verified"),
    list(bundle.guarantee),
    element(
      "p",
      { class: "hint" },
      `${lattice.cells.toLocaleString("en")} cells of ${number(lattice.cell_m)} m; coordinates are rounded by at most ` +
        `${lattice.rounding_m.toFixed(2)} m.`,
    ),
  ];
}

const metresOrLess = (distance) => (distance < 1 ? "less than 1 m" : metres(distance));

function ofZones(bundle) {
  const lead =
    "Whoever receives a report can shift the odds between two places of a zone, with the same past, by a factor of at " +
    `most ${factor(bundle.epsilon * 0.1)} if they are 100 m apart, and ${factor(bundle.epsilon * 0.5)} if they are 500 m ` +
    "apart: whatever else is known, and however much is computed.";
  const parts = [
    element("h1", {}, "What is promised"),
    element("p", { class: "hint" }, `For the bundle ${bundle.name}: ${bundleInWords(bundle)}.`),
    element("p", { class: "lead" }, lead),
    element("h2", {}, "Guaranteed"),
    list(bundle.promise.length ? bundle.promise : bundle.guarantee.slice(0, 1)),
    element("h2", {}, "Disclosed"),
    element("p", {}, `By design, a report tells ${bundle.disclosed}.`),
    element("h2", {}, "Learned from"),
    element("p", {}, bundle.learned),
    element("h2", {}, "Not promised"),
    list(bundle.limits),
  ];
  if (bundle.factors.length) {
    parts.push(
      element("h2", {}, "One report, at most"),
      table(["places apart", "more probable from one than from the other"], bundle.factors),
      element("h2", {}, "Reports add up"),
      table(["reports", "budget per km", "places 100 m apart"], bundle.costs),
    );
  }
  parts.push(element("h2", {}, "How it was verified"), list(bundle.guarantee));
  return parts;
}
