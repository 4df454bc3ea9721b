/** What other intervals would give, by a plan: how far off the tracker is on the road, and where this bundle is. */

import { svg } from "./chart.js";
import { duration, element, every, metres, number } from "./words.js";

const SIZE = { width: 360, height: 190, left: 48, right: 40, bottom: 34, top: 10 };

const byId = (id) => document.getElementById(id);

/** The value at x of a line through points, linear between logarithms; null beyond its ends. */
function along(points, x) {
  const after = points.findIndex((point) => point[0] >= x);
  if (after < 0 || x < points[0][0]) return null;
  if (points[after][0] === x) return points[after][1];
  const [[x0, y0], [x1, y1]] = points.slice(after - 1, after + 1);
  return y0 * (y1 / y0) ** (Math.log(x / x0) / Math.log(x1 / x0));
}

const sorted = (values) => [...new Set(values)].sort((a, b) => a - b);

/** The error at each interval for some ε, between those of the plan too. @returns {[number, number][]} */
export function curveOf(schedules, epsilon) {
  return sorted(schedules.map((schedule) => schedule.interval_s)).flatMap((interval) => {
    const here = schedules.filter((schedule) => schedule.interval_s === interval).sort((a, b) => a.epsilon - b.epsilon);
    const error = along(here.map((schedule) => [schedule.epsilon, schedule.error_m]), epsilon); // prettier-ignore
    return error === null ? [] : [[interval, error]];
  });
}

/** The nearest value within the ends of a sorted list. */
const within = (values, value) => Math.min(Math.max(value, values[0]), values.at(-1));

/**
 * How far off the tracker is on the road by a plan. Beyond its ends, what the nearest end says is a bound: more ε and
 * shorter intervals bring a recipient nearer.
 * @returns {{error_m: number, bound: ""|"less than "|"more than "}|null} null: the plan tells nothing.
 */
export function onTheRoad({ schedules }, epsilon, interval) {
  const [epsilons, intervals] = ["epsilon", "interval_s"].map((name) => sorted(schedules.map((schedule) => schedule[name])));
  const [known, each] = [within(epsilons, epsilon), within(intervals, interval)];
  const less = epsilon > known || interval < each;
  const more = epsilon < known || interval > each;
  const error = along(curveOf(schedules, known), each);
  if (error === null || (less && more)) return null;
  return { error_m: error, bound: less ? "less than " : more ? "more than " : "" };
}

export class PlanView {
  constructor(state, overview) {
    this.overview = overview;
    this.state = state;
    state.on(["view", "a"], () => this.show());
  }

  show() {
    const { plan, bundles } = this.overview;
    const bundle = bundles.find(({ sha256 }) => sha256 === this.state.values.a);
    const shown = plan !== null && bundle.kind === "lattice";
    byId("plan").hidden = !shown;
    if (shown) byId("plan-chart").replaceChildren(...this.chart(plan, bundle));
  }

  chart({ schedules, without_m: without }, { epsilon, interval_s: interval }) {
    const { width, height, left, right, bottom, top } = SIZE;
    const intervals = sorted(schedules.map((schedule) => schedule.interval_s));
    const largest = Math.max(without, ...schedules.map((schedule) => schedule.error_m));
    const [first, last] = [Math.min(intervals[0], interval), Math.max(intervals.at(-1), interval, 1.01 * intervals[0])];
    const x = (value) => left + ((width - left - right) * Math.log(value / first)) / Math.log(last / first);
    const y = (value) => height - bottom - ((height - bottom - top) * value) / largest;
    const path = (points) => points.map(([at, value], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    const own = curveOf(schedules, epsilon);
    const here = along(own, interval);
    const hour = (epsilon * 3600) / interval;
    const alike = schedules.filter((other) => Math.abs(other.hour / hour - 1) < 0.02 && other.interval_s !== interval);
    const others = sorted(schedules.map((schedule) => schedule.epsilon)).filter((other) => other !== epsilon);
    const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart plan", role: "img" });
    const label = (points, text, kind) => svg("text", { x: x(points.at(-1)[0]) + 6, y: y(points.at(-1)[1]) + 4, class: kind }, text);
    chart.append(
      svg("title", {}, `Error on the road by how often one reports, for ε = ${epsilon}`),
      ...[0, 0.5, 1].flatMap((share) => [
        svg("line", { class: "axis", x1: left, x2: width - right, y1: y(share * largest), y2: y(share * largest) }),
        svg("text", { x: left - 6, y: y(share * largest) + 4, "text-anchor": "end" }, metres(share * largest)),
      ]),
      ...intervals.map((at) => svg("text", { x: x(at), y: height - bottom + 14, "text-anchor": "middle" }, duration(at))),
      svg("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, "from one report to the next"),
      svg("path", { class: "without", d: path([[first, without], [last, without]]) }),
      ...others.flatMap((other) => {
        const points = curveOf(schedules, other);
        return [svg("path", { class: "other", d: path(points) }), label(points, `ε = ${number(other)}`, "")];
      }),
      ...(own.length ? [svg("path", { class: "guess", d: path(own) }), label(own, `ε = ${number(epsilon)}`, "own")] : []),
      ...alike.map((other) => svg("circle", { class: "alike", cx: x(other.interval_s), cy: y(other.error_m), r: 5 })),
      ...(here === null ? [] : [svg("circle", { class: "here", cx: x(interval), cy: y(here), r: 6 })]),
    ); // prettier-ignore
    return [chart, element("figcaption", {}, ...this.words(here, { hour, interval, alike, without }))];
  }

  words(here, { hour, interval, alike, without }) {
    const often = `every ${every(interval)}`;
    return [
      here === null
        ? `The plan says nothing of this bundle's ε ${often}. `
        : `Dot: this bundle, ${often}: ${metres(here)} off on the road, and ${number(hour)} per km for an hour. `,
      alike.length ? "Rings: the same cost for an hour. " : "",
      `Dashes: without any report, ${metres(without)}.`,
    ];
  }
}
