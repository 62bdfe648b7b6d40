// Finds the CUDA driver. The only file that loads koffi and libcuda; neither is touched before the first call.
import { createRequire } from "node:module";
import type { CudaLoad } from "./driver.ts";
import { bindSymbols, type ForeignFunctions } from "./driver-symbols.ts";
import { LibraryDriver } from "./library-driver.ts";

const LIBRARY = "libcuda.so.1";
let loaded: CudaLoad | undefined;

/**
 * Loads and initializes the driver once per process. No library, no device or a driver that refuses are answers, not
 * errors. `DS4_CUDA=off` skips it.
 */
export function loadCudaDriver(): CudaLoad {
  loaded ??= openCudaDriver(LIBRARY);
  return loaded;
}

/** The same for a library at `path`, every time anew. */
export function openCudaDriver(path: string): CudaLoad {
  if (process.env.DS4_CUDA === "off") return { driver: null, reason: "switched off by DS4_CUDA=off" };
  try {
    const koffi = createRequire(import.meta.url)("koffi") as ForeignFunctions;
    const driver = new LibraryDriver(koffi, bindSymbols(koffi, path));
    if (driver.deviceCount() === 0) return { driver: null, reason: "the CUDA driver finds no GPU" };
    return { driver, reason: null };
  } catch (error) {
    const text = error instanceof Error ? error.message.split("\n")[0] : String(error);
    return { driver: null, reason: `${path}: ${text}` };
  }
}
