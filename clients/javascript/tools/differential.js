// Compare with what Python wrote to a file: `node tools/differential.js FILE`. A line has either a bundle, how Python refuses it,
// points and words with the cells to which they lead, and what is held; or a fence, the words that led to it, and positions.

import assert from "node:assert/strict";
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";

import { loadBundle } from "../src/bundle.js";
import { Fences, drawFence } from "../src/fences.js";
import { locationE7 } from "../src/plane.js";

let [lines, cases] = [0, 0];
for await (const line of createInterface({ input: createReadStream(process.argv[2]) })) {
  lines += 1;
  const made = JSON.parse(line);
  cases += made.bundle === undefined ? comparedFence(made) : await comparedBundle(made);
}
console.log(`${lines} bundles and fences, ${cases} cases: the same`);

/** @returns {Promise<number>} cases */
async function comparedBundle({ bundle: text, error, draws, holds }) {
  const bundle = await loadBundle(Buffer.from(text, "base64")).catch((raised) => raised.name);
  assert.equal(typeof bundle === "string" ? bundle : null, error, `line ${lines}: ${text}`);
  if (typeof bundle === "string") return 1;
  const { lattice } = bundle;
  for (const [lat, lon, word, cell, latE7, lonE7] of draws) {
    const point = lattice.spec.plane.unitOfE7(...locationE7(lat, lon));
    assert.equal(lattice.cellOf(...point, BigInt(word)), cell, `line ${lines}: ${lat} ${lon} ${word}`);
    assert.deepEqual(lattice.centerE7(cell), [latE7, lonE7]);
  }
  for (const [x, y, drawnX, drawnY, isHeld] of holds) {
    assert.equal(lattice.holds([x, y], [drawnX, drawnY]), isHeld, `line ${lines}: ${x} ${y} ${drawnX} ${drawnY}`);
  }
  return 1 + draws.length + holds.length;
}

/** @returns {number} cases */
function comparedFence({ name, place, radius_km: radiusKm, margin_m: marginM, words: texts, text, positions }) {
  const words = texts.map(BigInt).values();
  const fences = new Fences([drawFence(...place, { radiusKm, marginM, name }, () => words.next().value)]);
  assert.ok(words.next().done);
  assert.equal(fences.asJson(), text, `line ${lines}`);
  for (const [latE7, lonE7, ...counts] of positions) {
    const found = fences.applyE7(BigInt(latE7), BigInt(lonE7)).map(Number);
    assert.deepEqual(found, counts, `line ${lines}: ${latE7} ${lonE7}`);
  }
  return 1 + positions.length;
}
