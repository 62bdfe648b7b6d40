// A full disk and a read-only folder under a real server: answers go on as without a cache, and one line says why.
// Real mounts where this user may make them (Linux, root); a writer that refuses elsewhere.
import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { createRequire, syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { FakeBackend, hashed } from "../fixtures/fake-backend.ts";
import { InlineKvDisk } from "../fixtures/inline-kv-disk.ts";
import { SchedulerHarness } from "../fixtures/scheduler-harness.ts";
import { killServers, type ServerProcess, startServer, stopServer } from "../fixtures/server-process.ts";
import type { Json } from "./load-requests.ts";

/** The module's own object: what is put there is what every importer calls after `syncBuiltinESMExports`. */
const mutableFs = createRequire(import.meta.url)("node:fs");
const base = fs.mkdtempSync(join(tmpdir(), "ds4-disk-faults-"));
const mounts: string[] = [];
afterEach(killServers);
afterAll(() => {
  for (const path of mounts) spawnSync("umount", [path]);
  fs.rmSync(base, { recursive: true, force: true });
});

function mountMemory(name: string, options: string): string | undefined {
  const path = join(base, name);
  fs.mkdirSync(path);
  if (spawnSync("mount", ["-t", "tmpfs", "-o", options, "ds4-test", path]).status !== 0) return undefined;
  mounts.push(path);
  return path;
}

const canMount = mountMemory("probe", "size=64k") !== undefined;
const QUESTION = "What is the capital of France?";
/** Different beginnings, long enough for a file. */
const prompts = [1, 2].map((seed) => {
  const words = Array.from({ length: 560 }, (_, at) => ["one", "two", "six", "ten"][(at * seed) % 4]);
  return `${seed} ${words.join(" ")}. ${QUESTION}`;
});

interface Answer {
  text: string;
  cachedTokens: number;
  promptTokens: number;
}

async function ask({ url }: ServerProcess, prompt: string): Promise<Answer> {
  const body = JSON.stringify({ prompt, max_tokens: 12, temperature: 0 });
  const response = await fetch(`${url}/v1/completions`, { method: "POST", body });
  expect(response.status).toBe(200);
  const { choices, usage } = (await response.json()) as Json;
  const cachedTokens = usage.prompt_tokens_details?.cached_tokens ?? 0;
  return { text: choices[0].text, cachedTokens, promptTokens: usage.prompt_tokens };
}

const open = (...flags: string[]) => startServer(["--slots", "1", "--threads", "1", ...flags]);

/** Lines that are about neither a request nor the start. */
function warnings({ log }: ServerProcess): string[] {
  return log()
    .split("\n")
    .filter((line) => line !== "" && !/ (POST|GET) \/|^listening|^ready/.test(line));
}

describe.skipIf(!canMount)("a server whose cache folder fails (case 112)", () => {
  const texts: string[] = [];
  beforeAll(async () => {
    const plain = await open("--checkpoint-mb", "0");
    for (const prompt of prompts) texts.push((await ask(plain, prompt)).text);
    await stopServer(plain);
  });

  it("serves without it when the disk is full, and says so once", async () => {
    const folder = mountMemory("full", "size=96k")!;
    const server = await open("--checkpoint-mb", "0", "--kv-disk-dir", folder);
    for (const [at, prompt] of prompts.entries()) expect((await ask(server, prompt)).text).toBe(texts[at]);
    expect(await stopServer(server)).toBe(0);
    expect(warnings(server)[0]).toMatch(/ENOSPC.*serving without it$/);
    expect(warnings(server).slice(1).join()).toMatch(/^$|calls and answers are not saved/);
    const left = fs.readdirSync(folder, { recursive: true }).filter((name) => /ds4kv/.test(String(name)));
    expect(left).toEqual([]); // no cut file, no temporary one
  });

  it("reads what a read-only folder holds, writes nothing, and says so once", async () => {
    const folder = mountMemory("readonly", "size=64m")!;
    const first = await open("--checkpoint-mb", "0", "--kv-disk-dir", folder);
    await ask(first, prompts[0]);
    expect(await stopServer(first)).toBe(0);
    fs.writeFileSync(join(folder, fs.readdirSync(folder)[0], "left-1.ds4kv-part"), "of a crash");
    expect(spawnSync("mount", ["-o", "remount,ro", folder]).status).toBe(0);
    const held = fs.readdirSync(folder, { recursive: true }).length;
    const server = await open("--checkpoint-mb", "0", "--kv-disk-dir", folder);
    const again = await ask(server, prompts[0]);
    expect(again.text).toBe(texts[0]);
    expect(again.cachedTokens).toBeGreaterThan(0.9 * again.promptTokens);
    expect((await ask(server, prompts[1])).text).toBe(texts[1]);
    expect(await stopServer(server)).toBe(0);
    // Plain completions are not remembered: there is nothing that its end could fail to save.
    expect(warnings(server)).toEqual([expect.stringMatching(/[Rr]ead-only.*serving without it$/)]);
    expect(fs.readdirSync(folder, { recursive: true })).toHaveLength(held);
  });
});

describe("a writer that refuses", () => {
  const originals = { writeSync: fs.writeSync, fsyncSync: fs.fsyncSync, renameSync: fs.renameSync };
  afterEach(() => {
    Object.assign(mutableFs, originals);
    syncBuiltinESMExports();
  });

  it.each([["writeSync"], ["fsyncSync"], ["renameSync"]] as const)(
    "%s fails with ENOSPC: every request is served, one line, no file is left",
    async (name) => {
      const folder = fs.mkdtempSync(join(base, "inline-"));
      const disk = new InlineKvDisk(folder);
      mutableFs[name] = () => {
        throw Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" });
      };
      syncBuiltinESMExports();
      const backend = new FakeBackend(50, hashed(50), 64);
      const settings = { kvDiskMinTokens: 20, checkpointTokens: 64, slots: 1 };
      const harness = new SchedulerHarness(backend, settings, disk);
      for (let seed = 0; seed < 4; seed++) {
        const prompt = Array.from({ length: 80 }, (_, at) => (at * (seed + 3)) % 50);
        expect((await harness.run(prompt)).tokens).toHaveLength(10);
      }
      await harness.scheduler.close();
      expect(disk.logs).toEqual([expect.stringMatching(/ENOSPC.*serving without it$/)]);
      expect(disk.count).toBe(0);
      expect(fs.readdirSync(join(folder, "a".repeat(16)))).toEqual([]);
    },
  );
});
