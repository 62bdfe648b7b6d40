// The command as a user runs it, on the exact nano model with the reference backend (so that it needs no compiler).
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { nanoModelPath } from "../fixtures/nano-model.ts";

const root = join(import.meta.dirname, "..", "..");
const scratch = mkdtempSync(join(tmpdir(), "ds4-e2e-"));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

interface Outcome {
  code: number | null;
  out: string;
  err: string;
}

function start(argv: string[], environment: Record<string, string> = {}) {
  const env = { ...process.env, ...environment };
  const child = spawn(process.execPath, ["src/cli/ds4.ts", ...argv], { cwd: root, env });
  const outcome: Outcome = { code: null, out: "", err: "" };
  child.stdout.setEncoding("utf8").on("data", (text) => {
    outcome.out += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text) => {
    outcome.err += text;
  });
  const done = new Promise<Outcome>((resolve) =>
    child.on("close", (code) => {
      outcome.code = code;
      resolve(outcome);
    }),
  );
  return { child: child as ChildProcess & { stdin: NodeJS.WritableStream }, outcome, done };
}

function run(argv: string[], input = "", environment: Record<string, string> = {}): Promise<Outcome> {
  const { child, done } = start(argv, environment);
  child.stdin.end(input);
  return done;
}

const MODEL = ["-m", nanoModelPath(), "--backend", "reference"];
const NANO = [...MODEL, "--temp", "0", "--nothink"];
/** Rendered prompts with the greedy text that another implementation gave; the longer ones are golden tests. */
const shortPrompts = (
  JSON.parse(readFileSync(join(root, "test/fixtures/nano/vectors.json"), "utf8")) as Record<string, string>[]
)
  .filter((vector) => vector.greedy_text !== "" && vector.text.length < 200)
  .map(({ name, text, greedy_text }) => [name, text, greedy_text.replace("<｜end▁of▁sentence｜>", "")]);
const FRANCE = ["-p", "What is the capital of France?"];

describe("ds4 with the nano model", () => {
  it("answers a prompt: stdout carries the answer alone", async () => {
    const { code, out, err } = await run([...NANO, ...FRANCE]);
    expect(out).toBe("The capital of France is Paris.\n");
    expect(err).toMatch(
      /prefill 12 tokens, [\d.]+ t\/s · decode 10 tokens, [\d.]+ t\/s · memory: weights .*, KV /,
    );
    expect(err).not.toContain("\x1b");
    expect(code).toBe(0);
  });

  it("says nothing else when quiet, and gives one JSON document when asked", async () => {
    const { out, err } = await run([...NANO, ...FRANCE, "--quiet", "--json", "--seed", "7"]);
    expect(err).toBe("");
    expect(JSON.parse(out)).toMatchObject({
      content: "The capital of France is Paris.",
      thinking: "",
      finishReason: "stop",
      seed: "7",
      usage: { promptTokens: 12, completionTokens: 10 },
    });
  });

  it.each(shortPrompts)(
    "continues %s as the reference implementation does",
    async (_name, text, expected) => {
      const { out } = await run([...MODEL, "--temp", "0", "--raw", "-p", text, "--json", "--quiet"]);
      expect(JSON.parse(out).content).toBe(expected);
    },
  );

  it("gives the same answer for any prefill chunk, and cuts at stop strings and limits", async () => {
    const one = await run([...NANO, ...FRANCE, "--quiet", "--prefill-chunk", "1", "--stop", " Paris"]);
    expect(one.out).toBe("The capital of France is\n");
    const short = await run([...NANO, ...FRANCE, "--quiet", "-n", "2", "--json"]);
    expect(JSON.parse(short.out)).toMatchObject({ content: "The capital", finishReason: "length" });
  });

  it("samples the same text for the same seed", async () => {
    const argv = [...MODEL, "--quiet", "--nothink", "--seed", "5", "--temp", "2", "-n", "12", "-p", "Hi"];
    const [a, b] = await Promise.all([run(argv), run(argv)]);
    expect(a.out).toBe(b.out);
  });

  it("chats over a pipe; the second turn evaluates only what is new (case 99)", async () => {
    const chat = join(scratch, "chat.json");
    const input = `Hello\nWhat is the capital of Italy?\n/status\n/save ${chat}\n/nope\n/quit\nnever read\n`;
    const { code, out, err } = await run(NANO, input);
    const [hello, italy] = out.trimEnd().split("\n");
    expect(hello).toMatch(/^Hello/);
    expect(italy).toMatch(/Rome/);
    const reused = /prefill (\d+) tokens \((\d+) reused\)/.exec(err)!;
    expect(Number(reused[1])).toBe(13); // end token, user mark, nine of text, assistant mark, think-close mark
    expect(Number(reused[2])).toBeGreaterThan(10);
    expect(err).toContain("of 32768 tokens");
    expect(err).toContain("unknown command /nope");
    const saved = JSON.parse(readFileSync(chat, "utf8"));
    expect(saved.messages.map((message: { role: string }) => message.role)).toEqual([
      "user",
      "assistant",
      "user",
      "assistant",
    ]);
    expect(code).toBe(0);
  });

  it("reads files as turns, resizes the context and reports when it is full", async () => {
    const file = join(scratch, "question.txt");
    writeFileSync(file, "What is the capital of France?");
    const { out, err } = await run(
      NANO,
      `/read ${file}\n/ctx 10\nHello there, how are you today?\n/ctx 99999999\n`,
    );
    expect(out).toMatch(/Paris/);
    expect(err).toContain("the context holds 10 tokens");
    expect(err).toContain("/ctx: this model was trained for 1..65536 tokens");
  });

  it("stops an answer on Ctrl+C with exit code 130 and keeps what was written", async () => {
    const endless = [...NANO, "--raw", "-p", "And it came to pass", "-n", "5000", "--logit-bias", "1=-100"];
    const { child, outcome, done } = start(endless);
    child.stdin.end();
    while (outcome.out.length < 20) await new Promise((resolve) => setTimeout(resolve, 20));
    child.kill("SIGINT");
    const { code, out } = await done;
    expect(code).toBe(130);
    expect(out.length).toBeLessThan(5000);
    expect(out.endsWith("\n")).toBe(true);
  });

  it("prints the tokens that would be evaluated, marks in text staying text", async () => {
    const { out } = await run([...MODEL, "--dump-tokens", "--json", "--nothink", "-p", "Hello<｜User｜>"]);
    const tokens = JSON.parse(out) as { id: number; text: string }[];
    expect(tokens[0]).toMatchObject({ id: 0, text: "<｜begin▁of▁sentence｜>" });
    expect(tokens.filter(({ text }) => text === "<｜User｜>").length).toBe(1);
    const raw = await run([...MODEL, "--dump-tokens", "--raw", "-p", "<｜User｜>Hello"]);
    expect(raw.out).toBe('  4087  "<｜User｜>"\n  1580  "Hello"\n');
  });

  it("scores a text and dumps logits and log-probabilities", async () => {
    const text = join(scratch, "text.txt");
    writeFileSync(text, readFileSync(join(root, "models", "nano", "calibration.txt"), "utf8").slice(0, 800));
    const line = /^tokens=\d+ scored=40 nll=[\d.]+ avg_nll=([\d.]+) ppl=([\d.]+) ppl_error=[\d.]+\n$/;
    const scored = await run([...MODEL, "--perplexity-file", text, "-n", "40"]);
    const [, mean, perplexity] = line.exec(scored.out)!;
    expect(Number(perplexity)).toBeCloseTo(Math.exp(Number(mean)), 6);
    const windows = ["--ppl-ctx", "48", "--ppl-stride", "24", "--json", "-n", "40"];
    const json = await run([...MODEL, "--perplexity-file", text, ...windows]);
    expect(JSON.parse(json.out)).toMatchObject({ windowTokens: 48, strideTokens: 24, scoredCount: 40 });

    const [logits, logprobs] = [join(scratch, "logits.json"), join(scratch, "logprobs.json")];
    await run([...NANO, ...FRANCE, "--dump-logits", logits]);
    const dump = JSON.parse(readFileSync(logits, "utf8"));
    expect(dump).toMatchObject({ prompt_tokens: 12, vocab: 4096, argmax_token: { text: "The" } });
    expect(dump.logits.length).toBe(4096);
    await run([...NANO, ...FRANCE, "--dump-logprobs", logprobs, "--logprobs-top-k", "3"]);
    const { steps } = JSON.parse(readFileSync(logprobs, "utf8"));
    expect(steps.length).toBe(11); // the stop token is the last step
    expect(steps[0].top_logprobs.length).toBe(3);
    expect(steps[0].top_logprobs[0].token).toEqual(steps[0].selected);
    expect(steps[0].top_logprobs[0].logprob).toBeLessThanOrEqual(0);
  });

  it("refuses contexts, biases and prompts that the model cannot take, naming the flag", async () => {
    const wrong = await Promise.all([
      run([...MODEL, "-c", "70000", "-p", "x"]),
      run([...MODEL, "--logit-bias", "4096=1", "-p", "x"]),
      run([...MODEL, "-p", ""]),
      run([...MODEL, "--prompt-file", join(scratch, "missing")]),
    ]);
    expect(wrong.map(({ code }) => code)).toEqual([2, 2, 2, 2]);
    expect(wrong[0].err).toContain("--ctx: this model was trained for 1..65536 tokens, got 70000");
    expect(wrong[1].err).toContain("--logit-bias: expected token ids in 0..4095");
    expect(wrong[3].err).toContain("--prompt-file");
  });
});

it("describes a model file, through the flag and the command", async () => {
  const path = nanoModelPath();
  const [flag, command] = await Promise.all([
    run(["--inspect", "-m", path]),
    run(["inspect", path, "--json"]),
  ]);
  expect(flag.out).toContain("deepseek4.block_count");
  expect(JSON.parse(command.out)).toMatchObject({ architecture: "deepseek4", tensorCount: 178 });
});

describe("ds4 without a model", () => {
  it("exits with 2 and a suggestion on an unknown flag (case 134)", async () => {
    const { code, err } = await run(["--ctxx", "4096"]);
    expect(code).toBe(2);
    expect(err).toContain("--ctx?");
  });

  it("names stray arguments, missing and broken models", async () => {
    const [stray, missing, broken] = await Promise.all([
      run(["hello"]),
      run(["-m", "no-such.gguf", "-p", "x"]),
      run(["-m", "package.json", "-p", "x"]),
    ]);
    expect(stray).toMatchObject({ code: 2, err: expect.stringContaining('unexpected argument "hello"') });
    expect(missing).toMatchObject({ code: 2, err: expect.stringContaining("no-such.gguf") });
    expect(broken).toMatchObject({ code: 1, err: expect.stringMatching(/GGUF/i) });
    expect(broken.err).not.toContain("    at ");
  });

  it("says its version", async () => {
    const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
    expect(await run(["--version"])).toMatchObject({ code: 0, out: `${version}\n`, err: "" });
  });

  it("warns of unknown variables and accepts every flag that its help shows (cases 135, 136)", async () => {
    const { code, out, err } = await run(["--help"], "", { DS4_NO_SUCH: "1" });
    expect(code).toBe(0);
    expect(err.trim().split("\n").length).toBe(1);
    expect(err).toContain("DS4_NO_SUCH");
    const flags = [...out.matchAll(/^ {2}(?:-\w, )?(--[\w-]+)( <)?/gm)].filter(
      ([, flag]) => flag !== "--help" && flag !== "--version",
    );
    expect(flags.length).toBeGreaterThan(30);
    // An unknown flag is reported before a missing value: so each flag alone tells whether it is known.
    const { main } = await import("../../src/cli/program.ts");
    for (const [, flag, takesValue] of flags) {
      if (!takesValue) continue;
      const written: string[] = [];
      const write = process.stderr.write;
      process.stderr.write = ((text: string) => written.push(text)) as never;
      const exit = await main([flag], []).finally(() => {
        process.stderr.write = write;
      });
      expect(exit).toBe(2);
      expect(written.join("")).toContain("argument missing");
    }
  });
});
