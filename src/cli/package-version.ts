// The version of this package, from its package.json.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** Folder of the package, or of the clone. */
export const PACKAGE_ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** E.g. `0.1.0`. */
export function packageVersion(): string {
  return JSON.parse(readFileSync(join(PACKAGE_ROOT, "package.json"), "utf8")).version;
}
