// The program of the thread that reads and writes saved states, so that no token waits for a disk.
import { parentPort, workerData } from "node:worker_threads";
import type { KvSnapshot } from "../backend/kv-snapshot.ts";
import { KvDiskStore, type StoreChange } from "./kv-disk-store.ts";
import type { SaveReason } from "./kv-disk-types.ts";

/** What the thread is started with. */
export interface DiskThreadOptions {
  folder: string;
  fingerprint: string;
  limitBytes: number;
}

/** To the thread. */
export type ToDisk =
  | {
      kind: "save";
      tokens: Int32Array;
      snapshot: KvSnapshot;
      reason: SaveReason;
      pinnedKey: string | undefined;
    }
  | { kind: "load"; id: number; key: string }
  | { kind: "reject"; key: string; why: string }
  | { kind: "close" };

/** From the thread. `saved` answers every save, whether or not anything was written. */
export type FromDisk =
  | { kind: "opened" }
  | { kind: "change"; change: StoreChange }
  | { kind: "log"; line: string }
  | { kind: "saved" }
  | { kind: "loaded"; id: number; snapshot: KvSnapshot | undefined };

if (parentPort === null) throw new Error("kv-disk-worker is the program of a worker thread");
const port = parentPort;
const send = (message: FromDisk, transfer: ArrayBuffer[] = []) => port.postMessage(message, transfer);

const store = new KvDiskStore({
  ...(workerData as DiskThreadOptions),
  onChange: (change) => send({ kind: "change", change }),
  log: (line) => send({ kind: "log", line }),
});
port.on("message", (message: ToDisk) => {
  if (message.kind === "save") {
    store.save(message.tokens, message.snapshot, message.reason, message.pinnedKey);
    send({ kind: "saved" });
  } else if (message.kind === "load") {
    const snapshot = store.load(message.key);
    // Each section has memory of its own: it is handed over, not copied.
    const buffers = snapshot?.sections.map(({ data }) => data.buffer as ArrayBuffer) ?? [];
    send({ kind: "loaded", id: message.id, snapshot }, buffers);
  } else if (message.kind === "reject") store.reject(message.key, message.why);
  else port.close();
});
send({ kind: "opened" });
