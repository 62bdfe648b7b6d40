// Reads the tokenizer that a GGUF file carries in its metadata. Every array is checked for type and length before it
// is used; `add_bos_token` is ignored on purpose, since published files disagree and the template writes the mark.
import { quotedText } from "../core/quoted-text.ts";
import type { GgufFile, MetadataArray } from "../gguf/gguf-file.ts";
import { Tokenizer } from "./tokenizer.ts";
import { checkTables, SPECIAL_TEXT, type TokenizerTables, tokenizerError } from "./tokenizer-tables.ts";

/** What is read of a file: its name for messages and its metadata. */
export type TokenizerSource = Pick<GgufFile, "name" | "metadata">;

/** Names under which converters write the pre-tokenizer of V3 and V4; all mean the same three splits. */
const PRE_TOKENIZERS: readonly string[] = ["joyai-llm", "deepseek-v3"];
const PREFIX = "tokenizer.ggml.";
const INTEGER_TYPES: readonly string[] = ["u8", "i8", "u16", "i16", "u32", "i32"];
const VOCAB_SIZE_KEY = "deepseek4.vocab_size";

/** Tables from a file's metadata. Throws `tokenizer`, naming the key, for what is missing or does not fit together. */
export function tablesFromGguf(file: TokenizerSource): TokenizerTables {
  checkName(file, "model", ["gpt2"], true);
  checkName(file, "pre", PRE_TOKENIZERS, false);
  const tokens = stringArray(file, "tokens");
  const vocabSize = wholeNumber(file, VOCAB_SIZE_KEY);
  if (vocabSize !== undefined && vocabSize !== tokens.length)
    throw tokenizerError(
      file.name,
      `${VOCAB_SIZE_KEY} is ${vocabSize}, but ${PREFIX}tokens has ${tokens.length} entries; the file is damaged or ` +
        "was converted with the wrong tokenizer",
    );
  const types = array(file, "token_type");
  if (types.elementType !== "i32" && types.elementType !== "u32")
    throw tokenizerError(
      file.name,
      `${PREFIX}token_type: expected an array of i32, got ${types.elementType}`,
    );
  const tables: TokenizerTables = {
    tokens,
    tokenTypes: Int32Array.from(types.values as Int32Array | Uint32Array),
    merges: stringArray(file, "merges"),
    bosId: specialId(file, "bos_token_id", tokens, SPECIAL_TEXT.bos),
    eosId: specialId(file, "eos_token_id", tokens, SPECIAL_TEXT.eos),
    padId: wholeNumber(file, `${PREFIX}padding_token_id`),
  };
  checkTables(tables, file.name);
  return tables;
}

/** The tokenizer of a GGUF file. Throws `tokenizer` like `tablesFromGguf`. Does not keep the file. */
export function tokenizerFromGguf(file: TokenizerSource): Tokenizer {
  return new Tokenizer(tablesFromGguf(file), file.name);
}

function checkName(file: TokenizerSource, key: string, known: readonly string[], isRequired: boolean): void {
  const entry = file.metadata.get(PREFIX + key);
  if (entry === undefined && !isRequired) return;
  if (entry?.type === "string" && known.includes(entry.value)) return;
  const got =
    entry === undefined ? "nothing" : entry.type === "string" ? quotedText(entry.value) : entry.type;
  throw tokenizerError(file.name, `${PREFIX}${key}: expected ${known.join(" or ")}, got ${got}`);
}

function array(file: TokenizerSource, key: string): MetadataArray {
  const entry = file.metadata.get(PREFIX + key);
  if (entry?.type === "array") return entry;
  throw tokenizerError(file.name, `${PREFIX}${key}: expected an array, got ${entry?.type ?? "nothing"}`);
}

function stringArray(file: TokenizerSource, key: string): string[] {
  const { elementType, values } = array(file, key);
  if (elementType === "string") return values as string[];
  throw tokenizerError(file.name, `${PREFIX}${key}: expected an array of strings, got one of ${elementType}`);
}

function wholeNumber(file: TokenizerSource, key: string): number | undefined {
  const entry = file.metadata.get(key);
  if (entry === undefined) return undefined;
  if (entry.type === "u64" || entry.type === "i64") return Number(entry.value);
  if (INTEGER_TYPES.includes(entry.type)) return (entry as { value: number }).value;
  throw tokenizerError(file.name, `${key}: expected a whole number, got ${entry.type}`);
}

/** By key, else by text. Range is checked with the rest of the tables. */
function specialId(file: TokenizerSource, key: string, tokens: readonly string[], text: string): number {
  const given = wholeNumber(file, PREFIX + key);
  if (given !== undefined && (given < 0 || given >= tokens.length))
    throw tokenizerError(
      file.name,
      `${PREFIX}${key} is ${given}, outside the vocabulary of ${tokens.length} tokens; the metadata is damaged`,
    );
  const id = given ?? tokens.indexOf(text);
  if (id < 0) throw tokenizerError(file.name, `expected the key ${PREFIX}${key} or a token ${text}`);
  return id;
}
