// File sizes: aim at 250 lines, fail over 400. Generated tables (first line says "generated table") are exempt.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const AIM_LINES = 250;
const LIMIT_LINES = 400;

const files = execFileSync("git", ["ls-files", "-co", "--exclude-standard"], { encoding: "utf8" })
  .split("\n")
  .filter((name) => /\.(ts|js|mjs|css|html|cpp|h|hpp|cu|cuh)$/.test(name));
let total = 0;
const long: string[] = [];
let failed = 0;
for (const name of files) {
  let text: string;
  try {
    text = readFileSync(name, "utf8");
  } catch {
    continue; // deleted in the work tree
  }
  const lines = text.split("\n").length - 1;
  total += lines;
  if (text.slice(0, 200).includes("generated table")) continue;
  if (lines > LIMIT_LINES) failed++;
  if (lines > AIM_LINES)
    long.push(`${String(lines).padStart(5)}  ${name}${lines > LIMIT_LINES ? "  over the limit" : ""}`);
}
for (const line of long.sort().reverse()) console.log(line);
console.log(
  `size: ${files.length} files, ${total} lines, ${long.length} over ${AIM_LINES}, ${failed} over ${LIMIT_LINES}`,
);
if (failed > 0) process.exitCode = 1;
