import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { tokenizer } from "../../test/fixtures/test-server.ts";
import { PieceBuilder } from "../template/pieces.ts";
import { PrefixDigest } from "./answer-memory.ts";
import { type MemoryFiles, openMemoryFiles, saveWhenIdle } from "./memory-files.ts";
import { SILENT_LOG } from "./server-log.ts";

const folder = mkdtempSync(join(tmpdir(), "ds4-memories-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const lines: string[] = [];
const open = (name: string) =>
  openMemoryFiles(join(folder, name), { ...SILENT_LOG, line: (text) => void lines.push(text) });

const start = () => new PieceBuilder().special("</think>");
const remember = ({ answers, calls }: MemoryFiles) => {
  const prefix = new PrefixDigest("m").at(start().boundary()!);
  answers.remember(prefix, { reasoning: "", content: "hi", callIds: [] }, tokenizer.encode("hi"), tokenizer);
  calls.remember(["call_1"], { rawText: "x", marks: [] });
};
const knows = ({ answers, calls }: MemoryFiles) => [
  answers.replay(start(), new PrefixDigest("m"), { role: "assistant" }, "hi", tokenizer),
  calls.replay(start(), [{ id: "call_1", name: "f" }]),
];

it("keeps both memories over a restart, and writes only what changed", () => {
  const first = open("a");
  first.save();
  expect(existsSync(join(folder, "a"))).toBe(false);
  remember(first);
  first.save();
  expect(knows(open("a"))).toEqual([true, true]);
  const path = join(folder, "a", "answers.bin");
  writeFileSync(path, "touched");
  first.save();
  expect(statSync(path).size).toBe("touched".length);
  const damaged = open("a");
  expect(knows(damaged)).toEqual([false, true]);
  expect(lines.join("\n")).toContain("1 saved calls or answers are damaged");
});

it("saves while nothing else is to do, until it is stopped", async () => {
  const files = open("b");
  let isIdle = false;
  const stop = saveWhenIdle(files, () => isIdle, 10);
  remember(files);
  const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
  await wait(60);
  expect(existsSync(join(folder, "b"))).toBe(false);
  isIdle = true;
  for (let tries = 0; tries < 200 && !existsSync(join(folder, "b", "answers.bin")); tries++) await wait(10);
  expect(knows(open("b"))).toEqual([true, true]);
  stop();
});

it("goes on without a folder that can be written", () => {
  writeFileSync(join(folder, "file"), "");
  const files = open(join("file", "below"));
  remember(files);
  files.save();
  files.save();
  expect(knows(files)).toEqual([true, true]);
  expect(lines.filter((line) => line.includes("calls and answers are not saved"))).toHaveLength(1);
  rmSync(join(folder, "file"));
  files.save();
  expect(knows(open(join("file", "below")))).toEqual([true, true]);
});
