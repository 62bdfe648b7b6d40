// The web page's files are served as they are written, so the build only copies them beside the compiled server.
import { cpSync, readdirSync, rmSync } from "node:fs";
import { extname, join, resolve } from "node:path";

const root = resolve(import.meta.dirname, "..");
const source = join(root, "src", "server", "web");
const target = join(root, "dist", "server", "web");
rmSync(target, { recursive: true, force: true });
cpSync(source, target, { recursive: true, filter: (path) => path === source || isServed(path) });
console.log(`web: ${readdirSync(target).length} files`);

function isServed(path) {
  return [".html", ".css", ".js", ".svg"].includes(extname(path));
}
