// Lists C++ sources for binding.gyp, so that a new kernel file needs no build change.
//   native-sources.mjs            everything that is compiled for the plain instruction set
//   native-sources.mjs isa LEVEL  native/cpu/isa/LEVEL*.cpp, compiled with that level's flags
//   native-sources.mjs quantize   native/quantize, compiled without fused multiply-adds
import { existsSync, readdirSync } from "node:fs";

const [, , mode, level] = process.argv;
const FOLDERS = {
  plain: ["native/addon", "native/common", "native/cpu", "native/residency"],
  isa: ["native/cpu/isa"],
  quantize: ["native/quantize"],
};

for (const folder of FOLDERS[mode ?? "plain"].filter((name) => existsSync(name))) {
  for (const name of readdirSync(folder).sort()) {
    const belongs = mode === "isa" ? new RegExp(`^${level}(_.*)?\\.cpp$`).test(name) : name.endsWith(".cpp");
    if (belongs) console.log(`${folder}/${name}`);
  }
}
