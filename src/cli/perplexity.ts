// `ds4 --perplexity-file F`: how likely the model finds a text. The text is tokenized as it is, without chat marks
// or begin token, and its first 32 tokens are context only, as in ds4, so that the figures can be compared.
import { UsageError } from "../core/errors.ts";
import { DEFAULT_CTX_TOKENS } from "../session/engine-loop.ts";
import { scoredRows } from "../session/evaluate.ts";
import { interruptible, type RunContext, readTextFile } from "./run-context.ts";
import { note } from "./terminal.ts";

const UNSCORED_TOKENS = 32;

/** Scores the file and prints one line (or JSON); returns the exit code. */
export async function runPerplexity(context: RunContext, path: string): Promise<number> {
  const { flags, terminal, model, bar } = context;
  let tokens = model.tokenizer.encode(readTextFile(path, "--perplexity-file"));
  if (tokens.length <= UNSCORED_TOKENS) {
    throw new UsageError(
      `--perplexity-file ${path}: expected more than ${UNSCORED_TOKENS} tokens, got ${tokens.length}`,
    );
  }
  const totalTokens = tokens.length;
  if (flags.tokens !== undefined) tokens = tokens.slice(0, UNSCORED_TOKENS + flags.tokens);
  const { windowTokens, strideTokens } = windowsOf(context);
  const headRows = scoredRows(model.tokenizer.vocabSize, flags.prefillChunk);
  const ctxTokens = Math.min(windowTokens, tokens.length);
  const engine = await context.openEngine({ headRows, ctxTokens });
  try {
    const { chunkTokens, skipTokens } = { chunkTokens: flags.prefillChunk, skipTokens: UNSCORED_TOKENS };
    const request = { tokens, windowTokens, strideTokens, skipTokens, chunkTokens };
    const result = await interruptible((signal) =>
      engine.evaluate(request, { signal, onProgress: bar.listener }),
    );
    bar.clear();
    const rate = result.evaluatedTokens / result.seconds;
    if (flags.json) {
      const { nll: _, ...figures } = result;
      const settings = { windowTokens, strideTokens, unscoredTokens: UNSCORED_TOKENS };
      const about = { file: path, model: model.path, backend: engine.info.backendName, totalTokens };
      const document = { ...about, ...settings, ...figures, tokensPerSecond: rate };
      terminal.out.write(`${JSON.stringify(document, null, 2)}\n`);
    } else {
      const { scoredCount, nllSum, nllMean, perplexity, perplexityError } = result;
      terminal.out.write(
        `tokens=${totalTokens} scored=${scoredCount} nll=${nllSum.toFixed(9)} avg_nll=${nllMean.toFixed(9)} ` +
          `ppl=${perplexity.toFixed(9)} ppl_error=${perplexityError.toFixed(6)}\n`,
      );
      note(terminal, `ds4: ${result.evaluatedTokens} tokens evaluated, ${rate.toFixed(1)} t/s`);
    }
    return 0;
  } finally {
    await engine.close();
  }
}

function windowsOf(context: RunContext): { windowTokens: number; strideTokens: number } {
  const { flags, model } = context;
  if (flags.pplCtx !== undefined) context.checkCtx(flags.pplCtx, "--ppl-ctx");
  const ownTokens = model.trainedCtxTokens ?? DEFAULT_CTX_TOKENS;
  const windowTokens = flags.pplCtx ?? flags.ctx ?? Math.min(DEFAULT_CTX_TOKENS, ownTokens);
  const strideTokens = flags.pplStride ?? Math.max(1, Math.floor(windowTokens / 2));
  if (strideTokens > windowTokens) {
    throw new UsageError(`--ppl-stride: expected 1..${windowTokens} (the window), got ${strideTokens}`);
  }
  return { windowTokens, strideTokens };
}
