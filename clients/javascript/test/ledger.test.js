// The durable budget: what is given out was stored before, and a store that is not right gives out nothing.

import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { webcrypto } from "node:crypto";
import { mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";

import { FileStore } from "../src/file_store.js";
import {
  Budget, Device, Ledger, LedgerError, LocalStorageStore, MemoryStore, MismatchError, ParameterError, PolicyError,
  loadBundle,
} from "../src/index.js";

const vectors = JSON.parse(await readFile(new URL("../conformance/bundles.json", import.meta.url), "utf8"));
const file = (name) => Buffer.from(vectors.find((vector) => vector.name === name).bundle, "base64");
const HELD = await loadBundle(file("odd frame, even cells")); // ε = 2 per km, held within 50 m
const PLAIN = await loadBundle(file("at the equator")); // ε = 1 per km, never held
const BUDGET = new Budget({ epsilon: 6, windowS: 3600 });
const HERE = [41.105, -8.595];

const systemNow = Date.now;
/** Set the wall clock; the clock that nobody can set goes on. */
function setClock(ms) {
  Date.now = () => ms;
}

let folder;
beforeEach(async () => { folder = await mkdtemp(join(tmpdir(), "geoblanket-")); });
afterEach(async () => {
  Date.now = systemNow;
  await rm(folder, { recursive: true });
});

async function newStore(store = new MemoryStore(), budget = BUDGET) {
  await Ledger.create(store, budget);
  return store;
}

test("a report is stored before it is given out, and found again after a restart", async () => {
  const store = await newStore(new FileStore(join(folder, "car.ledger")));
  const device = await Device.open(HELD, { store });
  const report = await device.report(...HERE, new Date(Date.now()), { request: "first" });
  assert.equal(report.left, 4);
  await device.close();
  const again = await Device.open(HELD, { store });
  assert.deepEqual(await again.report(...HERE, new Date(Date.now()), { request: "first" }), { ...report, stored: true });
  await again.close();
  assert.equal((await stat(join(folder, "car.ledger"))).mode & 0o777, 0o600);
  assert.deepEqual(await readdir(folder), ["car.ledger"]);
});

/** @returns {Promise<any>} what a store holds, without its checksum */
async function stateIn(store) {
  return JSON.parse((await store.read()).slice(65));
}

/** @returns {Promise<MemoryStore>} a store with this content, and the right checksum */
async function storeOf(content) {
  const digest = await webcrypto.subtle.digest("SHA-256", new TextEncoder().encode(content));
  const store = new MemoryStore();
  await store.swap(null, `${Buffer.from(digest).toString("hex")} ${content}`);
  return store;
}

/** @returns {Iterable<number>} times, one for each slot from now on, seconds */
function* slots() {
  for (let time = Math.floor(Date.now() / 1000); ; time += 30) yield time;
}

const METRE = 1 / 111_195;

test("at rest the last report is repeated at no cost, also after a restart; a move draws", async () => {
  const store = await newStore();
  const times = slots();
  const report = async (metresNorth, options = {}) => {
    const device = await Device.open(HELD, { store, ...options });
    const { cell, left, stored } = await device.report(HERE[0] + metresNorth * METRE, HERE[1], times.next().value);
    await device.close();
    assert.equal(stored, false);
    return { cell, left };
  };
  const first = await report(0);
  assert.equal(first.left, 4);
  for (const metres of [0, 30, -30, 40, 0]) assert.deepEqual(await report(metres), first);
  assert.equal((await report(70)).left, 2);
  assert.equal((await report(40)).left, 2); // held by where the last report was drawn, not by where it was repeated
  assert.equal((await report(0)).left, 0); // back again: a new draw
  const { reports, answers } = await stateIn(store);
  assert.equal(reports, 9);
  assert.deepEqual(answers.map(({ costMicro }) => costMicro / 1e6), [2, 0, 0, 0, 0, 0, 2, 0, 2]);
  await assert.rejects(report(900), { name: "RefusedError", reason: "budget" });
  assert.equal((await report(0)).left, 0); // what is held costs nothing, and needs no budget
});

test("a night at one place costs one report, though the window has moved on", async () => {
  setClock(Date.UTC(2026, 5, 1, 22));
  const store = new MemoryStore();
  await Ledger.create(store, new Budget({ epsilon: 2, windowS: 600 }), { replay: true });
  const device = await Device.open(HELD, { store, replay: true });
  const cells = new Set();
  for (let time = Date.now() / 1000; time < Date.now() / 1000 + 8 * 3600; time += 30) {
    cells.add((await device.report(...HERE, time)).cell);
  }
  const { reports, spentMicro } = await stateIn(store);
  assert.deepEqual([cells.size, reports, spentMicro], [1, 960, 2e6]);
});

test("where the last report was drawn is replaced by the next draw, and stays out of the store if asked for", async () => {
  const store = await newStore();
  const times = slots();
  const device = await Device.open(HELD, { store });
  await device.report(41.1051234, -8.5951234, times.next().value);
  assert.ok(!/411051234|41\.1051234|85951234|8\.5951234/.test(await store.read()));
  const { drawnAt } = await stateIn(store);
  assert.deepEqual(drawnAt.point, HELD.lattice.spec.plane.unitOfE7(411051234n, -85951234n));
  await device.report(HERE[0] + 500 * METRE, HERE[1], times.next().value);
  assert.notDeepEqual((await stateIn(store)).drawnAt.point, drawnAt.point);
  await device.close();
  const secretive = await Device.open(HELD, { store, holdInMemory: true });
  assert.equal((await stateIn(store)).drawnAt, null);
  assert.equal((await secretive.report(HERE[0] + 500 * METRE, HERE[1], times.next().value)).left, 0); // drawn after a restart
  assert.equal((await secretive.report(HERE[0] + 500 * METRE, HERE[1], times.next().value)).left, 0); // held in memory
  assert.equal((await stateIn(store)).drawnAt, null);
});

test("a report by another bundle in between ends a stay", async () => {
  const store = await newStore();
  const times = slots();
  const report = async (bundle, place = HERE) => {
    const device = await Device.open(bundle, { store });
    return (await device.report(...place, times.next().value)).left;
  };
  assert.deepEqual([await report(HELD), await report(HELD), await report(PLAIN)], [4, 4, 3]);
  assert.equal((await stateIn(store)).drawnAt, null); // a bundle that holds nothing leaves no point behind
  assert.equal(await report(HELD), 1);
});

test("in another frame the point of the last draw means nothing", async () => {
  const store = await newStore();
  const times = slots();
  const other = await loadBundle(file("even frame, odd cells")); // ε = 4 per km, the same corner, other units
  const corner = [41.1, -8.6];
  const left = [];
  for (const bundle of [HELD, HELD, other, other]) {
    const device = await Device.open(bundle, { store });
    left.push((await device.report(...corner, times.next().value)).left);
  }
  assert.deepEqual(left, [4, 4, 0, 0]);
});

test("fences stay with the store, are applied before anything else, and the place is not kept", async () => {
  const store = await newStore();
  const times = slots();
  const [lat, lon] = [41.1051234, -8.5951234];
  let device = await Device.open(HELD, { store });
  const fence = await device.addFence(lat, lon, { radiusKm: 0.4, marginM: 100 });
  assert.ok(!/411051234|41\.1051234|85951234|8\.5951234/.test(await store.read()));
  await assert.rejects(device.addFence(lat, lon, { radiusKm: 2, name: "again" }), ParameterError);
  const inside = await device.report(lat, lon, times.next().value);
  assert.deepEqual((await stateIn(store)).drawnAt.point, HELD.lattice.spec.plane.unitOfE7(BigInt(fence.latE7), BigInt(fence.lonE7)));
  await device.close();
  device = await Device.open(HELD, { store });
  // Wherever the vehicle is inside, it counts as the centre: held.
  const elsewhere = await device.report(fence.latE7 / 1e7 + 350 * METRE, fence.lonE7 / 1e7, times.next().value);
  assert.deepEqual([elsewhere.cell, elsewhere.left], [inside.cell, 4]);
  const copy = device.fences.asJson();
  await device.removeFence("home");
  assert.equal((await device.report(fence.latE7 / 1e7 + 350 * METRE, fence.lonE7 / 1e7, times.next().value)).left, 2);
  await device.close();
  device = await Device.open(HELD, { store });
  assert.equal(device.fences.all[0].active, false);
  assert.deepEqual({ ...(await device.addFence(lat, lon, { radiusKm: 2, name: "another" })) }, { ...fence });
  assert.equal(device.fences.asJson(), copy);
  const other = await Device.open(HELD, { budget: BUDGET });
  await other.importFences(copy);
  assert.deepEqual(other.fences.all, device.fences.all);
  await assert.rejects(other.importFences("{}"), ParameterError);
  await assert.rejects(other.removeFence("work"), ParameterError);
  assert.equal((await other.report(...HERE, times.next().value)).left, 4); // a refused change harms nothing
});

test("a ledger of version 0.2 is upgraded: what was spent stays, anchors go", async () => {
  const [slotMs, now] = [Math.floor(Date.now() / 30_000) * 30_000, Date.now()];
  const answer = { slotMs, costMicro: 5e6, cell: 7, latE7: 1, lonE7: 2, request: null, madeMs: 0 };
  const anchor = { slotMs, startsMs: slotMs, endsMs: slotMs + 3.6e6, costMicro: 2e6, frame: "f", shift: [12345678, 87654321] };
  const store = await storeOf(JSON.stringify({
    format: "geoblanket ledger 1", budget: { epsilon: 6, windowS: 3600, anchorEpsilon: 4 }, replay: false,
    clock: { passedMs: 0, latestWallMs: now, wallMs: now, run: "another", runMs: 0 }, session: "s",
    answers: [answer], anchors: [anchor], reports: 1, spentMicro: 5e6, anchorSpentMicro: 2e6, lastSlotMs: slotMs,
  }));
  const device = await Device.open(PLAIN, { store, budget: BUDGET });
  assert.ok(!/anchor|12345678/.test(await store.read()));
  assert.deepEqual(device.fences.all, []);
  assert.equal((await device.report(...HERE, slotMs / 1000)).cell, 7);
  assert.equal((await device.report(...HERE, slotMs / 1000 + 30)).left, 0);
  await assert.rejects(device.report(...HERE, slotMs / 1000 + 60), { reason: "budget" });
});

test("a budget that is spent stays so, whatever the clock is set to", async () => {
  setClock(Date.UTC(2026, 5, 1, 12));
  const store = await newStore(new MemoryStore(), new Budget({ epsilon: 3, windowS: 3600 }));
  const device = await Device.open(PLAIN, { store });
  for (const minute of [0, 1, 2]) await device.report(...HERE, Date.UTC(2026, 5, 1, 12, minute) / 1000);
  await assert.rejects(device.report(...HERE, Date.UTC(2026, 5, 1, 12, 3) / 1000), { name: "RefusedError", reason: "budget" });
  // Set forward by ten hours: the clock that nobody can set knows better.
  setClock(Date.UTC(2026, 5, 1, 22));
  await assert.rejects(device.report(...HERE, new Date(Date.now())), { name: "RefusedError", reason: "budget" });
  await device.close();
  const later = await Device.open(PLAIN, { store });
  await assert.rejects(later.report(...HERE, new Date(Date.now())), { reason: "budget" });
});

test("time that passes between two runs counts by the wall clock", async () => {
  setClock(Date.UTC(2026, 5, 1, 12));
  const store = await newStore();
  const device = await Device.open(PLAIN, { store });
  for (let minute = 0; minute < 6; minute += 1) await device.report(...HERE, Date.UTC(2026, 5, 1, 12, minute) / 1000);
  await device.close();
  // As another page or process would have left it.
  const content = (await store.read()).slice(65).replace(/"run":"[0-9a-f]+"/, '"run":"another"');
  setClock(Date.UTC(2026, 5, 1, 12, 30));
  const early = await Device.open(PLAIN, { store: await storeOf(content) });
  await assert.rejects(early.report(...HERE, new Date(Date.now())), { reason: "budget" });
  setClock(Date.UTC(2026, 5, 1, 13, 30));
  const late = await Device.open(PLAIN, { store: await storeOf(content) });
  assert.equal((await late.report(...HERE, new Date(Date.now()))).left, 5);
});

test("reports that are asked for at once are made one after the other", async () => {
  const device = await Device.open(PLAIN, { budget: BUDGET });
  const now = Date.now() / 1000;
  const outcomes = await Promise.allSettled(Array.from({ length: 9 }, (_, index) => device.report(...HERE, now + 30 * index)));
  assert.deepEqual(outcomes.map(({ status }) => status === "fulfilled"), [...Array(6).fill(true), ...Array(3).fill(false)]);
});

test("a damaged, missing or exchanged ledger gives out nothing", async () => {
  const path = join(folder, "car.ledger");
  await assert.rejects(Device.open(PLAIN, { store: new FileStore(path) }), LedgerError);
  assert.deepEqual(await readdir(folder), []);
  const store = await newStore(new FileStore(path));
  await assert.rejects(Ledger.create(store, BUDGET), LedgerError);
  const device = await Device.open(PLAIN, { store });
  await device.report(...HERE, new Date(Date.now()));
  await device.close();
  const whole = await readFile(path, "utf8");
  for (let position = 0; position < whole.length; position += 3) {
    const changed = whole.slice(0, position) + String.fromCharCode(whole.charCodeAt(position) ^ 1) + whole.slice(position + 1);
    const damaged = new MemoryStore();
    await damaged.swap(null, changed);
    await assert.rejects(Device.open(PLAIN, { store: damaged }), LedgerError);
  }
  await writeFile(path, "");
  await assert.rejects(Device.open(PLAIN, { store }), LedgerError);
});

test("an edited ledger whose checksum was made right must still add up", async () => {
  const store = await newStore();
  const device = await Device.open(HELD, { store });
  const times = slots();
  for (let index = 0; index < 2; index += 1) await device.report(HERE[0] + index * 500 * METRE, HERE[1], times.next().value);
  await device.addFence(...HERE, { radiusKm: 1 });
  const content = (await store.read()).slice(65);
  assert.equal((await Device.open(HELD, { store: await storeOf(content) })).fences.all.length, 1);
  const edits = [
    (state) => { state.reports = 0; }, (state) => { state.spentMicro = 0; }, (state) => { state.answers = []; },
    (state) => { state.answers[0].costMicro = -1; }, (state) => { state.lastSlotMs = 5; }, (state) => { state.format = "3"; },
    (state) => { state.budget.epsilon = "6"; }, (state) => { delete state.clock; }, (state) => { delete state.fences; },
    (state) => { state.fences = state.fences.replace("true", "1"); }, (state) => { state.fences = "[]"; },
    (state) => { delete state.drawnAt; }, (state) => { state.drawnAt.point = [1.5, 2]; }, (state) => { state.drawnAt.point = [1]; },
    (state) => { state.drawnAt.slotMs = state.answers[0].slotMs; }, (state) => { state.drawnAt.slotMs += 30_000; },
  ];
  for (const edit of edits) {
    const state = JSON.parse(content);
    edit(state);
    const other = await storeOf(JSON.stringify(state));
    await assert.rejects(Device.open(HELD, { store: other }), LedgerError, String(edit));
  }
});

test("nothing is given out that could not be stored, then or later", async () => {
  const store = await newStore();
  const device = await Device.open(PLAIN, { store });
  const swap = store.swap.bind(store);
  store.swap = () => Promise.reject(new Error("the disk is full"));
  await assert.rejects(device.report(...HERE, new Date(Date.now())), LedgerError);
  store.swap = swap;
  await assert.rejects(device.report(...HERE, new Date(Date.now())), LedgerError);
});

test("two devices on one store cannot spend the same budget twice", async () => {
  const store = await newStore();
  const [first, second] = [await Device.open(PLAIN, { store }), await Device.open(PLAIN, { store })];
  await assert.rejects(first.report(...HERE, new Date(Date.now())), LedgerError);
  assert.equal((await second.report(...HERE, new Date(Date.now()))).left, 5);
});

test("a file is for one process at a time, and a process that is gone does not keep it", async () => {
  const path = join(folder, "car.ledger");
  const store = await newStore(new FileStore(path));
  const device = await Device.open(PLAIN, { store });
  await assert.rejects(Device.open(PLAIN, { store: new FileStore(path) }), /in use/);
  await device.close();
  await store.close();
  // The number of a process that is gone, or that now belongs to another process.
  for (const gone of ["999999999-1-a", ...(process.platform === "linux" ? [`${process.pid}-1-a`] : [])]) {
    await mkdir(`${path}.lock/${gone}`, { recursive: true });
    await writeFile(`${path}.lock/${gone}/new`, "half a te");
    const again = await Device.open(PLAIN, { store: new FileStore(path) });
    await again.close();
  }
  await mkdir(`${path}.lock.999999999-1-a/999999999-1-a`, { recursive: true }); // killed before it had the lock
  await mkdir(`${path}.lock`); // killed while it unlocked
  await (await Device.open(PLAIN, { store: new FileStore(path) })).close();
  await writeFile(`${path}.lock`, "999999999");
  await assert.rejects(Device.open(PLAIN, { store: new FileStore(path) }), /older version/);
  assert.deepEqual(await readdir(folder), ["car.ledger", "car.ledger.lock"]);
});

test("a process that is killed loses no spend and counts none twice", { timeout: 120_000 }, async () => {
  const path = join(folder, "car.ledger");
  const store = await newStore(new FileStore(path), new Budget({ epsilon: 1e6, windowS: 1e6 }));
  await store.close();
  const released = new Map();
  for (let round = 0; round < 12; round += 1) {
    const child = fork(new URL("../tools/reporting_child.js", import.meta.url), [path, String(round)], { stdio: "pipe" });
    child.on("message", ({ slot, cell }) => {
      assert.ok(!released.has(slot));
      released.set(slot, cell);
    });
    await new Promise((resolve) => {
      const target = released.size + 1 + round;
      const timer = setInterval(() => { if (released.size >= target) child.kill("SIGKILL"); }, 1);
      child.on("exit", () => { clearInterval(timer); resolve(undefined); });
    });
  }
  const state = JSON.parse((await readFile(path, "utf8")).slice(65));
  const stored = new Map(state.answers.map((answer) => [answer.slotMs / PLAIN.intervalMs, answer.cell]));
  for (const [slot, cell] of released) assert.equal(stored.get(slot), cell);
  assert.equal(state.spentMicro, 1e6 * stored.size);
  assert.ok(stored.size - released.size <= 12); // stored, and killed before it was told
});

test("localStorage keeps a ledger", async () => {
  const kept = new Map();
  globalThis.localStorage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, text) };
  try {
    const store = await newStore(new LocalStorageStore("car"));
    const device = await Device.open(PLAIN, { store });
    assert.equal((await device.report(...HERE, new Date(Date.now()))).left, 5);
    await device.close();
    const again = await Device.open(PLAIN, { store: new LocalStorageStore("car") });
    assert.equal((await again.report(...HERE, new Date(Date.now()))).stored, true);
  } finally {
    delete globalThis.localStorage;
  }
});

test("inputs, budgets and policies are checked", async () => {
  const device = await Device.open(HELD, { budget: BUDGET });
  const now = new Date(Date.now());
  for (const [lat, lon, time] of [
    ["41", -8, now], [NaN, 0, now], [41, Infinity, now], [90.1, 0, now], [0, -180.1, now], [null, 0, now], [41, -8, "now"],
    [41, -8, Date.now()], [41, -8, NaN], [41, -8, new Date(NaN)], [41, -8, Date.now() / 1000 + 90_000],
    [41, -8, Date.now() / 1000 - 90_000],
  ]) {
    await assert.rejects(device.report(lat, lon, time), (error) => {
      assert.ok(error instanceof ParameterError);
      assert.ok(!error.message.includes("41") && !error.message.includes("-8"));
      return true;
    });
  }
  for (const epsilon of [0, -1, NaN, "4", 1e10]) assert.throws(() => new Budget({ epsilon, windowS: 60 }), ParameterError);
  assert.equal(new Budget({ epsilon: 1.1, windowS: 0.0305 }).windowMs, 31);
  await assert.rejects(Device.open(HELD, { budget: new Budget({ epsilon: 1.9, windowS: 60 }) }), ParameterError);
  await assert.rejects(Device.open(HELD, { budget: new Budget({ epsilon: 9, windowS: 10 }) }), ParameterError);
  await assert.rejects(Device.open(HELD, {}), ParameterError);
  await assert.rejects(Device.open(HELD, { budget: BUDGET, policy: { largestEpsilon: 1 } }), PolicyError);
  await assert.rejects(Device.open(file("kilometres"), { budget: BUDGET }), /rounds a coordinate by up to 707/);
  await Device.open(file("kilometres"), { budget: BUDGET, policy: { largestRoundingM: 708 } });
  await assert.rejects(Device.open(HELD, { budget: BUDGET, policy: { largestRoundingM: NaN } }), ParameterError);
  await assert.rejects(Device.open(file("millimetres"), { budget: new Budget({ epsilon: 900, windowS: 60 }) }), PolicyError);
  const store = await newStore();
  await assert.rejects(Device.open(HELD, { store, budget: new Budget({ epsilon: 7, windowS: 3600 }) }), MismatchError);
  await assert.rejects(Device.open(HELD, { store, replay: true }), MismatchError);
});

test("a warning is for the driver", async () => {
  const device = await Device.open(HELD, { budget: BUDGET });
  assert.equal(device.warningFor(...HERE), null);
  assert.match(device.warningFor(0, 0), /without a fix/);
  assert.match(device.warningFor(HERE[1], HERE[0]), /exchanged/);
  assert.match(device.warningFor(50, 8), /outside/);
  assert.ok((await device.report(50, 8, new Date(Date.now()))).cell >= 0);
});

test("words are random", async () => {
  const counts = new Map();
  for (let index = 0; index < 200; index += 1) {
    const device = await Device.open(HELD, { budget: BUDGET });
    const { cell } = await device.report(...HERE, new Date(Date.now()));
    counts.set(cell, (counts.get(cell) ?? 0) + 1);
  }
  assert.ok(counts.size > 100);
});
