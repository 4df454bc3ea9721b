/** A small chart of errors over the reports of a trip. */

import { element, metres } from "./words.js";

const SIZE = { width: 360, height: 150, left: 44, bottom: 22, top: 8 };

/** A new element of a drawing. */
function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** A path through the values, with gaps where there is none. */
function path(values, x, y) {
  let pen = "M";
  return values
    .map((value, index) => {
      const part = value === null ? "" : `${pen}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = value === null ? "M" : "L";
      return part;
    })
    .join("");
}

/**
 * @param {{kind: string, values: (number|null)[], words: string}[]} lines Errors in metres, one for each interval; the
 *   kind is a class of the style sheet.
 * @param {number} now The interval that is shown.
 * @param {{first: string, last: string, each: string}} words Labels of both ends, and the name of a point.
 */
export function errorChart(lines, now, words = { first: "first report", last: "last", each: "in each interval" }) {
  const { width, height, left, bottom, top } = SIZE;
  const count = lines[0].values.length;
  const largest = Math.max(100, ...lines.flatMap(({ values }) => values.filter((value) => value !== null)));
  const x = (index) => left + ((width - left - 4) * index) / Math.max(count - 1, 1);
  const y = (value) => height - bottom - ((height - bottom - top) * value) / largest;
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img" });
  chart.append(
    svg("title", {}, `How far off ${words.each}: ${lines.map(({ words }) => words).join("; ")}`),
    ...[0, 0.5, 1].flatMap((share) => [
      svg("line", { class: "axis", x1: left, x2: width - 4, y1: y(share * largest), y2: y(share * largest) }),
      svg("text", { x: left - 6, y: y(share * largest) + 4, "text-anchor": "end" }, metres(share * largest)),
    ]),
    svg("text", { x: left, y: height - 4 }, words.first),
    svg("text", { x: width - 4, y: height - 4, "text-anchor": "end" }, words.last),
    ...lines.map(({ kind, values }) => svg("path", { class: kind, d: path(values, x, y) })),
    svg("line", { class: "now", x1: x(now), x2: x(now), y1: top, y2: height - bottom }),
  );
  const keys = lines.map(({ kind, words }) => element("span", {}, element("i", { class: `key ${kind}` }), words));
  return [chart, element("figcaption", {}, `How far off, ${words.each}: `, ...keys)];
}
