// Tokenizer tables as metadata: the inverse of tokenizer/gguf-tables.ts.
import type { MetadataValue } from "../gguf/gguf-file.ts";
import type { TokenizerTables } from "../tokenizer/tokenizer-tables.ts";

/** Tokenizer tables under the keys of published files. The chat template writes the begin token itself. */
export function tokenizerMetadata(tables: TokenizerTables): Map<string, MetadataValue> {
  const { tokens, tokenTypes, merges, bosId, eosId, padId } = tables;
  const entries: [key: string, value: MetadataValue][] = [
    ["model", { type: "string", value: "gpt2" }],
    ["pre", { type: "string", value: "joyai-llm" }],
    ["tokens", { type: "array", elementType: "string", values: tokens }],
    ["token_type", { type: "array", elementType: "i32", values: tokenTypes }],
    ["merges", { type: "array", elementType: "string", values: merges }],
    ["bos_token_id", { type: "u32", value: bosId }],
    ["eos_token_id", { type: "u32", value: eosId }],
  ];
  if (padId !== undefined) entries.push(["padding_token_id", { type: "u32", value: padId }]);
  entries.push(["add_bos_token", { type: "bool", value: true }]);
  entries.push(["add_eos_token", { type: "bool", value: false }]);
  return new Map(entries.map(([key, value]) => [`tokenizer.ggml.${key}`, value]));
}
