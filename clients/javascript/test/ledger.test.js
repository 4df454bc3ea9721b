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
const ANCHORED = await loadBundle(file("odd frame, even cells")); // ε = 2 per km, ε₀ = 2 per km in an hour
const PLAIN = await loadBundle(file("at the equator")); // ε = 1 per km, no anchor
const BUDGET = new Budget({ epsilon: 6, windowS: 3600, anchorEpsilon: 4 });
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
  const device = await Device.open(ANCHORED, { store });
  const report = await device.report(...HERE, new Date(Date.now()), { request: "first" });
  assert.equal(report.left, 4);
  await device.close();
  const again = await Device.open(ANCHORED, { store });
  assert.deepEqual(await again.report(...HERE, new Date(Date.now()), { request: "first" }), { ...report, stored: true });
  await again.close();
  assert.equal((await stat(join(folder, "car.ledger"))).mode & 0o777, 0o600);
  assert.deepEqual(await readdir(folder), ["car.ledger"]);
});

test("no true location is stored, and the shift only until a report of a later period", async () => {
  setClock(Date.UTC(2026, 5, 1, 12, 30));
  const store = await newStore();
  const device = await Device.open(ANCHORED, { store });
  await device.report(41.1051234, -8.5951234, new Date(Date.now()));
  const text = await store.read();
  assert.ok(!/411051234|41\.1051234|85951234|8\.5951234/.test(text));
  assert.match(text, /"shift":\[\d+,\d+\]/);
  setClock(Date.UTC(2026, 5, 1, 13, 5));
  await device.report(...HERE, new Date(Date.now()));
  const shifts = (await store.read()).match(/"shift":(null|\[)/g);
  assert.deepEqual(shifts, ['"shift":null', '"shift":[']);
});

test("late reports share the anchor of their period, whatever is restarted and whatever the clock showed", async () => {
  setClock(Date.UTC(2026, 5, 1, 12, 1));
  const store = await newStore(new MemoryStore(), new Budget({ epsilon: 100, windowS: 3600, anchorEpsilon: 100 }));
  // Orderly restarts after the period, one with a clock that is two days ahead.
  for (const [minute, ...clock] of [[1, 1, 12, 1], [2, 1, 13, 5], [3, 3, 13, 5], [4, 1, 20, 0], [5, 2, 11, 0]]) {
    setClock(Date.UTC(2026, 5, ...clock));
    const device = await Device.open(ANCHORED, { store, clockToleranceS: 86_400 });
    const late = device.report(...HERE, Date.UTC(2026, 5, 1, 12, minute) / 1000);
    if (clock[0] === 3) await assert.rejects(late, ParameterError);
    else await late;
    await device.close();
  }
  const { reports, anchors } = JSON.parse((await store.read()).slice(65));
  assert.equal(reports, 4);
  assert.equal(anchors.length, 1);
});

test("a budget that is spent stays so, whatever the clock is set to", async () => {
  setClock(Date.UTC(2026, 5, 1, 12));
  const store = await newStore();
  const device = await Device.open(ANCHORED, { store });
  for (const minute of [0, 1, 2]) await device.report(...HERE, Date.UTC(2026, 5, 1, 12, minute) / 1000);
  await assert.rejects(device.report(...HERE, Date.UTC(2026, 5, 1, 12, 3) / 1000), { name: "RefusedError", reason: "budget" });
  // Set forward by ten hours: the clock that nobody can set knows better.
  setClock(Date.UTC(2026, 5, 1, 22));
  await assert.rejects(device.report(...HERE, new Date(Date.now())), { name: "RefusedError", reason: "budget" });
  await device.close();
  const later = await Device.open(ANCHORED, { store });
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
  const digest = await webcrypto.subtle.digest("SHA-256", new TextEncoder().encode(content));
  const moved = new MemoryStore();
  await moved.swap(null, `${Buffer.from(digest).toString("hex")} ${content}`);
  setClock(Date.UTC(2026, 5, 1, 12, 30));
  const early = await Device.open(PLAIN, { store: moved });
  await assert.rejects(early.report(...HERE, new Date(Date.now())), { reason: "budget" });
  await early.close();
  await moved.swap(await moved.read(), `${Buffer.from(digest).toString("hex")} ${content}`);
  setClock(Date.UTC(2026, 5, 1, 13, 30));
  const late = await Device.open(PLAIN, { store: moved });
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
  const device = await Device.open(PLAIN, { store });
  await device.report(...HERE, new Date(Date.now()));
  const content = (await store.read()).slice(65);
  const edits = [
    (state) => { state.reports = 0; }, (state) => { state.spentMicro = 0; }, (state) => { state.answers = []; },
    (state) => { state.answers[0].costMicro = -1; }, (state) => { state.lastSlotMs = 5; }, (state) => { state.format = "2"; },
    (state) => { state.budget.epsilon = "6"; }, (state) => { delete state.clock; }, (state) => { state.anchors = {}; },
  ];
  for (const edit of edits) {
    const state = JSON.parse(content);
    edit(state);
    const text = JSON.stringify(state);
    const digest = Buffer.from(await webcrypto.subtle.digest("SHA-256", new TextEncoder().encode(text))).toString("hex");
    const other = new MemoryStore();
    await other.swap(null, `${digest} ${text}`);
    await assert.rejects(Device.open(PLAIN, { store: other }), LedgerError, String(edit));
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
  const device = await Device.open(ANCHORED, { budget: BUDGET });
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
  await assert.rejects(Device.open(ANCHORED, { budget: new Budget({ epsilon: 1.9, windowS: 60 }) }), ParameterError);
  await assert.rejects(Device.open(ANCHORED, { budget: new Budget({ epsilon: 9, windowS: 10 }) }), ParameterError);
  await assert.rejects(
    Device.open(ANCHORED, { budget: new Budget({ epsilon: 9, windowS: 60, anchorEpsilon: 1 }) }), ParameterError,
  );
  await assert.rejects(Device.open(ANCHORED, {}), ParameterError);
  await assert.rejects(Device.open(ANCHORED, { budget: BUDGET, policy: { largestEpsilon: 1 } }), PolicyError);
  await assert.rejects(Device.open(file("kilometres"), { budget: BUDGET }), /rounds a coordinate by up to 707/);
  await Device.open(file("kilometres"), { budget: BUDGET, policy: { largestRoundingM: 708 } });
  await assert.rejects(Device.open(ANCHORED, { budget: BUDGET, policy: { largestRoundingM: NaN } }), ParameterError);
  await assert.rejects(Device.open(file("millimetres"), { budget: new Budget({ epsilon: 900, windowS: 60 }) }), PolicyError);
  const store = await newStore();
  await assert.rejects(Device.open(ANCHORED, { store, budget: new Budget({ epsilon: 7, windowS: 3600 }) }), MismatchError);
  await assert.rejects(Device.open(ANCHORED, { store, replay: true }), MismatchError);
});

test("a warning is for the driver", async () => {
  const device = await Device.open(ANCHORED, { budget: BUDGET });
  assert.equal(device.warningFor(...HERE), null);
  assert.match(device.warningFor(0, 0), /without a fix/);
  assert.match(device.warningFor(HERE[1], HERE[0]), /exchanged/);
  assert.match(device.warningFor(50, 8), /outside/);
  assert.ok((await device.report(50, 8, new Date(Date.now()))).cell >= 0);
});

test("words are random", async () => {
  const counts = new Map();
  for (let index = 0; index < 200; index += 1) {
    const device = await Device.open(ANCHORED, { budget: BUDGET });
    const { cell } = await device.report(...HERE, new Date(Date.now()));
    counts.set(cell, (counts.get(cell) ?? 0) + 1);
  }
  assert.ok(counts.size > 100);
});
