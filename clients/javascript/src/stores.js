// Where a ledger is kept: in memory, or in a browser. `file_store.js` is for Node.

/** Keeps a text in memory: what was spent is forgotten with the page. */
export class MemoryStore {
  /** @type {string | null} */
  #text = null;

  async read() {
    return this.#text;
  }

  /** @param {string | null} before @param {string} after */
  async swap(before, after) {
    if (this.#text !== before) return false;
    this.#text = after;
    return true;
  }
}

/** Keeps a text in IndexedDB: the best store in a browser. Each replacement is one strict transaction. */
export class IndexedDbStore {
  #name;
  /** @type {Promise<IDBDatabase> | null} */
  #database = null;

  /** @param {string} [name] of the database */
  constructor(name = "geoblanket") {
    this.#name = name;
  }

  #opened() {
    this.#database ??= new Promise((resolve, reject) => {
      const request = indexedDB.open(this.#name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore("ledger");
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
      request.onblocked = () => reject(new Error("the database is in use"));
    });
    return this.#database;
  }

  async read() {
    const database = await this.#opened();
    const table = database.transaction("ledger", "readonly").objectStore("ledger");
    return /** @type {string | null} */ ((await finished(table.get("text"))) ?? null);
  }

  /** @param {string | null} before @param {string} after @returns {Promise<boolean>} */
  async swap(before, after) {
    const database = await this.#opened();
    return new Promise((resolve, reject) => {
      const transaction = database.transaction("ledger", "readwrite", { durability: "strict" });
      const table = transaction.objectStore("ledger");
      let isSame = false;
      const known = table.get("text");
      known.onsuccess = () => {
        isSame = (known.result ?? null) === before;
        if (isSame) table.put(after, "text");
      };
      // Only a transaction that is complete is durable.
      transaction.oncomplete = () => resolve(isSame);
      transaction.onerror = transaction.onabort = () => reject(transaction.error ?? new Error("the transaction was aborted"));
    });
  }

  async close() {
    const database = await this.#database;
    database?.close();
    this.#database = null;
  }
}

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
function finished(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/**
 * Keeps a text in localStorage. Browsers write it to disk some time later: after a crash of the machine, the last reports may
 * be forgotten. Prefer `IndexedDbStore`.
 */
export class LocalStorageStore {
  #key;

  /** @param {string} [key] */
  constructor(key = "geoblanket ledger") {
    this.#key = key;
  }

  async read() {
    return localStorage.getItem(this.#key);
  }

  /** @param {string | null} before @param {string} after @returns {Promise<boolean>} */
  async swap(before, after) {
    const replace = () => {
      if (localStorage.getItem(this.#key) !== before) return false;
      localStorage.setItem(this.#key, after);
      return localStorage.getItem(this.#key) === after;
    };
    // Other tabs share the storage, and wait here.
    return globalThis.navigator?.locks ? navigator.locks.request(this.#key, replace) : replace();
  }
}
