/** Figures in a table, and a small chart of how near an attacker gets, night by night. */

import { element, metres } from "./words.js";

/**
 * A table of figures.
 * @param {[string, string, ...string[]][]} rows A title, a hint, and a value for each column.
 * @param {string[]} columns Their titles; none if there is one column.
 */
export function figuresTable(rows, columns = []) {
  const lines = rows.map(([title, hint, ...values]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, title, ...(hint ? [element("small", {}, hint)] : [])),
      ...values.map((value) => element("td", {}, value)),
    ),
  );
  const head = ["", ...columns].map((title) => element(title ? "th" : "td", title ? { scope: "col" } : {}, title));
  const header = columns.length ? [element("thead", {}, element("tr", {}, ...head))] : [];
  return element("table", { class: "figures" }, ...header, element("tbody", {}, ...lines));
}

const SIZE = { width: 360, height: 130, left: 44, right: 6, bottom: 20, top: 8 };

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/**
 * How far off an attacker is after each night.
 * @param {{kind: string, values: number[], words: string}[]} lines Metres; the kind is a class of the style sheet.
 */
export function nightsChart(lines) {
  const { width, height, left, right, bottom, top } = SIZE;
  const count = lines[0].values.length;
  const largest = Math.max(100, ...lines.flatMap(({ values }) => values));
  const x = (index) => left + ((width - left - right) * index) / Math.max(count - 1, 1);
  const y = (value) => height - bottom - ((height - bottom - top) * value) / largest;
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img" });
  chart.append(
    svg("title", {}, `How far off after each night: ${lines.map(({ words }) => words).join("; ")}`),
    ...[0, 0.5, 1].flatMap((share) => [
      svg("line", { class: "axis", x1: left, x2: width - right, y1: y(share * largest), y2: y(share * largest) }),
      svg("text", { x: left - 6, y: y(share * largest) + 4, "text-anchor": "end" }, metres(share * largest)),
    ]),
    svg("text", { x: left, y: height - 4 }, "night 1"),
    svg("text", { x: width - right, y: height - 4, "text-anchor": "end" }, `night ${count}`),
    ...lines.map(({ kind, values }) =>
      svg("path", { class: kind, d: values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("") }),
    ),
  );
  const keys = lines.map(({ kind, words }) => element("span", {}, element("i", { class: `key ${kind}` }), words));
  return element("figure", {}, chart, element("figcaption", {}, "Attacker's mean error: ", ...keys));
}
