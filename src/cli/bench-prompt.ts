// The prompt of a benchmark: a text's tokens, or random ones.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { UsageError } from "../core/errors.ts";
import { Random } from "../core/random.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { readTextFile } from "./run-context.ts";

const DEFAULT_TEXT_PATH = fileURLToPath(new URL("../../models/nano/calibration.txt", import.meta.url));
/** The same tokens in every run. */
const SEED = 1;

/** Where tokens come from; without either, from the bundled text, repeated. */
export interface BenchPrompt {
  /** A text, which must suffice. */
  promptFile?: string;
  /** All of the vocabulary but special tokens, uniformly: where a file of random weights spells text in single bytes. */
  randomPrompt?: boolean;
}

/** `count` tokens or more. Throws `usage` when a file has fewer or both sources are asked for, `io` when it cannot be read. */
export function benchTokens(tokenizer: Tokenizer, prompt: BenchPrompt, count: number): Int32Array {
  const { promptFile, randomPrompt } = prompt;
  if (randomPrompt) {
    if (promptFile === undefined) return randomTokens(tokenizer, count);
    throw new UsageError("--prompt-file and --random-prompt both give the prompt: take one of them");
  }
  if (promptFile !== undefined) {
    const tokens = tokenizer.encode(readTextFile(promptFile, "--prompt-file"));
    if (tokens.length >= count) return tokens;
    throw new UsageError(
      `--prompt-file ${promptFile}: the last context needs ${count} tokens, got ${tokens.length}; take a longer text or a smaller --ctx-max`,
    );
  }
  const text = tokenizer.encode(readFileSync(DEFAULT_TEXT_PATH, "utf8"));
  return Int32Array.from({ length: count }, (_, index) => text[index % text.length]);
}

function randomTokens(tokenizer: Tokenizer, count: number): Int32Array {
  const random = new Random(SEED);
  return Int32Array.from({ length: count }, () => {
    for (;;) {
      const id = Math.floor(random.nextFloat() * tokenizer.vocabSize);
      if (!tokenizer.isSpecial(id)) return id;
    }
  });
}
