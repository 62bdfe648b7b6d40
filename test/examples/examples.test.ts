// Each example of examples/, run as a program on the bundled model.
import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";

const FOLDER = join(import.meta.dirname, "..", "..", "examples");
const tested = new Set<string>();

async function run(name: string, ...args: string[]) {
  tested.add(name);
  const { MODEL: _, ...env } = process.env;
  const flags = ["--conditions=ds4-source", join(FOLDER, name), ...args];
  const { stdout } = await promisify(execFile)(process.execPath, flags, { env });
  return stdout;
}

it("streams a chat", async () => {
  expect(await run("chat-stream.ts")).toBe("The capital of France is Paris.\n");
  expect(await run("chat-stream.ts", "What is the capital of Italy?")).toContain("Rome");
});

it("runs the tool that the model asks for, then gets an answer", async () => {
  const lines = (await run("tool-loop.ts")).trim().split("\n");
  expect(lines[1]).toBe("get_weather: Paris");
  expect(lines[2]).toMatch(/^round 1: [1-9]\d* of \d+ cached$/);
  // The nano model knows how to call, not how to read a result.
  expect(lines.length).toBeGreaterThan(3);
});

it("answers a batch, and gives up what takes too long", async () => {
  const lines = (await run("batch.ts")).trim().split("\n");
  expect(lines).toHaveLength(6);
  expect(lines[0]).toBe("France: The capital of France is Paris.");
  expect(await run("batch.ts", "0")).toBe(
    ["France", "Italy", "Spain", "Japan", "Norway", "Egypt"].map((city) => `${city}: out of time\n`).join(""),
  );
});

it("tests every example", () => {
  expect([...tested].sort()).toEqual(readdirSync(FOLDER).sort());
});
