import { readdirSync, readFileSync } from "node:fs";
import { Command } from "commander";
import { describe, expect, it } from "vitest";
import { CancelledError, Ds4Error, MemoryError, UsageError } from "../core/errors.ts";
import { backendOf } from "./backend-flags.ts";
import { benchCommand } from "./bench-command.ts";
import { ENVIRONMENT, environmentWarning } from "./environment.ts";
import { EXIT, exitCodeOf } from "./exit-codes.ts";
import { addRunFlags, normalizeArgv, type RunFlags, samplingOf, thinkingOf } from "./run-options.ts";
import { serveCommand } from "./serve-command.ts";

function parse(...argv: string[]): RunFlags {
  let flags: RunFlags | undefined;
  const command = new Command("ds4").exitOverride().configureOutput({ writeErr: () => {} });
  addRunFlags(command);
  command.action((parsed: RunFlags) => {
    flags = parsed;
  });
  command.parse(normalizeArgv(argv), { from: "user" });
  return flags!;
}

describe("flags", () => {
  it("have ds4's defaults", () => {
    expect(parse()).toMatchObject({
      temp: 1,
      topK: 0,
      topP: 1,
      minP: 0.05,
      backend: "auto",
      logprobsTopK: 20,
    });
    expect(parse().ctx).toBeUndefined();
    expect(thinkingOf(parse())).toBe("on");
  });

  it("understand -sys in both spellings, but not after --", () => {
    expect(parse("-sys", "Be brief").system).toBe("Be brief");
    expect(parse("-sys=Be brief").system).toBe("Be brief");
    expect(normalizeArgv(["--", "-sys"])).toEqual(["--", "-sys"]);
  });

  it.each([
    [["--temp", "-1"], "--temp", "a number in 0..100"],
    [["--temp", "hot"], "--temp", "a number in 0..100"],
    [["--temp", "0x10"], "--temp", "a number in 0..100"],
    [["--temp", "NaN"], "--temp", "a number in 0..100"],
    [["--top-p", "1.5"], "--top-p", "a number in 0..1"],
    [["--top-k", "2.5"], "--top-k", "an integer in 0.."],
    [["-c", "0"], "--ctx", "an integer in 1.."],
    [["-n", "1e99"], "--tokens", "an integer in 1.."],
    [["--seed", "18446744073709551616"], "--seed", "0..2^64-1"],
    [["--logit-bias", "x=1"], "--logit-bias", "TOKEN_ID=VALUE"],
    [["--logprobs-top-k", "129"], "--logprobs-top-k", "an integer in 1..128"],
    [["--backend", "metal"], "--backend", "auto, cuda, cpu, reference"],
  ])("%j is refused with the flag and what it accepts", (argv, flag, accepted) => {
    let message = "";
    try {
      parse(...argv);
    } catch (error) {
      message = (error as Error).message;
    }
    expect(message).toContain(flag);
    expect(message).toContain(accepted);
  });

  it("suggest the flag that was meant (case 134)", () => {
    expect(() => parse("--ctxx", "4096")).toThrow(/Did you mean --ctx\?/);
  });

  it("refuse combinations that exclude each other", () => {
    expect(() => parse("--think", "--nothink")).toThrow(/cannot be used with/);
    expect(() => parse("--nothink", "--think-max")).toThrow(/cannot be used with/);
    expect(() => parse("-p", "a", "--prompt-file", "b")).toThrow(/cannot be used with/);
    expect(() => backendOf(parse("--cpu", "--backend", "reference"))).toThrow(UsageError);
    expect(() => backendOf(parse("--cuda", "--backend", "cpu"))).toThrow(UsageError);
    expect(() => parse("--cuda", "--cpu")).toThrow(/cannot be used with/);
    expect(backendOf(parse("--cpu"))).toBe("cpu");
    expect(backendOf(parse("--cuda"))).toBe("cuda");
  });

  it("collect repeatable flags and take negative numbers", () => {
    const flags = parse("--stop", "A", "--stop", "B", "--logit-bias", "5=-100", "--presence-penalty", "-0.5");
    expect(flags.stop).toEqual(["A", "B"]);
    expect(samplingOf(flags)).toMatchObject({ logitBias: { 5: -100 }, presencePenalty: -0.5 });
  });

  it("use the given seed, else a new one each run", () => {
    expect(samplingOf(parse("--seed", "18446744073709551615")).seed).toBe(2n ** 64n - 1n);
    expect(samplingOf(parse()).seed).not.toBe(samplingOf(parse()).seed);
  });
});

it("warns once of unknown variables with our prefix (case 135)", () => {
  expect(environmentWarning({ PATH: "x", DS4_NATIVE: "off" })).toBeUndefined();
  const warning = environmentWarning({ DS4_ZZ: "1", DS4_FOO: "1" });
  expect(warning).toContain("DS4_FOO, DS4_ZZ");
  expect(warning?.split("\n").length).toBe(1);
});

it("knows every variable that the sources read", () => {
  const root = new URL("../../", import.meta.url);
  const found = new Set<string>();
  for (const folder of ["src", "native"]) {
    for (const name of readdirSync(new URL(folder, root), { recursive: true, encoding: "utf8" })) {
      if (!/\.(ts|cpp|h)$/.test(name) || name.endsWith(".test.ts")) continue;
      const text = readFileSync(new URL(`${folder}/${name}`, root), "utf8");
      for (const match of text.matchAll(/(?:getenv\("|process\.env\.)(DS4_\w+)/g)) found.add(match[1]);
    }
  }
  expect([...found].sort()).toEqual(Object.keys(ENVIRONMENT).sort());
});

it("maps errors to the documented exit codes", () => {
  expect(exitCodeOf(new UsageError("x"))).toBe(EXIT.usage);
  expect(exitCodeOf(new MemoryError("x", 2, 1))).toBe(EXIT.memory);
  expect(exitCodeOf(new CancelledError())).toBe(EXIT.interrupted);
  expect(exitCodeOf(new Ds4Error("gguf", "x"))).toBe(EXIT.failure);
  expect(exitCodeOf(new Error("x"))).toBe(EXIT.failure);
});

/** Added to every command when it runs. */
const OF_ALL = new Set(["--help", "--version"]);

it.each<[string, string, () => Command]>([
  ["ds4", "## Flags", () => rootCommand()],
  ["ds4 bench", "## Measuring", () => benchCommand("bench")],
  ["ds4 serve", "## Serving", () => serveCommand("serve")],
])(
  "%s has every flag that the README names, and the README every flag of the help (case 136)",
  (_, heading, make) => {
    const command = make();
    const readme = readFileSync(new URL("../../README.md", import.meta.url), "utf8");
    const [section] = readme.slice(readme.indexOf(heading) + heading.length).split("\n## ");
    const named = new Set([...section.matchAll(/--[a-z][\w-]+/g)].map(([flag]) => flag));
    const known = new Map(command.options.map((option) => [option.long, option.hidden]));
    for (const flag of named) expect(known.has(flag) || OF_ALL.has(flag), flag).toBe(true);
    for (const [flag, hidden] of known) if (!hidden) expect(named.has(flag!), flag).toBe(true);
  },
);

function rootCommand(): Command {
  const command = new Command("ds4");
  addRunFlags(command);
  return command;
}
