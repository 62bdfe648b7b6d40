import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { Channel, GenerateEvent } from "../session/generate.ts";
import { AnswerPrinter } from "./answer-printer.ts";
import type { Terminal } from "./terminal.ts";

beforeEach(() => {
  vi.stubEnv("NO_COLOR", "");
  vi.stubEnv("TERM", "xterm");
});
afterEach(() => {
  vi.unstubAllEnvs();
});

function terminal(isTTY: boolean, quiet = false) {
  const written = { out: "", err: "" };
  const stream = (name: "out" | "err") => ({
    isTTY,
    write: (text: string) => {
      written[name] += text;
    },
  });
  return { written, terminal: { out: stream("out"), err: stream("err"), quiet } as unknown as Terminal };
}

function print(target: Terminal, onStdout: boolean, ...texts: [Channel, string][]) {
  const printer = new AnswerPrinter(target, onStdout);
  for (const [channel, text] of texts)
    printer.take({ kind: "token", tokenId: 1, channel, text } as GenerateEvent);
  printer.finish();
  return printer;
}

it("keeps stdout free of thinking when it is redirected", () => {
  const { written, terminal: target } = terminal(false);
  const printer = print(
    target,
    false,
    ["thinking", "hm"],
    ["thinking", "."],
    ["content", "Yes"],
    ["content", "."],
  );
  expect(written).toEqual({ out: "Yes.\n", err: "hm.\n" });
  expect(printer.text).toEqual({ thinking: "hm.", content: "Yes." });
});

it("dims thinking on a terminal, and closes the dimming when the answer is cut", () => {
  const { written, terminal: target } = terminal(true);
  print(target, true, ["thinking", "hm"], ["content", "Yes\n"]);
  print(target, true, ["thinking", "cut"]);
  expect(written.out).toBe("\x1b[2mhm\x1b[22m\nYes\n\x1b[2mcut\x1b[22m\n");
});

it("shows no thinking when quiet, and no colour when NO_COLOR is set", () => {
  const quiet = terminal(true, true);
  print(quiet.terminal, false, ["thinking", "hm"], ["content", "Yes"]);
  expect(quiet.written).toEqual({ out: "Yes\n", err: "" });
  vi.stubEnv("NO_COLOR", "1");
  const plain = terminal(true);
  print(plain.terminal, true, ["thinking", "hm"]);
  expect(plain.written.out).toBe("hm\n");
});
