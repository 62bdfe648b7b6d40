// Lists the addon's C++ sources for binding.gyp: every .cpp of the folders below, so that a new kernel file
// needs no build change. Files under native/*/isa/ are compiled by their own targets with their own flags.
import { existsSync, readdirSync } from "node:fs";

for (const folder of ["native/addon", "native/common", "native/cpu", "native/quantize"]) {
  if (!existsSync(folder)) continue;
  for (const name of readdirSync(folder).sort()) {
    if (name.endsWith(".cpp")) console.log(`${folder}/${name}`);
  }
}
