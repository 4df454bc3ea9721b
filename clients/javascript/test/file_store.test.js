// The lock of a file: one owner at a time, also when many processes find that the last owner is gone.

import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { cp, mkdir, mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { FileStore } from "../src/file_store.js";
import { Budget, Ledger } from "../src/index.js";

const TRIALS = Number(process.env.GEOBLANKET_TRIALS ?? 40);
const PROCESSES = 6;
const child = (name, ...values) => fork(new URL(`../tools/${name}.js`, import.meta.url), values, { stdio: "pipe" });

let folder;
let left; // a ledger with a budget for one report, and the lock of a process that was killed
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "geoblanket-"));
  left = join(folder, "left");
  await mkdir(left);
  await Ledger.create(new FileStore(join(left, "car.ledger")), new Budget({ epsilon: 1, windowS: 1e6 }));
  const holder = child("holding_child", join(left, "car.ledger"));
  await once(holder, "message");
  holder.kill("SIGKILL");
  await once(holder, "exit");
});
after(() => rm(folder, { recursive: true }));

/** @returns {Promise<string>} the path of a fresh copy of the ledger and its lock */
async function copied(name) {
  await cp(left, join(folder, name), { recursive: true });
  return join(folder, name, "car.ledger");
}

test("of many that take over at once, one succeeds", async () => {
  for (let round = 0; round < 20; round += 1) {
    const path = await copied(`round ${round}`);
    const stores = Array.from({ length: PROCESSES }, () => new FileStore(path));
    const outcomes = await Promise.allSettled(stores.map((store) => store.read()));
    const refused = outcomes.filter(({ status }) => status === "rejected");
    assert.equal(refused.length, PROCESSES - 1);
    for (const { reason } of refused) assert.match(reason.message, /in use by process/);
    await Promise.all(stores.map((store) => store.close()));
    assert.deepEqual(await readdir(join(folder, `round ${round}`)), ["car.ledger"]);
  }
});

test("an owner that was taken for dead can write no more", async (context) => {
  const path = await copied("fenced");
  const [slow, quick] = [new FileStore(path), new FileStore(path)];
  const text = await slow.read();
  const alive = context.mock.method(process, "kill", () => { throw Object.assign(new Error(), { code: "ESRCH" }); });
  assert.equal(await quick.read(), text);
  alive.mock.restore();
  assert.equal(await slow.swap(text, "slow"), false);
  await slow.close(); // leaves the lock of the other one alone
  await assert.rejects(new FileStore(path).read(), /in use/);
  assert.equal(await quick.swap(text, "quick"), true);
  assert.equal(await readFile(path, "utf8"), "quick");
  await quick.close();
});

test("processes that contend for the lock of a killed one spend once", { timeout: 600_000 }, async (context) => {
  const children = Array.from({ length: PROCESSES }, () => child("contending_child"));
  const heard = () => Promise.all(children.map(async (one) => (await once(one, "message"))[0]));
  const counts = { none: 0, double: 0, errors: {} };
  try {
    await heard();
    const time = Math.floor(Date.now() / 1000);
    for (let trial = 0; trial < TRIALS; trial += 1) {
      const path = await copied(`trial ${trial}`);
      const answers = heard();
      for (const one of children) one.send({ path, time });
      const given = await answers;
      const spent = given.filter(({ stored }) => stored === false).length;
      const cells = new Set(given.flatMap(({ cell }) => cell ?? []));
      counts.none += Number(spent === 0);
      counts.double += Number(spent > 1 || cells.size > 1);
      for (const { error } of given) {
        const kind = error?.replaceAll(folder, "").replace(/'[^']*'/g, "…").replace(/\d+/g, "N");
        if (kind && !/in use by process/.test(kind)) counts.errors[kind] = (counts.errors[kind] ?? 0) + 1;
      }
      await rm(join(folder, `trial ${trial}`), { recursive: true });
    }
  } finally {
    for (const one of children) one.kill();
  }
  context.diagnostic(`${TRIALS} trials: ${JSON.stringify(counts)}`);
  assert.deepEqual(counts, { none: 0, double: 0, errors: {} });
});
