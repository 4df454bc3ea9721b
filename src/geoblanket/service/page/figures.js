/** Figures in tables: those of one place for one or two mechanisms, and for all that are served. */

import { bundleInWords, element, factor, metres, number, percent, weightsInWords } from "./words.js";

const loss = (figures) => (figures.loss === null ? "–" : `${number(figures.loss)} ${figures.unit}`);
const lossHint = (bundle) =>
  bundle.loss === null ? "the bundle has no record of its build beside it" : `by design; ${bundle.loss.words}`;
const perHour = (bundle) =>
  bundle.interval_s === null ? "–" : `${number((bundle.cost * 3600) / bundle.interval_s)} per km`;
const perNight = ({ night_cost: cost }) => (cost === null ? "–" : `${number(cost)} per km`);
const nightHint = (bundle) =>
  bundle.kind === "lattice" && bundle.lattice.hold_m
    ? "one draw, however long: at rest the report is held"
    : "8 hours, if every interval is reported";

const pastInWords = ({ history_weights: weights }) => (weights.length ? `, w = ${weightsInWords(weights)}` : "");
const isLattice = ({ kind }) => kind === "lattice";
const isZones = ({ kind }) => kind === "zones";
/** A recipient of zones may follow the vehicle: most of what they know, they knew before the report. */
function knows(bundle, { previous, prior }) {
  if (isLattice(bundle)) return "to whom all of the city is alike";
  return previous === null || prior === "equal" ? "who knows the places of the city" : "who knows the previous place";
}

/** What is in a row: its title, a hint, its value, and for which bundles it says something. */
const ROWS = [
  ["Half of all reports are within", "of the true place. Further off is more private, and less useful", (f) => metres(f.median_error_m)],
  ["19 of 20 are within", "of the true place", (f, bundle) => (isLattice(bundle) ? metres(f.most_error_m) : "–"), isLattice],
  ["Mean error of a report", "from the true place to the reported one", (f) => metres(f.error_m)],
  [
    "The true place is reported",
    "so often. Seldom does not mean hidden: see the best guess",
    (f, bundle) => (isZones(bundle) ? percent(f.exact) : "–"),
    isZones,
  ],
  [
    "Best guess before the report",
    (bundle, at) => `how far off somebody is ${knows(bundle, at)}`,
    (f) => metres(f.unreported_error_m),
  ],
  ["… told the zone alone", "which every report tells", (f) => (f.zone_error_m === null ? "–" : metres(f.zone_error_m)), isZones],
  [
    "… after this one report",
    (bundle) => `${isZones(bundle) ? "the mean over this zone. " : ""}Whoever gets all reports is nearer: see Replay`,
    (f) => metres(f.recipient_error_m),
  ],
  [
    "Odds between two points 100 m apart",
    "one report shifts them by this factor at most; × 1 would tell nothing",
    (f, bundle) => `× ${factor(bundle.epsilon * 0.1)}`,
  ],
  [
    "An hour on the road costs",
    (bundle) => `the sum of ${isLattice(bundle) ? "ε" : "ε(1 + Σw)"}, if every interval is reported: a trip as a whole is not hidden`,
    (f, bundle) => perHour(bundle),
  ],
  ["A night at one place costs", nightHint, (f, bundle) => perNight(bundle)],
  ["Expected loss in this zone", lossHint, loss, isZones],
];

/**
 * The figures of a place, a column for each mechanism.
 * @param {{bundle: object, figures: object}[]} columns
 * @param {{previous: number|null, prior: string}} at Where the vehicle came from, and what a recipient knows of it.
 */
export function figuresTable(columns, at) {
  const head = columns.map(({ bundle }, index) => {
    const past = bundle.kind === "lattice" ? ", lattice" : pastInWords(bundle);
    return element("th", { scope: "col" }, `${"AB"[index]}: ε = ${bundle.epsilon}${past}`);
  });
  const shown = ROWS.filter(([, , , saysSomething = () => true]) => columns.some(({ bundle }) => saysSomething(bundle)));
  const hintOf = (hint) =>
    hint instanceof Function ? [...new Set(columns.map(({ bundle }) => hint(bundle, at)))].join("; ") : hint;
  const rows = shown.map(([title, hint, value]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, title, element("small", {}, hintOf(hint))),
      ...columns.map(({ bundle, figures }) => element("td", {}, value(figures, bundle))),
    ),
  );
  const header = columns.length > 1 ? [element("thead", {}, element("tr", {}, element("td"), ...head))] : [];
  return element("table", { class: "figures" }, ...header, element("tbody", {}, ...rows));
}

/** Of a lattice first; then in order of ε and of w. */
const inOrder = (a, b) =>
  Number(isZones(a)) - Number(isZones(b)) || a.epsilon - b.epsilon || pastInWords(a).localeCompare(pastInWords(b));

/**
 * All mechanisms at a place; a click chooses one.
 * @param {object[]} bundles
 * @param {object[]} choices What the service said of each.
 */
export function choicesTable(bundles, choices, chosen, choose) {
  const figuresOf = new Map(choices.map((choice) => [choice.bundle, choice]));
  const rows = bundles
    .filter((bundle) => figuresOf.has(bundle.sha256))
    .sort(inOrder)
    .map((bundle) => {
      const figures = figuresOf.get(bundle.sha256);
      const pick = element("button", { class: "link", type: "button", onclick: () => choose(bundle.sha256) });
      pick.textContent = `ε = ${bundle.epsilon}${isLattice(bundle) ? ", lattice" : pastInWords(bundle)}`;
      pick.setAttribute("aria-label", `Show ${bundleInWords(bundle)}`);
      return element(
        "tr",
        { class: bundle.sha256 === chosen ? "chosen" : null },
        element("th", { scope: "row" }, pick),
        element("td", {}, metres(figures.error_m)),
        element("td", {}, metres(figures.unreported_error_m)),
        element("td", {}, metres(figures.recipient_error_m)),
        ...(bundles.some(isZones) ? [element("td", {}, loss(figures))] : []),
      );
    });
  const titles = ["", "report off", "best guess before", "after it", ...(bundles.some(isZones) ? ["loss"] : [])];
  const head = element("tr", {}, ...titles.map((title, index) => element(index ? "th" : "td", index ? { scope: "col" } : {}, title)));
  const words =
    "All mechanisms at this place: means for one report." +
    (bundles.some(isZones) ? " The recipient of zones follows the vehicle, and knew more before it." : "");
  return [
    element("p", { class: "hint", id: "choices-words" }, words),
    element(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-labelledby": "choices-words" },
      element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)),
    ),
  ];
}
