/** Figures in tables: those of one place for one or two mechanisms, and for all that are served. */

import { bundleInWords, element, factor, metres, number, percent, weightsInWords } from "./words.js";

const loss = (figures) => (figures.loss === null ? "–" : `${number(figures.loss)} ${figures.unit}`);
const lossHint = (bundle) =>
  bundle.loss === null ? "the bundle has no record of its build beside it" : `by design; ${bundle.loss.words}`;
const perHour = (bundle) =>
  bundle.interval_s === null ? "–" : `${number((bundle.cost * 3600) / bundle.interval_s)} per km`;
const perNight = (bundle) => {
  if (bundle.kind === "lattice") return `${number(bundle.night_cost)} per km`;
  return bundle.interval_s === null ? "–" : `${number((bundle.cost * 8 * 3600) / bundle.interval_s)} per km`;
};
const nightHint = (bundle) =>
  bundle.kind === "lattice" && bundle.lattice.anchor
    ? "8 hours, however many reports: ε₀ for each period that it touches"
    : "8 hours, if every interval is reported";

const pastInWords = ({ history_weights: weights }) => (weights.length ? `, w = ${weightsInWords(weights)}` : "");
const ZONE_LOSS = "Expected loss in this zone";
/** Rows that say nothing of a lattice. */
const OF_ZONES = [ZONE_LOSS, "The same from the zone alone"];

const ROWS = [
  ["Mean error of a report", "how far the reported place is from the true one", (f) => metres(f.error_m)],
  ["Median error of a report", "half of all reports are at most this far off", (f) => metres(f.median_error_m)],
  ["True place reported", "so often a report is exactly right: the place, or its cell", (f) => percent(f.exact)],
  [
    "Error of a recipient's best guess",
    (bundle) => `after one report; ${bundle.kind === "lattice" ? "all of the city alike" : "the mean over this zone"}`,
    (f) => metres(f.recipient_error_m),
  ],
  ["The same from the zone alone", "which every report tells", (f) => (f.zone_error_m === null ? "–" : metres(f.zone_error_m))],
  [
    "The same without any report",
    (bundle) => (bundle.kind === "lattice" ? "anywhere in the frame" : "by what is known beforehand, without the zone"),
    (f) => metres(f.unreported_error_m),
  ],
  [ZONE_LOSS, lossHint, loss],
  ["Shift of odds, 100 m apart", "the largest factor by one report", (f, bundle) => `× ${factor(bundle.epsilon * 0.1)}`],
  [
    "Budget of one hour",
    (bundle) => `if every interval is reported, ${bundle.kind === "lattice" ? "ε" : "ε(1 + Σw)"} for each`,
    (f, bundle) => perHour(bundle),
  ],
  ["Budget of a night at one place", nightHint, (f, bundle) => perNight(bundle)],
];

/**
 * The figures of a place, a column for each mechanism.
 * @param {{bundle: object, figures: object}[]} columns
 */
export function figuresTable(columns) {
  const head = columns.map(({ bundle }, index) => {
    const past = bundle.kind === "lattice" ? ", lattice" : pastInWords(bundle);
    return element("th", { scope: "col" }, `${"AB"[index]}: ε = ${bundle.epsilon}${past}`);
  });
  const onlyLattices = columns.every(({ bundle }) => bundle.kind === "lattice");
  const rows = ROWS.filter(([title]) => !(onlyLattices && OF_ZONES.includes(title))).map(([title, hint, value]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, title, element("small", {}, hint instanceof Function ? hint(columns[0].bundle) : hint)),
      ...columns.map(({ bundle, figures }) => element("td", {}, value(figures, bundle))),
    ),
  );
  const header = columns.length > 1 ? [element("thead", {}, element("tr", {}, element("td"), ...head))] : [];
  return element("table", { class: "figures" }, ...header, element("tbody", {}, ...rows));
}

/**
 * All mechanisms at a place, in order of ε; a click chooses one.
 * @param {object[]} bundles
 * @param {object[]} choices What the service said of each.
 */
export function choicesTable(bundles, choices, chosen, choose) {
  const figuresOf = new Map(choices.map((choice) => [choice.bundle, choice]));
  const rows = bundles
    .filter((bundle) => figuresOf.has(bundle.sha256))
    .sort((a, b) => a.epsilon - b.epsilon)
    .map((bundle) => {
      const figures = figuresOf.get(bundle.sha256);
      const pick = element("button", { class: "link", type: "button", onclick: () => choose(bundle.sha256) });
      pick.textContent = `ε = ${bundle.epsilon}`;
      pick.setAttribute("aria-label", `Show ${bundleInWords(bundle)}`);
      return element(
        "tr",
        { class: bundle.sha256 === chosen ? "chosen" : null },
        element("th", { scope: "row" }, pick),
        element("td", {}, bundle.kind === "lattice" ? "lattice" : weightsInWords(bundle.history_weights)),
        element("td", {}, metres(figures.error_m)),
        element("td", {}, metres(figures.recipient_error_m)),
        element("td", {}, loss(figures)),
      );
    });
  const titles = ["ε per km", "w", "mean error", "guess error", "loss"];
  const head = element("tr", {}, ...titles.map((title) => element("th", { scope: "col" }, title)));
  return element(
    "div",
    { class: "scroll" },
    element(
      "table",
      {},
      element("caption", {}, "All mechanisms at this place"),
      element("thead", {}, head),
      element("tbody", {}, ...rows),
    ),
  );
}
