// The diagnostic dumps: a prompt's tokens, the logits after it, a greedy continuation with alternatives. The JSON
// has ds4's keys, so that its tools can read it.
import { writeFileSync } from "node:fs";
import { UsageError } from "../core/errors.ts";
import type { TokenLogprob } from "../session/logprobs.ts";
import { argmax } from "../session/sampler.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { interruptible, type RunContext } from "./run-context.ts";
import { thinkingOf } from "./run-options.ts";

function describeToken(tokenizer: Tokenizer, id: number) {
  const bytes = tokenizer.tokenBytes(id);
  return { id, text: new TextDecoder().decode(bytes), bytes: Array.from(bytes) };
}

function writeJson(path: string, flag: string, text: string): void {
  try {
    writeFileSync(path, text);
  } catch (error) {
    throw new UsageError(`${flag} ${path}: ${(error as Error).message}`);
  }
}

/** `--dump-tokens`: one line per token of what would be evaluated, or JSON. Loads no weights. */
export function dumpTokens(context: RunContext, text: string): number {
  const { tokenizer } = context.model;
  const tokens = context.promptTokens(text, thinkingOf(context.flags));
  const entries = Array.from(tokens, (id) => describeToken(tokenizer, id));
  const lines = context.flags.json
    ? JSON.stringify(entries)
    : entries.map(({ id, text }) => `${String(id).padStart(6)}  ${JSON.stringify(text)}`).join("\n");
  context.terminal.out.write(`${lines}\n`);
  return 0;
}

/** `--dump-logits FILE`. */
export async function dumpLogits(context: RunContext, text: string, path: string): Promise<number> {
  const { flags, model, bar } = context;
  const tokens = context.promptTokens(text, thinkingOf(flags));
  const engine = await context.openEngine();
  try {
    const options = { chunkTokens: flags.prefillChunk, onProgress: bar.listener };
    const { logits } = await interruptible((signal) => engine.prefill(tokens, { ...options, signal }));
    bar.clear();
    const best = argmax(logits);
    const { ctxTokens } = await engine.stats();
    const document = {
      source: "ds4-ts",
      model: model.path,
      backend: engine.info.backendName,
      prompt_tokens: tokens.length,
      ctx: ctxTokens,
      vocab: logits.length,
      argmax_token: describeToken(model.tokenizer, best),
      argmax_logit: logits[best],
      logits: Array.from(logits), // JSON writes infinities as null, as ds4 does
    };
    writeJson(path, "--dump-logits", `${JSON.stringify(document)}\n`);
    return 0;
  } finally {
    await engine.close();
  }
}

/** `--dump-logprobs FILE`: the stop token is the last step. */
export async function dumpLogprobs(context: RunContext, text: string, path: string): Promise<number> {
  const { flags, model, bar } = context;
  const { tokenizer } = model;
  const tokens = context.promptTokens(text, thinkingOf(flags));
  const engine = await context.openEngine();
  const named = ({ tokenId, logit, logprob }: TokenLogprob) => ({
    token: describeToken(tokenizer, tokenId),
    logit,
    logprob,
  });
  try {
    const steps: unknown[] = [];
    const request = {
      ...context.request(tokens, "off"),
      sampling: { temperature: 0 },
      stopTokenIds: [],
      stopStrings: [],
      topLogprobs: flags.logprobsTopK,
    };
    await interruptible(async (signal) => {
      for await (const event of engine.generate(request, { signal, onProgress: bar.listener })) {
        if (event.kind !== "token") continue;
        const { tokenId, alternatives = [] } = event;
        const selected = describeToken(tokenizer, tokenId);
        steps.push({ step: steps.length, selected, top_logprobs: alternatives.map(named) });
        if (tokenizer.stopIds.includes(tokenId)) break;
      }
    });
    bar.clear();
    const { ctxTokens } = await engine.stats();
    const head = {
      source: "ds4-ts",
      prompt_tokens: tokens.length,
      ctx: ctxTokens,
      top_k: flags.logprobsTopK,
    };
    writeJson(path, "--dump-logprobs", `${JSON.stringify({ ...head, steps })}\n`);
    return 0;
  } finally {
    await engine.close();
  }
}
