// How long it takes to load a bundle and to report: `node bench.mjs FILE`. Wall time, and time of this process.

import { readFile } from "node:fs/promises";

import { Budget, Device, loadBundle } from "./src/index.js";

const REPORTS = 500;
const file = await readFile(process.argv[2]);

/** @param {() => Promise<unknown>} work @param {number} times */
async function measured(work, times) {
  const found = [];
  for (let index = 0; index < times; index += 1) {
    const [wall, used] = [performance.now(), process.cpuUsage()];
    await work();
    const { user, system } = process.cpuUsage(used);
    found.push({ wall: performance.now() - wall, used: (user + system) / 1000 });
  }
  /** @param {"wall" | "used"} kind */
  const sorted = (kind) => found.map((one) => one[kind]).sort((first, second) => first - second);
  const at = (values, share) => values[Math.min(Math.floor(share * values.length), values.length - 1)].toFixed(2);
  const [wall, used] = [sorted("wall"), sorted("used")];
  return `median ${at(wall, 0.5)} ms, 95 % ${at(wall, 0.95)} ms; of this process, median ${at(used, 0.5)} ms`;
}

const first = performance.now();
const bundle = await loadBundle(file);
console.log(`first load and verification: ${(performance.now() - first).toFixed(0)} ms`);
console.log(`load and verification: ${await measured(() => loadBundle(file), 5)}`);
const { plane } = bundle.lattice.spec;
const { side } = bundle.lattice;
const somewhere = () => plane.degrees(Math.random() * side, Math.random() * side);
for (const fences of [0, 3]) {
  const device = await Device.open(bundle, { budget: new Budget({ epsilon: 1e6, windowS: 86_400 }), replay: true });
  while (device.fences.all.length < fences) {
    // A place that another fence holds is refused.
    await device.addFence(...somewhere(), { radiusKm: 1, name: `place ${device.fences.all.length}` }).catch(() => {});
  }
  let time = Date.now() / 1000;
  const report = () => {
    time += bundle.intervalMs / 1000;
    return device.report(...somewhere(), time);
  };
  console.log(`report with ${fences} fences: ${await measured(report, REPORTS)}`);
}
