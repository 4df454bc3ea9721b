// Reports once for each message, from a ledger that other processes want at the same time.

import { readFile } from "node:fs/promises";

import { FileStore } from "../src/file_store.js";
import { Device, loadBundle } from "../src/index.js";

const vectors = JSON.parse(await readFile(new URL("../conformance/bundles.json", import.meta.url), "utf8"));
const bundle = await loadBundle(Buffer.from(vectors.find(({ name }) => name === "at the equator").bundle, "base64"));
process.on("message", async ({ path, time }) => {
  let answer;
  try {
    const device = await Device.open(bundle, { store: new FileStore(path) });
    try {
      const { cell, stored } = await device.report(0, 32.6, time);
      answer = { cell, stored };
    } finally {
      await device.close();
    }
  } catch (error) {
    answer = { error: error.message };
  }
  process.send(answer);
});
process.send("ready");
