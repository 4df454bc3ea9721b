/** What is guaranteed, what is disclosed, and what it costs, in plain words. */

import { ringFactors, ringMetres, spent } from "./rings_view.js";
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
export function showPromise(container, bundle, state) {
  container.replaceChildren(...(bundle.kind === "lattice" ? ofLattice(bundle, state) : ofZones(bundle)));
}

/** What the rings on the map stand for, chosen by two buttons. */
function ringsChoice(state) {
  const choice = (value, words) => {
    const input = element("input", { type: "radio", name: "rings", value, checked: state.values.rings === value });
    input.addEventListener("change", () => state.set({ rings: value }));
    return element("label", {}, input, element("span", {}, words));
  };
  return element(
    "fieldset",
    { class: "switch" },
    element("legend", {}, "The rings on the map are for"),
    choice("report", "one report"),
    choice("night", "a night of 8 hours at home"),
  );
}

function ofLattice(bundle, state) {
  const { lattice } = bundle;
  const rings = ringFactors.map((times) => [
    `${times} times`,
    ...["report", "night"].map((what) => metresOrLess(ringMetres(times, spent(bundle, what)))),
  ]);
  return [
    element("h1", {}, "What is promised"),
    element("p", { class: "hint" }, `For the bundle ${bundle.name}: ${bundleInWords(bundle)}.`),
    element("p", { class: "lead", id: "night" }, lattice.meaning.at(-1)),
    ringsChoice(state),
    element(
      "p",
      { class: "hint" },
      "Take a home in the centre and another one on a ring. Whoever receives what was reported can shift the odds between " +
        "the two by the factor on the ring at most, whatever else is known. Click the map to move the rings.",
    ),
    table(["odds shift by at most", "one report", "a night at home"], rings),
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
