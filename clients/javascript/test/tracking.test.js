// The tracker, against what Python's makes of the same reports.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { InputError, Tracker, loadBundle, loadMotionModel } from "../src/index.js";

const vectors = JSON.parse(await readFile(new URL("../conformance/tracking.json", import.meta.url), "utf8"));
const bytes = (text) => Uint8Array.from(Buffer.from(text, "base64"));

/** Singles are summed in another order: a metre, or a ring of 10 m. */
function assertNear({ lat, lon, radiusM }, [wantedLat, wantedLon, wantedRadius]) {
  assert.ok(Math.abs(lat - wantedLat) < 1e-5 && Math.abs(lon - wantedLon) < 1e-5, `${lat} ${lon}, ${wantedLat} ${wantedLon}`);
  assert.ok(Math.abs(radiusM - wantedRadius) < 11, `${radiusM}, ${wantedRadius}`);
}

for (const { name, bundle, model, reports } of vectors) {
  test(`tracking with ${name}`, async () => {
    const tracker = new Tracker(await loadBundle(bytes(bundle)), await loadMotionModel(bytes(model)));
    for (const { slot, cell, outcome, estimate, ahead } of reports) {
      const tracked = tracker.see("car", slot, cell);
      assert.equal(tracked.outcome, outcome);
      assertNear(tracked, estimate);
      assertNear(tracker.estimate("car", 3), ahead);
    }
    assert.throws(() => tracker.see("car", 1, -1), { name: "ParameterError" });
    assert.throws(() => tracker.estimate("another car"), { name: "ParameterError" });
    tracker.forget("car");
    assert.throws(() => tracker.estimate("car"), { name: "ParameterError" });
  });
}

test("a damaged model is refused", async () => {
  const whole = bytes(vectors[0].model);
  await assert.rejects(loadMotionModel(bytes(vectors[0].bundle)), InputError);
  for (let position = 0; position < whole.length; position += 97) {
    const changed = whole.slice();
    changed[position] ^= 4;
    await assert.rejects(loadMotionModel(changed), InputError);
  }
});
