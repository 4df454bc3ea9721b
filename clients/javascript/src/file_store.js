// A ledger in a file, for Node on systems with POSIX renames. One process at a time.
//
// The lock is a folder in a folder, PATH.lock/OWNER, and OWNER is a name that is never used twice. A new text is written to
// PATH.lock/OWNER/new, synced, and renamed to PATH. Every step that decides is one rename or rmdir of the file system:
//
// - Lock: rename a prepared folder with OWNER in it to PATH.lock. This fails unless PATH.lock is missing or empty. So one of
//   many succeeds, and a lock is never seen without its owner.
// - Take over from a process that is gone: rename PATH.lock/GONE to PATH.lock/OWNER. One of many succeeds. The others find no
//   GONE, however late they come, because that name never returns; so they cannot touch the new owner's lock.
// - Unlock: remove OWNER, then PATH.lock if it is empty. A lock that another process made since then is not empty.
//
// So PATH.lock has at most one owner. Writing does not rely on the judgement that a process is gone. Suppose that it was wrong.
// The old owner's path then leads nowhere, and its next write or rename fails. A rename that the system had begun before still
// needs the old `new`. The new owner removes that file before it reads PATH, so it either sees the old owner's text or prevents it.
//
// A process that is killed leaves one of these, and each is safe:
// - a prepared folder: it means nothing, and the next process removes it;
// - PATH.lock/OWNER, with or without `new`: the next process takes over and removes `new`;
// - PATH.lock, empty: the next lock replaces it;
// - the new text in PATH, not yet reported: it counts as spent.

import { constants } from "node:fs";
import { mkdir, open, readFile, readdir, rename, rm, rmdir } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

import { randomName } from "./system.js";

const START = await startOf(process.pid);

/** Keeps a text in a file that only its user may read. */
export class FileStore {
  #path;
  #lock;
  /** @type {string | null} the folder PATH.lock/OWNER, while this store has the lock */
  #own = null;

  /** @param {string} path names that begin with `PATH.lock` are its own, too */
  constructor(path) {
    this.#path = path;
    this.#lock = `${path}.lock`;
  }

  async read() {
    this.#own ??= await this.#locked();
    return unless("ENOENT", readFile(this.#path, "utf8"));
  }

  /** @param {string | null} before @param {string} after */
  async swap(before, after) {
    if ((await this.read()) !== before) return false;
    const temporary = `${this.#own}/new`;
    // Exclusive: two owners, of which one was wrongly taken for gone, never write to the same file.
    const file = await unless("ENOENT", open(temporary, "wx", 0o600));
    if (file === null) return false; // another process has taken over
    try {
      await file.writeFile(after, "utf8");
      await file.sync();
    } finally {
      await file.close();
    }
    if ((await unless("ENOENT", rename(temporary, this.#path))) === null) return false;
    const folder = await open(dirname(this.#path), constants.O_RDONLY);
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
    return true;
  }

  async close() {
    if (this.#own === null) return;
    await rm(this.#own, { recursive: true, force: true });
    this.#own = null;
    await rmdir(this.#lock).catch(() => {}); // it is another one's, or the next lock replaces it
  }

  /** Keep other processes out. @returns {Promise<string>} the folder PATH.lock/OWNER */
  async #locked() {
    const owner = `${process.pid}-${START}-${randomName()}`;
    const prepared = `${this.#lock}.${owner}`;
    const own = `${this.#lock}/${owner}`;
    await this.#clear();
    await mkdir(prepared, 0o700);
    try {
      await mkdir(`${prepared}/${owner}`, 0o700);
      // It ends: each time around, another process has locked, taken over or unlocked.
      while (!(await this.#isMade(prepared)) && !(await this.#isTakenOver(own)));
    } finally {
      await rm(prepared, { recursive: true, force: true });
    }
    return own;
  }

  /** Remove folders of processes that were killed before they had the lock. */
  async #clear() {
    const [folder, start] = [dirname(this.#path), `${basename(this.#lock)}.`];
    for (const name of await readdir(folder)) {
      if (!name.startsWith(start) || !(await isGone(name.slice(start.length)))) continue;
      await rm(join(folder, name), { recursive: true, force: true }).catch(() => {}); // others may remove it, too
    }
  }

  /** @param {string} prepared */
  async #isMade(prepared) {
    try {
      await rename(prepared, this.#lock);
      return true;
    } catch (error) {
      if (isCode(error, "ENOTEMPTY") || isCode(error, "EEXIST")) return false;
      if (!isCode(error, "ENOTDIR")) throw error;
      throw new Error("there is a lock of an older version; if no process uses it, remove the file that ends with .lock");
    }
  }

  /** @param {string} own */
  async #isTakenOver(own) {
    const owner = (await unless("ENOENT", readdir(this.#lock)))?.[0];
    if (owner === undefined) return false;
    if (!(await isGone(owner))) {
      throw new Error(`it is in use by process ${owner.split("-")[0]}; if that is not so, remove the folder that ends with .lock`);
    }
    if ((await unless("ENOENT", rename(`${this.#lock}/${owner}`, own))) === null) return false;
    await rm(`${own}/new`, { force: true });
    return true;
  }
}

/** @param {unknown} error @param {string} code */
function isCode(error, code) {
  return /** @type {NodeJS.ErrnoException} */ (error).code === code;
}

/** @template T @param {string} code @param {Promise<T>} result @returns {Promise<T | null>} null after an error of this code */
async function unless(code, result) {
  try {
    return await result;
  } catch (error) {
    if (isCode(error, code)) return null;
    throw error;
  }
}

/** @param {string} owner of a lock; a name that is none counts as one that runs @returns {Promise<boolean>} */
async function isGone(owner) {
  const [, pid, start] = /^(\d+)-(\d*)-/.exec(owner) ?? [];
  const running = pid === undefined ? "" : await startOf(Number(pid));
  return running !== "" && running !== start;
}

/**
 * Return when a process started, so that another one with the same number is not taken for it.
 *
 * @param {number} pid
 * @returns {Promise<string | null>} in the system's own units; empty if the system does not say; null if it does not run
 */
async function startOf(pid) {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (!isCode(error, "EPERM")) return null;
  }
  const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
  const [state, ...rest] = stat.slice(stat.lastIndexOf(")") + 2).split(" "); // the name before may have spaces
  return state === "Z" ? null : (rest[18] ?? "");
}
