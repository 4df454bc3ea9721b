/** Numbers as people read them, with their units; and elements of the page. */

/** @param {number} metres */
export function metres(metres) {
  if (metres >= 995) return `${Number((metres / 1000).toFixed(metres < 9950 ? 1 : 0))} km`;
  return `${Math.round(metres / (metres < 100 ? 1 : 10)) * (metres < 100 ? 1 : 10)} m`;
}

/** A number with three significant digits. @param {number} value */
export function number(value) {
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
}

/** Seconds as "30 s", "5 min" or "hour". @param {number} seconds */
export function every(seconds) {
  if (seconds === 3600) return "hour";
  return seconds < 60 || seconds % 60 ? `${number(seconds)} s` : `${number(seconds / 60)} min`;
}

/** One night, or several. @param {number} count */
export const nightsInWords = (count) => (count === 1 ? "one night" : `${count} nights`);

/** A setting, in a few words. */
export function settingInWords({ epsilon, interval_s: interval, hold_m: hold, fence_km: fence }) {
  const parts = [`ε = ${epsilon} per km`, `every ${every(interval)}`];
  return [...parts, hold ? `hold ${metres(hold)}` : "no hold", fence ? `fence ${number(fence)} km` : "no fence"].join(", ");
}

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
 * @param {{from: string, saw_all: boolean}} model
 */
export function modelInWords({ from, saw_all: sawAll }) {
  const seen = sawAll ? " Its model may have been learned from this very trip, which flatters it." : "";
  return `The tracker uses the mechanism and all reports so far. ${KNOWS[from]}.${seen}`;
}

export const byId = (id) => document.getElementById(id);

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

/** A list of sentences. */
export const list = (items) => element("ul", {}, ...items.map((item) => element("li", {}, item)));

/** Let the browser draw, then go on. */
export const drawn = () => new Promise((resolve) => requestAnimationFrame(() => resolve()));
