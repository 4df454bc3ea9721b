// Compare with what Python wrote to a file: `node tools/differential.js FILE`. Each line has a bundle, how Python refuses it,
// and points and words with the cells to which they lead.

import assert from "node:assert/strict";
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";

import { ShiftDrawing } from "../src/anchor.js";
import { loadBundle } from "../src/bundle.js";
import { locationE7 } from "../src/plane.js";

let [bundles, cases] = [0, 0];
for await (const line of createInterface({ input: createReadStream(process.argv[2]) })) {
  const { bundle: text, error, draws, shifts } = JSON.parse(line);
  const bundle = await loadBundle(Buffer.from(text, "base64")).catch((raised) => raised.name);
  assert.equal(typeof bundle === "string" ? bundle : null, error, `bundle ${bundles}: ${text}`);
  bundles += 1;
  cases += 1;
  if (typeof bundle === "string") continue;
  const { lattice, anchor } = bundle;
  for (const [lat, lon, word, cell, latE7, lonE7] of draws) {
    const point = lattice.spec.plane.unitOfE7(...locationE7(lat, lon));
    assert.equal(lattice.cellOf(...point, BigInt(word)), cell, `bundle ${bundles}: ${lat} ${lon} ${word}`);
    assert.deepEqual(lattice.centerE7(cell), [latE7, lonE7]);
  }
  cases += draws.length;
  if (shifts === null) continue;
  const words = shifts.words.map(BigInt).values();
  const drawing = new ShiftDrawing(anchor, lattice.spec.plane.side);
  for (const shift of shifts.drawn) assert.deepEqual(drawing.draw(() => words.next().value), shift);
  assert.ok(words.next().done);
  cases += shifts.drawn.length;
}
console.log(`${bundles} bundles, ${cases} cases: the same`);
