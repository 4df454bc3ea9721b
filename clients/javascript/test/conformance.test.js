// The committed vectors, which Python made.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { Budget } from "../src/budget.js";
import { loadBundle } from "../src/bundle.js";
import { Device } from "../src/device.js";
import { GeoblanketError, InputError } from "../src/errors.js";
import { Fences, drawFence, pointInDisc } from "../src/fences.js";
import { COARSE, FINE } from "../src/kernel.js";
import { Ledger } from "../src/ledger.js";
import { locationE7 } from "../src/plane.js";
import { MemoryStore } from "../src/stores.js";
import { sha256 } from "../src/system.js";

const FOLDER = new URL("../conformance/", import.meta.url);
const bundles = JSON.parse(await readFile(new URL("bundles.json", FOLDER), "utf8"));
const refusals = JSON.parse(await readFile(new URL("refusals.json", FOLDER), "utf8"));

const fences = JSON.parse(await readFile(new URL("fences.json", FOLDER), "utf8"));

const bytes = (text) => Uint8Array.from(Buffer.from(text, "base64"));

/** Give words one by one; there are exactly as many as are needed. */
function wordsFrom(texts) {
  let taken = 0;
  const words = () => {
    assert.ok(taken < texts.length, "more words are taken than in Python");
    taken += 1;
    return BigInt(texts[taken - 1]);
  };
  return { words, left: () => texts.length - taken };
}

for (const vector of bundles) {
  const bundle = await loadBundle(bytes(vector.bundle));
  const { lattice } = bundle;
  const { plane } = lattice.spec;

  test(`${vector.name}: header and plane`, () => {
    const { sha256, domain, version, intervalMs } = bundle;
    assert.deepEqual(
      [sha256, domain, version, intervalMs, Number(lattice.spec.epsilonMicro), lattice.cells, bundle.holdM],
      [vector.sha256, vector.domain, vector.version, vector.interval_ms, vector.epsilon_micro, vector.cells, vector.hold_m],
    );
    const { north_scale, east_scale, north_e7, width_e7, rounding_mm } = vector.plane;
    assert.deepEqual(
      [plane.northScale, plane.eastScale, plane.northE7, plane.widthE7, plane.roundingMm],
      [north_scale, east_scale, north_e7, width_e7, rounding_mm].map(BigInt),
    );
  });

  test(`${vector.name}: how sure anyone can be`, () => {
    assert.equal(bundle.certain, vector.certain);
    assert.ok(bundle.guarantee.startsWith(vector.certain));
  });

  test(`${vector.name}: coordinates, cells and centres`, () => {
    for (const [lat, lon, x, y] of vector.units) assert.deepEqual(plane.unitOfE7(...locationE7(lat, lon)), [x, y]);
    for (const [x, y, word, cell] of vector.draws) assert.equal(lattice.cellOf(x, y, BigInt(word)), cell);
    for (const [cell, latE7, lonE7] of vector.centers) assert.deepEqual(lattice.centerE7(cell), [latE7, lonE7]);
  });

  test(`${vector.name}: what is held`, () => {
    for (const [x, y, drawnX, drawnY, isHeld] of vector.holds) assert.equal(lattice.holds([x, y], [drawnX, drawnY]), isHeld);
  });

  for (const [number, conversation] of vector.conversations.entries()) {
    test(`${vector.name}: conversation ${number + 1} with a device`, async () => {
      const budget = new Budget(conversation.budget);
      for (const name of ["micro", "windowMs"]) assert.equal(budget[name], conversation.budget[name]);
      const store = new MemoryStore();
      await Ledger.create(store, budget, { replay: true });
      const { words, left } = wordsFrom(conversation.words);
      let device = new Device(bundle, await Ledger.open(store, { replay: true }), { words });
      await device.importFences(conversation.fences);
      for (const [index, { lat, lon, time, request, answer }] of conversation.steps.entries()) {
        if (index % 5 === 4) device = new Device(bundle, await Ledger.open(store, { replay: true }), { words });
        const given = await device.report(lat, lon, time, { request }).catch((error) => {
          assert.ok(error instanceof GeoblanketError, error);
          return { error: error.name, reason: error.reason ?? null };
        });
        if (given.time) assert.equal(Date.parse(given.time), Date.parse(answer.time));
        assert.deepEqual({ ...given, time: answer.time }, { time: undefined, ...answer });
      }
      assert.equal(left(), 0);
    });
  }
}

test("hostile files are refused, each for the same kind of reason", async () => {
  assert.ok(refusals.length > 150);
  for (const { name, bundle, error } of refusals) {
    await assert.rejects(loadBundle(bytes(bundle)), (raised) => raised.name === error, name);
  }
});

test("a bundle with anchors is refused with what to run", async () => {
  const { bundle } = refusals.find(({ name }) => name === "lattice: format 1 with an anchor");
  await assert.rejects(loadBundle(bytes(bundle)), /of version 0\.2, whose anchors average out.*`geoblanket lattice`, in seconds/);
});

/** Assert what positions count as, 1e-7 degrees. */
function assertApplied(some, positions) {
  for (const [latE7, lonE7, ...counts] of positions) {
    assert.deepEqual(some.applyE7(BigInt(latE7), BigInt(lonE7)).map(Number), counts);
  }
}

for (const { name, place, radius_km: radiusKm, margin_m: marginM, words: texts, text, positions } of fences.drawn) {
  test(`a fence: ${name}`, () => {
    const { words, left } = wordsFrom(texts);
    const drawn = new Fences([drawFence(...place, { radiusKm, marginM, name }, words)]);
    assert.equal(left(), 0);
    assert.equal(drawn.asJson(), text);
    assertApplied(drawn, positions);
  });
}

test("centres are drawn evenly: by all words on a small disc, and as in Python", () => {
  const counts = new Map();
  for (let first = 0n; first < 8n; first += 1n) {
    for (let second = 0n; second < 8n; second += 1n) {
      const words = [first << 59n, second << 59n].values(); // 3 bits are used
      const next = () => words.next().value ?? assert.fail("no more words");
      try {
        const point = String(pointInDisc(2n, next));
        counts.set(point, (counts.get(point) ?? 0) + 1);
      } catch (error) {
        if (!(error instanceof assert.AssertionError)) throw error; // drawn again
      }
    }
  }
  assert.equal(counts.size, 13);
  assert.deepEqual(new Set(counts.values()), new Set([1]));
  for (const { reach, words: texts, points } of fences.discs) {
    const { words, left } = wordsFrom(texts);
    for (const point of points) assert.deepEqual(pointInDisc(BigInt(reach), words).map(Number), point);
    assert.equal(left(), 0);
  }
});

test("fences that overlap: the first in use counts", () => {
  const some = Fences.parsed(fences.overlapping.text);
  assert.deepEqual(some.all.map(({ active }) => active), [false, true, true, true, true]);
  assertApplied(some, fences.overlapping.positions);
});

test("fences are added, removed, imported and refused as in Python", () => {
  let some = new Fences();
  for (const step of fences.changes) {
    const { words, left } = wordsFrom(step.words);
    const options = { radiusKm: step.radius_km, marginM: step.margin_m, name: step.name };
    const change = {
      add: () => some.withPlace(...step.place, options, words)[0],
      remove: () => some.without(step.name),
      import: () => some.withAll(Fences.parsed(step.content)),
    }[step.do];
    if (step.error === null) some = change();
    else assert.throws(change, { name: step.error });
    assert.equal(some.asJson(), step.text);
    assert.equal(left(), 0);
  }
});

test("texts of fences are read strictly", () => {
  for (const { text, again } of fences.taken) assert.equal(Fences.parsed(text).asJson(), again);
  for (const text of [...fences.refused, undefined, null, 5, " ".repeat(1 << 16) + fences.taken[0].text]) {
    assert.throws(() => Fences.parsed(text), (error) => {
      assert.equal(error.name, "ParameterError", String(text).slice(0, 200));
      return !error.message.includes("450093342");
    });
  }
});

test("every flipped bit is noticed", async () => {
  const whole = bytes(bundles[1].bundle);
  for (let position = 0; position < whole.length; position += 1) {
    const changed = whole.slice();
    changed[position] ^= 1 << position % 8;
    await assert.rejects(loadBundle(changed), InputError);
  }
});

test("tables of powers are those of the specification", async () => {
  const specification = await readFile(new URL("../../../docs/bundle-format.md", import.meta.url), "utf8");
  for (const table of [COARSE, FINE]) {
    const entries = BigInt64Array.from(table, BigInt);
    assert.ok(specification.includes(await sha256(new Uint8Array(entries.buffer))));
  }
});

test("a signature is checked where a key is given", async () => {
  const { bundle, public_key: publicKey, signature } = JSON.parse(await readFile(new URL("signature.json", FOLDER), "utf8"));
  const [file, right] = [bytes(bundle), bytes(signature)];
  await loadBundle(file, { publicKey, signature: right });
  const wrong = right.slice();
  wrong[5] ^= 1;
  for (const other of [wrong, right.slice(1), undefined]) {
    await assert.rejects(loadBundle(file, { publicKey, signature: other }), InputError);
  }
  await assert.rejects(loadBundle(bytes(bundles[1].bundle), { publicKey, signature: right }), InputError);
  for (const key of ["", "a key", publicKey.replace("MCow", "MCox")]) {
    await assert.rejects(loadBundle(file, { publicKey: key, signature: right }), InputError);
  }
});

test("what is asked for of a bundle is checked", async () => {
  const file = bytes(bundles[0].bundle);
  await loadBundle(file, { domain: bundles[0].domain, minimumVersion: 7 });
  await assert.rejects(loadBundle(file, { minimumVersion: 8 }), InputError);
  await assert.rejects(loadBundle(file, { domain: "0".repeat(64) }), { name: "MismatchError" });
});
