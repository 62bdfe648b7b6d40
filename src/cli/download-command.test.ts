// `download-model` as a whole: the list, the question whether it fits, a download from a local server.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import { expect, it } from "vitest";
import { publishedModel } from "../convert/published-models.ts";
import { MemoryError, UsageError } from "../core/errors.ts";
import { GIB, MIB } from "../core/units.ts";
import { resolveTargets } from "../download/download-target.ts";
import type { Machine } from "../machine/machine.ts";
import { planMemory } from "../plan/memory-plan.ts";
import { type DownloadFlags, runDownload } from "./download-command.ts";
import { runOptions } from "./preflight.ts";

async function run(model: string | undefined, flags: Partial<DownloadFlags>, machine?: Machine) {
  const written = { out: "", err: "" };
  const sink = (name: "out" | "err") =>
    new Writable({
      write(chunk, _encoding, done) {
        written[name] += chunk;
        done();
      },
    });
  const terminal = { out: sink("out"), err: sink("err"), quiet: false };
  let error: unknown;
  await runDownload(model, { output: ".", ...flags }, terminal, machine).catch((thrown) => {
    error = thrown;
  });
  return { ...written, error };
}

function host(availableBytes: number): Machine {
  return {
    name: "fixture",
    pools: [{ id: "host", kind: "host", totalBytes: 128 * GIB, availableBytes, limits: [] }],
    swapTotalBytes: 0,
    swapFreeBytes: 0,
    tmpfsBytes: 0,
    isWsl: false,
    warnings: [],
  };
}

it("lists the aliases with their sizes", async () => {
  const { out } = await run(undefined, { list: true });
  expect(out).toMatch(/^ds4f-q2 +80\.76 GiB {2}V4 Flash/m);
  expect(out).toMatch(/^ds4f-q2-q4 +90\.89 GiB/m);
  expect((await run(undefined, {})).error).toBeInstanceOf(UsageError);
});

it("refuses a model that this machine cannot hold before anything is asked of a server", async () => {
  for (const alias of ["ds4f-q2-q4", "q2-q4-imatrix"]) {
    const { error } = await run(alias, {}, host(60 * GIB));
    expect(error).toBeInstanceOf(MemoryError);
    expect(String(error)).toMatch(
      /does not fit with context 32768: it needs 9\d\.\d+ GiB.*60\.00 GiB can be had/,
    );
    expect(String(error)).toContain("--force downloads it anyway");
  }
  const { error } = await run("ds4f-q4", {}, host(100 * GIB));
  expect(String(error)).toContain("ds4f-q2-q4");
});

it("knows sizes that agree with the tensor tables of the published files", () => {
  for (const alias of ["ds4f-q2", "ds4f-q2-q4", "ds4f-q4"] as const) {
    const model = publishedModel(alias);
    const { regions } = planMemory(alias, model, runOptions(model.spec, { backend: "cpu" }), host(GIB));
    const tensorBytes = regions.reduce((sum, region) => sum + (region.fileBytes ?? 0), 0);
    const [{ sizeBytes }] = resolveTargets(alias);
    expect(sizeBytes! - tensorBytes).toBeGreaterThan(0);
    expect(sizeBytes! - tensorBytes).toBeLessThan(8 * MIB); // header with the vocabulary
  }
});

it("downloads from an address and says how to run it", async () => {
  const folder = mkdtempSync(join(tmpdir(), "ds4-download-command-"));
  const server = createServer((request, response) => {
    if (request.url === "/m.gguf") response.end("GGUF and more");
    else response.writeHead(404).end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const output = join(folder, "new", "gguf");
    const { out, err, error } = await run(`${address}/m.gguf`, { output });
    expect(error).toBeUndefined();
    expect(out).toBe("");
    expect(readFileSync(join(output, "m.gguf"), "utf8")).toBe("GGUF and more");
    expect(err).toMatch(/wrote .*m\.gguf: 13 B in .*; SHA-256 [0-9a-f]{64}, with nothing to compare it to/);
    expect(err).toContain(`ds4 -m ${join(output, "m.gguf")}`);
    expect(String((await run(`${address}/n.gguf`, { output })).error)).toMatch(
      /answered 404; check the name/,
    );
  } finally {
    server.close();
    rmSync(folder, { recursive: true });
  }
});
