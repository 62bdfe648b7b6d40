// Every exported symbol of src/ has a doc block directly above it. Re-exports are exempt.
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";

const sourceRoot = resolve(import.meta.dirname, "..", "src");
const EXPORT =
  /^export (?:default |declare |abstract |async )*(?:function\*?|class|interface|type|const|let|enum) (\w+)/;

const problems: string[] = [];
let count = 0;
for (const entry of readdirSync(sourceRoot, { recursive: true, encoding: "utf8" })) {
  if (!entry.endsWith(".ts") || entry.endsWith(".test.ts")) continue;
  const lines = readFileSync(join(sourceRoot, entry), "utf8").split("\n");
  lines.forEach((line, index) => {
    const match = EXPORT.exec(line);
    if (!match) return;
    count++;
    const above = lines[index - 1]?.trim() ?? "";
    const overload = EXPORT.exec(lines[index - 1] ?? "")?.[1] === match[1];
    if (!above.endsWith("*/") && !overload)
      problems.push(`src/${entry}:${index + 1}: ${match[1]} has no doc block`);
  });
}
for (const problem of problems) console.error(problem);
console.log(`docs: ${count} exported symbols, ${problems.length} without a doc block`);
if (problems.length > 0) process.exitCode = 1;
