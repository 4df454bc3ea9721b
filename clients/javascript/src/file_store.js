// A ledger in a file, for Node: written beside it, synced and renamed. One process at a time.

import { constants } from "node:fs";
import { link, open, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";

/** Keeps a text in a file that only its user may read. */
export class FileStore {
  #path;
  #isLocked = false;

  /** @param {string} path `PATH.lock` and `PATH.new` are its own, too */
  constructor(path) {
    this.#path = path;
  }

  async read() {
    await this.#lock();
    try {
      return await readFile(this.#path, "utf8");
    } catch (error) {
      if (isCode(error, "ENOENT")) return null;
      throw error;
    }
  }

  /** @param {string | null} before @param {string} after */
  async swap(before, after) {
    if ((await this.read()) !== before) return false;
    const temporary = `${this.#path}.new`;
    const file = await open(temporary, "w", 0o600);
    try {
      await file.writeFile(after, "utf8");
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, this.#path);
    const folder = await open(dirname(this.#path), constants.O_RDONLY);
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
    return true;
  }

  async close() {
    if (this.#isLocked) await rm(`${this.#path}.lock`, { force: true });
    this.#isLocked = false;
  }

  /** Keep other processes out. A lock whose process is gone counts no more. */
  async #lock() {
    const own = `${this.#path}.lock.${process.pid}`;
    for (let attempt = 0; !this.#isLocked; attempt += 1) {
      try {
        await writeFile(own, String(process.pid), { mode: 0o600 });
        await link(own, `${this.#path}.lock`); // fails if there is one, and is never seen without its process
        this.#isLocked = true;
      } catch (error) {
        if (!isCode(error, "EEXIST")) throw error;
        const owner = Number(await readFile(`${this.#path}.lock`, "utf8").catch(() => ""));
        if (attempt > 0 || isRunning(owner)) {
          throw new Error(`it is in use by process ${owner}; if that is not so, remove the file that ends with .lock`);
        }
        await rm(`${this.#path}.lock`, { force: true });
      } finally {
        await rm(own, { force: true });
      }
    }
  }
}

/** @param {unknown} error @param {string} code */
function isCode(error, code) {
  return /** @type {NodeJS.ErrnoException} */ (error).code === code;
}

/** @param {number} pid */
function isRunning(pid) {
  if (!Number.isInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return isCode(error, "EPERM");
  }
}
