// How often the best guess between two locations is right after one report: never below the truth. The proof stands in the
// Python package, `mechanism/lattice/loss_curve.py`, whose names are used here. Doubles are exact enough: FLOATS is added.

const REACH = 10.5;
const ADDED = 5e-4;
const SMALL = 0.05;
const LARGEST = 40;
const LOSSES = 31;
const FLOATS = 1e-9;
const TOTAL = 2 ** 62;
const SINK_BASE = 2 ** 44;

/**
 * Return how often the best guess is right, with even odds: 0.5 is chance.
 *
 * @param {import("./lattice.js").LatticeSpec} spec
 * @param {number} apartM how far apart the two locations are at most, metres
 */
export function rightAfterOneReport(spec, apartM) {
  const { plane, multipliers } = spec;
  const [h, rate, floor, unitMm, side] = [spec.cellUnits, spec.rate, spec.floor, plane.unitMm, plane.side].map(Number);
  const distance = (1000 * apartM + 2 * Number(plane.roundingMm)) / unitMm;
  const pure = (Number(spec.epsilonMicro) * unitMm * distance) / 1e12;
  if (pure > LARGEST) return 1;
  const a = (Math.LN2 * rate) / 2 ** 33;
  const theta = (Math.LN2 * (rate / 2 ** 20 + 1)) / 2 ** 24;
  const [smallest, largest] = [multipliers.reduce((x, y) => Math.min(x, y)), multipliers.reduce((x, y) => Math.max(x, y))];
  const k = Math.log(smallest / largest) - theta - 1 / floor - 2 ** -27 - FLOATS;
  const top = ((largest * 2 ** (31 - Number(spec.shift))) / TOTAL) * Math.exp(theta);
  const count = Math.min(LOSSES, Math.floor(pure / -k / 2 - 0.5));
  if (count < 1) return 1 / (1 + Math.exp(-pure));
  const losses = Array.from({ length: count }, (_, i) => ((2 * i + 1) * pure) / (2 * count + 1));
  const { net, added, sharp } = netOf(a, h, distance);
  const reach = Math.min(REACH / a, side / 2 - h);
  const near = cellsWithin(reach, h);
  let bent = 0;
  for (const [x, y] of near) {
    const r = Math.hypot(Math.max(Math.abs(x) - h / 2, 0), Math.max(Math.abs(y) - h / 2, 0));
    bent += Math.exp(-a * r) * Math.min(sharp ** 2 / 4 / Math.max(r, 1e-9), sharp / Math.SQRT2);
  }
  const from = Math.max(a * (reach - Math.SQRT2 * h), 0);
  const far = (Math.exp((a * h) / Math.SQRT2 - from) * 2 * Math.PI * (1 + from)) / (a * h) ** 2;
  const share = top * far + (floor * (side / h) ** 2 + 2 * SINK_BASE) / TOTAL;
  const sums = largestSums(near, a, net, losses.map((loss) => loss + k));
  const deltas = losses.map((loss, i) => {
    const here = top * sums[i] + added * Math.exp(-k) + top * a * bent + Math.min(share, 1) * -Math.expm1(loss - pure);
    // The line from the curve's mirror image, at −loss, to this point bounds it at even odds.
    return (2 * Math.min(here * (1 + FLOATS), 1) + Math.expm1(loss)) / (Math.exp(loss) + 1);
  });
  return (1 + Math.min(...deltas, Math.tanh(pure / 2))) / 2;
}

/** Return the positions and moves that are tried, what leaving out the others adds, and the distance of the positions. */
function netOf(a, h, distance) {
  const allowed = ADDED * Math.max(a * distance, SMALL);
  const corners = 8 * Math.ceil(Math.PI / Math.atan(Math.sqrt(2 * allowed) / (a * distance)) / 8);
  const steps = Math.ceil(((a * h) / 2) * Math.sqrt(0.45 / allowed));
  const [sharp, edge] = [h / 2 / steps, a * distance * Math.tan(Math.PI / corners)];
  const added = (edge ** 2 / 2) * Math.exp(2 * edge) + ((a * sharp) ** 2 / 8) * Math.exp(Math.SQRT2 * a * sharp);
  const radius = distance / Math.cos(Math.PI / corners);
  const moves = Array.from({ length: corners }, (_, j) => ((2 * j + 1) * Math.PI) / corners).map((angle) => [
    radius * Math.cos(angle),
    radius * Math.sin(angle),
  ]);
  const positions = Array.from({ length: steps + 1 }, (_, i) => i).flatMap((i) =>
    Array.from({ length: i + 1 }, (_, j) => [i * sharp, j * sharp]),
  );
  return { net: { positions, moves }, added, sharp };
}

/** Return the centres of the cells within a distance of a cell's centre. */
function cellsWithin(reach, h) {
  const most = Math.floor(reach / h);
  const axis = Array.from({ length: 2 * most + 1 }, (_, i) => (i - most) * h);
  return axis.flatMap((y) => axis.map((x) => [x, y])).filter(([x, y]) => Math.hypot(x, y) <= reach);
}

/** Return Σ max(0, p − e^bound·q) for each bound, the largest over positions and moves; bounds are evenly spaced. */
function largestSums(near, a, { positions, moves }, bounds) {
  const [lowest, last] = [bounds[0], bounds.length - 1];
  const perStep = last > 0 ? last / (bounds[last] - lowest) : 0;
  const [xs, ys, rs, ps] = [0, 0, 0, 0].map(() => new Float64Array(near.length));
  const largest = new Float64Array(bounds.length);
  for (const [east, north] of positions) {
    near.forEach(([x, y], i) => {
      [xs[i], ys[i]] = [x - east, y - north];
      rs[i] = Math.sqrt(xs[i] ** 2 + ys[i] ** 2);
      ps[i] = Math.exp(-a * rs[i]);
    });
    for (const [moveX, moveY] of moves) {
      const [p, q] = [new Float64Array(bounds.length), new Float64Array(bounds.length)];
      for (let i = 0; i < near.length; i += 1) {
        const dx = xs[i] - moveX;
        const dy = ys[i] - moveY;
        const loss = a * (Math.sqrt(dx * dx + dy * dy) - rs[i]);
        if (loss > lowest) {
          const bin = Math.min(Math.floor((loss - lowest) * perStep), last);
          p[bin] += ps[i];
          q[bin] += ps[i] * Math.exp(-loss);
        }
      }
      for (let bin = last, pAbove = 0, qAbove = 0; bin >= 0; bin -= 1) {
        pAbove += p[bin];
        qAbove += q[bin];
        largest[bin] = Math.max(largest[bin], pAbove - Math.exp(bounds[bin]) * qAbove);
      }
    }
  }
  return largest;
}
