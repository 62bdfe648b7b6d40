// What a failed forward call means.
import type { Backend } from "../backend/backend.ts";
import { Ds4Error } from "../core/errors.ts";
import type { Slot } from "./slot.ts";

/** The error says itself that nothing more will come from this device. */
export function isDeviceLost(error: unknown): boolean {
  return error instanceof Ds4Error && error.code === "device-lost";
}

/** One line for people. */
export function faultText(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.split("\n")[0];
}

/** Whether the backend still evaluates a token. `slot` is empty, and is so afterwards. */
export function probeBackend(backend: Backend, slot: Slot): boolean {
  try {
    backend.forward([{ kv: slot.kv, tokens: Int32Array.of(0), logits: "none" }]);
    return true;
  } catch {
    return false;
  } finally {
    slot.reset();
  }
}
