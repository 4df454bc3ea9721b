import type { Store } from "./index.js";

/** Keeps a text in a file that only its user may read, for Node on POSIX systems. One process at a time. */
export class FileStore implements Store {
  /** @param path names that begin with `PATH.lock` are its own, too */
  constructor(path: string);
  read(): Promise<string | null>;
  swap(before: string | null, after: string): Promise<boolean>;
  close(): Promise<void>;
}
