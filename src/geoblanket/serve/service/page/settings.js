/** Settings: as sliders choose them, and as the address keeps them. No coordinate is ever part of either. */

const EPSILONS = [0.1, 20];
const FENCES_KM = [0.1, 10];
const INTERVALS_S = [10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 600, 900, 1200, 1800, 3600];
const HOLDS_M = [0, 25, 50, 100, 150, 200, 300, 500, 750, 1000];
const TOP = 1000;

const twoDigits = (value) => Number(value.toPrecision(2));
const clamp = (value, [low, high]) => Math.min(Math.max(value, low), high);

/** Positions of a slider on a logarithmic scale. */
const logarithmic = (range) => ({
  max: () => TOP,
  at: (value) => Math.round((TOP * Math.log(value / range[0])) / Math.log(range[1] / range[0])),
  value: (at) => clamp(twoDigits(range[0] * (range[1] / range[0]) ** (at / TOP)), range),
});

const nearest = (values, value) =>
  values.reduce((best, other, index) => (Math.abs(other - value) < Math.abs(values[best] - value) ? index : best), 0);
const listed = (values) => ({
  max: (setting) => values(setting).length - 1,
  at: (value, setting) => nearest(values(setting), value),
  value: (at, setting) => values(setting)[at],
});

/** The scale of each slider. At rest a report is held within its own mean error at most. */
export const SCALES = {
  epsilon: logarithmic(EPSILONS),
  interval_s: listed(() => INTERVALS_S),
  hold_m: listed(({ epsilon }) => HOLDS_M.filter((hold) => hold <= 2000 / epsilon)),
  fence_km: {
    max: () => TOP,
    at: (value) => (value === null ? 0 : Math.max(1, logarithmic(FENCES_KM).at(value))),
    value: (at) => (at === 0 ? null : logarithmic(FENCES_KM).value(at)),
  },
};

/** A setting whose numbers are possible together. */
export function possible({ epsilon, interval_s: interval, hold_m: hold, fence_km: fence }) {
  return {
    epsilon: clamp(epsilon, EPSILONS),
    interval_s: clamp(Math.round(interval), [10, 3600]),
    hold_m: hold <= 2000 / epsilon ? hold : SCALES.hold_m.value(SCALES.hold_m.max({ epsilon }), { epsilon }),
    fence_km: fence === null ? null : clamp(fence, FENCES_KM),
  };
}

const asText = ({ epsilon, interval_s: interval, hold_m: hold, fence_km: fence }) =>
  [epsilon, interval, hold, fence ?? 0].join(",");

function fromText(text) {
  const [epsilon, interval, hold, fence] = (text ?? "").split(",").map(Number);
  if (![epsilon, interval, hold, fence].every((value) => Number.isFinite(value) && value >= 0) || !epsilon) return null;
  return possible({ epsilon, interval_s: interval, hold_m: hold, fence_km: fence || null });
}

/** The address of a view with its settings. @param {{view: string, a: object, b: object|null}} state */
export const addressOf = ({ view, a, b }) => `#${view}?a=${asText(a)}${b ? `&b=${asText(b)}` : ""}`;

/** What an address asks for; null for what it leaves open, or what cannot be read. @param {string} hash */
export function readAddress(hash) {
  const [view, query] = hash.replace(/^#/, "").split("?");
  const asked = new URLSearchParams(query);
  return { view, a: fromText(asked.get("a")), b: fromText(asked.get("b")) };
}

/** A setting as the query of a page to hand on. */
export function queryOf({ fence_km: fence, ...setting }) {
  return new URLSearchParams({ ...setting, ...(fence === null ? {} : { fence_km: fence }) }).toString();
}
