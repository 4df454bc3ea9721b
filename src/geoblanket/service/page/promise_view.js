/** What is guaranteed, what is disclosed, and what it costs, in plain words. */

import { bundleInWords, element, factor } from "./words.js";

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
  container.replaceChildren(...parts);
}
