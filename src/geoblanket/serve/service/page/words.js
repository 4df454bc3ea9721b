/** Numbers as people read them, with their units. */

/** @param {number} metres */
export function metres(metres) {
  if (metres >= 9950) return `${(metres / 1000).toFixed(0)} km`;
  if (metres >= 995) return `${(metres / 1000).toFixed(1)} km`;
  return `${Math.round(metres / (metres < 100 ? 1 : 10)) * (metres < 100 ? 1 : 10)} m`;
}

/** @param {number} share From 0 to 1. */
export function percent(share) {
  const value = share * 100;
  if (value > 0 && value < 0.1) return "< 0.1 %";
  return `${value.toFixed(value < 10 ? 1 : 0)} %`;
}

/** A number with three significant digits. @param {number} value */
export function number(value) {
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
}

/** e^exponent, as "7.4". @param {number} exponent */
export function factor(exponent) {
  if (exponent > Math.log(1e6)) return `10^${Math.round(exponent / Math.LN10)}`;
  const value = Math.exp(exponent);
  return value < 2 ? value.toFixed(2) : value < 10 ? value.toFixed(1) : number(value);
}

/** The history weights of a bundle; null stands for infinity. @param {(number|null)[]} weights */
export function weightsInWords(weights) {
  if (!weights.length) return "none";
  return weights.map((weight) => (weight === null ? "∞" : String(weight))).join(", ");
}

/** @param {{kind: string, epsilon: number, history_weights: (number|null)[]}} bundle */
export function bundleInWords(bundle) {
  if (bundle.kind === "lattice") return `ε = ${bundle.epsilon} per km, lattice, ${holdInWords(bundle)}`;
  const past = bundle.history_weights.length ? `, w = ${weightsInWords(bundle.history_weights)}` : ", no context";
  return `ε = ${bundle.epsilon} per km${past}`;
}

/** @param {{lattice: {hold_m: number}}} bundle One with a lattice. */
export const holdInWords = ({ lattice: { hold_m: hold } }) => (hold ? `hold ${number(hold)} m` : "no hold");

/** Seconds as "an hour" or "30 min". @param {number} seconds */
export function duration(seconds) {
  if (seconds === 3600) return "an hour";
  if (seconds % 3600 === 0) return `${seconds / 3600} hours`;
  return seconds < 60 || seconds % 60 ? `${number(seconds)} s` : `${number(seconds / 60)} min`;
}

/** The same after "every": "hour" or "30 min". @param {number} seconds */
export const every = (seconds) => duration(seconds).replace(/^an /, "");

const KNOWS = {
  roads: "It also knows the roads",
  "roads and walks": "It also knows the roads, and how the vehicles drive that were not held out",
  private: "It also knows the roads, and how vehicles drive",
  released: "It also knows the roads, and what was released before",
  distance: "It knows no roads: near is more probable than far",
  "a file": "It also knows a motion model from a file",
};

/**
 * What the tracker knows beside the reports.
 * @param {{from: string, order: number, saw_all: boolean, learned: string|null}} model
 */
export function modelInWords({ from, order, saw_all: sawAll, learned }) {
  const memory = order > 1 ? `, by the last ${order} places` : "";
  const seen = sawAll ? " Its model may have been learned from this very trip, which flatters it." : "";
  const promised = learned ? ` Its model was ${learned}.` : "";
  return `The tracker uses the mechanism and all reports so far. ${KNOWS[from]}${memory}.${seen}${promised}`;
}

/** A coordinate, to about ten metres. @param {[number, number]} point Longitude and latitude. */
export const coordinate = ([lon, lat]) => `${lat.toFixed(4)}, ${lon.toFixed(4)}`;

/** A new element. Text is set as text: nothing of a bundle is ever read as markup. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}
