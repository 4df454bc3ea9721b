// Holds the lock of a file until it is killed.

import { FileStore } from "../src/file_store.js";

await new FileStore(process.argv[2]).read();
process.send("held");
setInterval(() => {}, 1000);
