import { spawn, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const MODULE = new URL("./steady-heap.ts", import.meta.url).href;
/** Holds ever more objects for a while, as a server with many requests does, and says how large the young generation got. */
const PROGRAM = `
  import { getHeapSpaceStatistics } from "node:v8";
  import { keepHeapSteady } from ${JSON.stringify(MODULE)};
  if (process.argv[1] === "steady") keepHeapSteady();
  const held = [];
  let most = 0;
  for (let round = 0; round < 600; round++) {
    for (let i = 0; i < 10_000; i++) held[(round * 10_000 + i) % 300_000] = { round, i };
    most = Math.max(most, getHeapSpaceStatistics().find((space) => space.space_name === "new_space").space_size);
  }
  console.log(most);
`;

function youngBytes(name: string, nodeOptions = ""): number {
  const args = ["--input-type=module", "-e", PROGRAM, name];
  const env = { ...process.env, NODE_OPTIONS: nodeOptions };
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8", env });
  expect(stderr.replace(/.*Warning.*/g, "").trim()).toBe("");
  return Number(stdout);
}

it("keeps the young generation small, unless Node's flags size it", () => {
  expect(youngBytes("steady")).toBeLessThanOrEqual(8 * 2 ** 20);
  expect(youngBytes("free")).toBeGreaterThanOrEqual(16 * 2 ** 20);
  expect(youngBytes("steady", "--max-semi-space-size=16")).toBeGreaterThanOrEqual(16 * 2 ** 20);
});

/** Says at its end how large the young generation got. */
const PROBE = `data:text/javascript,${encodeURIComponent(`
  import { getHeapSpaceStatistics } from "node:v8";
  import { isMainThread } from "node:worker_threads";
  if (isMainThread) process.on("exit", () => {
    const { space_size } = getHeapSpaceStatistics().find((space) => space.space_name === "new_space");
    console.log(space_size);
  });
`)}`;

function startedServerBytes(...entry: string[]): Promise<number> {
  const [file, ...args] = [...entry, "--port", "0"];
  const path = fileURLToPath(new URL(file, import.meta.url));
  const server = spawn(process.execPath, ["--import", PROBE, path, ...args]);
  let [out, err] = ["", ""];
  server.stdout.on("data", (chunk) => {
    out += chunk;
  });
  server.stderr.on("data", (chunk) => {
    err += chunk;
    if (err.includes("ready:")) server.kill("SIGTERM");
  });
  return new Promise((resolve, reject) => {
    server.on("close", (code) => (code === 0 ? resolve(Number(out)) : reject(new Error(err))));
  });
}

it("is the same for ds4 serve and ds4-server, which load the same", async () => {
  const [serve, server] = [
    await startedServerBytes("ds4.ts", "serve"),
    await startedServerBytes("ds4-server.ts"),
  ];
  expect(serve).toBe(server);
  expect(serve).toBeLessThanOrEqual(8 * 2 ** 20);
});
