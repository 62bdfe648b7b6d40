// What the main thread needs of a model: its header and tokenizer, without weights. The engine's worker opens the
// file again for itself.
import { existsSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { UsageError } from "../core/errors.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { withGguf } from "../gguf/open-gguf.ts";
import type { Checkpoint } from "../template/conversation.ts";
import { tokenizerFromGguf } from "../tokenizer/gguf-tables.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";

const PACKAGE_ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** The model that runs when none is named. */
export const BUNDLED_MODEL_PATH = join(PACKAGE_ROOT, "models", "nano-q2-q4.gguf");

/** A model file as far as text needs it. */
export interface OpenModel {
  path: string;
  /** Of all parts. */
  sizeBytes: number;
  tokenizer: Tokenizer;
  /** Which release the weights are of, as far as the file says; it decides the effort texts. */
  checkpoint: Checkpoint;
  /** Context the model was trained for, if the file says. */
  trainedCtxTokens: number | undefined;
}

/** The path to open. Throws `usage` when no such file exists. */
export function resolveModelPath(model: string | undefined): string {
  const path = model ?? BUNDLED_MODEL_PATH;
  if (existsSync(path)) return path;
  const what = model === undefined ? "the bundled model is missing" : "no such model file";
  throw new UsageError(`${what}: ${path}; name a GGUF file with -m FILE`);
}

/** Reads header and tokenizer and closes the file again. Throws `gguf`, `io` or `tokenizer`. */
export function openModel(path: string): OpenModel {
  return withGguf(path, (file) => readModel(file, path));
}

/** The same of a file that was opened from `path` and stays open. Throws `gguf` or `tokenizer`. */
export function readModel(file: GgufFile, path: string): OpenModel {
  return {
    path,
    sizeBytes: file.sizeBytes,
    tokenizer: tokenizerFromGguf(file),
    checkpoint: checkpointOf(file, path),
    trainedCtxTokens: trainedContext(file),
  };
}

// The 0731 release differs from the preview in its effort texts only, and no metadata key tells them apart: the
// published files carry the date in their names.
function checkpointOf(file: GgufFile, path: string): Checkpoint {
  const name = file.metadata.get("general.name");
  const text = `${basename(path)} ${name?.type === "string" ? name.value : ""}`;
  return text.includes("0731") ? "0731" : "preview";
}

function trainedContext(file: GgufFile): number | undefined {
  const value = file.metadata.get("deepseek4.context_length");
  return value !== undefined && "value" in value ? Number(value.value) : undefined;
}
