// The only file that loads the native addon. Missing is a normal answer (null with a reason), not an error:
// the reference backend then runs.
import { createRequire } from "node:module";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

/** What the addon exports; each area narrows it to its own functions. */
export type NativeAddon = Record<string, unknown> & { abiVersion: number };

/** The addon, or why there is none. */
export type NativeLoad = { addon: NativeAddon; reason: null } | { addon: null; reason: string };

const ABI_VERSION = 1;
const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
let loaded: NativeLoad | undefined;

/**
 * Loads the addon once per process (a prebuilt one, else the one compiled at install). `DS4_NATIVE=off` skips
 * it, so that the plain TypeScript path can be tried on any machine.
 */
export function loadNative(): NativeLoad {
  loaded ??= tryLoad();
  return loaded;
}

function tryLoad(): NativeLoad {
  if (process.env.DS4_NATIVE === "off") return { addon: null, reason: "switched off by DS4_NATIVE=off" };
  try {
    const require = createRequire(import.meta.url);
    const addon = require("node-gyp-build")(root) as NativeAddon;
    if (addon.abiVersion !== ABI_VERSION) {
      const found = `addon version ${addon.abiVersion}, expected ${ABI_VERSION}`;
      return { addon: null, reason: `${found}; run: npm run build:native` };
    }
    return { addon, reason: null };
  } catch (error) {
    const text = error instanceof Error ? error.message.split("\n")[0] : String(error);
    return { addon: null, reason: text };
  }
}
