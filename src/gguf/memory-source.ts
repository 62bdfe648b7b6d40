// Bytes in memory as a byte source: tests, downloads held in memory.
import { Ds4Error } from "../core/errors.ts";
import type { ByteSource } from "./byte-source.ts";

/** Wraps `bytes` without copying; they must not change while in use. */
export function memoryByteSource(bytes: Uint8Array, name = "memory"): ByteSource {
  return {
    name,
    sizeBytes: bytes.length,
    readInto(target, offsetBytes) {
      if (offsetBytes < 0 || offsetBytes + target.length > bytes.length) {
        throw new Ds4Error(
          "io",
          `${name} has ${bytes.length} bytes; ${target.length} from ${offsetBytes} were asked for`,
        );
      }
      target.set(bytes.subarray(offsetBytes, offsetBytes + target.length));
    },
    close() {},
  };
}
