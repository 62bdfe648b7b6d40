// What checks of whole models share: backends of the device under check, and the addon that they and their oracles need.
import type { Backend } from "../../src/backend/backend.ts";
import { type CudaOptions, createCudaBackend } from "../../src/backend/cuda/cuda-backend.ts";
import { loadNative, type NativeAddon } from "../../src/backend/native.ts";
import { Ds4Error } from "../../src/core/errors.ts";
import type { GgufFile } from "../../src/gguf/gguf-file.ts";
import type { CheckBench } from "./kernel-check.ts";

/** Throws `native` where there is none. */
export function requiredAddon(): NativeAddon {
  const { addon, reason } = loadNative();
  if (addon === null) throw new Ds4Error("native", `the check needs the native addon: ${reason}`);
  return addon;
}

/** A model on the device under check; the caller closes it. */
export function openChecked(
  { deviceOptions }: CheckBench,
  file: GgufFile,
  options: CudaOptions = {},
): Backend {
  return createCudaBackend(file, requiredAddon(), { ...deviceOptions, ...options });
}
