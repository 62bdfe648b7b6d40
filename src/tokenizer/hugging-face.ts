// Reads a checkpoint's tokenizer.json (the Hugging Face tokenizers format) into tokenizer tables. Accepts only the
// one pipeline that the engine implements and refuses any other, since a near miss would give wrong ids silently.
import { BYTE_CHARS } from "./byte-alphabet.ts";
import { Tokenizer } from "./tokenizer.ts";
import {
  checkTables,
  MAX_VOCAB_SIZE,
  SPECIAL_TEXT,
  TOKEN_TYPE,
  type TokenizerTables,
  tokenizerError,
} from "./tokenizer-tables.ts";

/** The isolating splits of V3 and V4, in order of application, as written in tokenizer.json. */
export const SPLIT_PATTERNS: readonly string[] = [
  "\\p{N}{1,3}",
  "[一-龥぀-ゟ゠-ヿ]+",
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" +
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
];

/** Options of `tablesFromHuggingFace`. */
export interface HuggingFaceOptions {
  /** Pads the vocabulary with unused tokens `[PAD<id>]` up to this size (the model's embedding rows). */
  vocabSize?: number;
  /** Name for messages. Default `tokenizer.json`. */
  where?: string;
}

type Json = Record<string, unknown>;

const isObject = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Tables from the parsed contents of a tokenizer.json. Added tokens become control tokens if marked special and
 * user-defined ones otherwise, like llama.cpp's converter does. Throws `tokenizer` for another kind of tokenizer or
 * tables that do not hold together.
 */
export function tablesFromHuggingFace(json: unknown, options: HuggingFaceOptions = {}): TokenizerTables {
  const where = options.where ?? "tokenizer.json";
  if (!isObject(json) || !isObject(json.model))
    throw tokenizerError(where, "expected an object with a model");
  checkPipeline(json, json.model, where);
  const byId = new Map<number, { text: string; type: number }>();
  const put = (id: unknown, text: unknown, type: number): void => {
    if (
      typeof text !== "string" ||
      !Number.isInteger(id) ||
      (id as number) < 0 ||
      (id as number) >= MAX_VOCAB_SIZE
    )
      throw tokenizerError(where, `token ${JSON.stringify(text)} has the id ${JSON.stringify(id)}`);
    const known = byId.get(id as number);
    if (known !== undefined && known.text !== text)
      throw tokenizerError(
        where,
        `tokens ${JSON.stringify(known.text)} and ${JSON.stringify(text)} share id ${id}`,
      );
    byId.set(id as number, { text, type });
  };
  const vocab = json.model.vocab;
  if (!isObject(vocab)) throw tokenizerError(where, "expected model.vocab to be an object of text to id");
  for (const text of Object.keys(vocab)) put(vocab[text], text, TOKEN_TYPE.normal);
  for (const added of Array.isArray(json.added_tokens) ? json.added_tokens : []) {
    if (!isObject(added)) throw tokenizerError(where, "expected objects in added_tokens");
    put(added.id, added.content, added.special === true ? TOKEN_TYPE.control : TOKEN_TYPE.userDefined);
  }
  const tables = gather(byId, readMerges(json.model.merges, where), options.vocabSize ?? 0, where);
  checkTables(tables, where);
  return tables;
}

/** A tokenizer straight from the parsed contents of a tokenizer.json. Throws like `tablesFromHuggingFace`. */
export function tokenizerFromHuggingFace(json: unknown, options: HuggingFaceOptions = {}): Tokenizer {
  return new Tokenizer(tablesFromHuggingFace(json, options), options.where ?? "tokenizer.json");
}

function gather(
  byId: ReadonlyMap<number, { text: string; type: number }>,
  merges: string[],
  vocabSize: number,
  where: string,
): TokenizerTables {
  let count = 0;
  for (const id of byId.keys()) count = Math.max(count, id + 1);
  if (vocabSize !== 0 && vocabSize < count)
    throw tokenizerError(
      where,
      `holds ids up to ${count - 1}, but the model has only ${vocabSize} embedding rows`,
    );
  count = Math.max(count, vocabSize);
  const tokens: string[] = [];
  const tokenTypes = new Int32Array(count);
  const idOf = new Map<string, number>();
  for (let id = 0; id < count; id++) {
    const entry = byId.get(id) ?? { text: `[PAD${id}]`, type: TOKEN_TYPE.unused };
    tokens.push(entry.text);
    tokenTypes[id] = entry.type;
    idOf.set(entry.text, id);
  }
  const bosId = idOf.get(SPECIAL_TEXT.bos);
  const eosId = idOf.get(SPECIAL_TEXT.eos);
  if (bosId === undefined || eosId === undefined)
    throw tokenizerError(where, `expected the tokens ${SPECIAL_TEXT.bos} and ${SPECIAL_TEXT.eos}`);
  return { tokens, tokenTypes, merges, bosId, eosId, padId: idOf.get(SPECIAL_TEXT.pad) };
}

/** Merges come as `"left right"` strings in older files and as pairs in newer ones. */
function readMerges(value: unknown, where: string): string[] {
  if (!Array.isArray(value)) throw tokenizerError(where, "expected model.merges to be an array");
  return value.map((merge: unknown, rank) => {
    const text = Array.isArray(merge) && merge.length === 2 ? `${merge[0]} ${merge[1]}` : merge;
    if (typeof text !== "string")
      throw tokenizerError(
        where,
        `merge ${rank}: expected "left right" or a pair, got ${JSON.stringify(merge)}`,
      );
    return text;
  });
}

/** DeepSeek's own files hold the line breaks of the pattern as characters, others as escapes; both mean the same. */
function spellLineBreaks(pattern: unknown): unknown {
  return typeof pattern === "string" ? pattern.replaceAll("\r", "\\r").replaceAll("\n", "\\n") : pattern;
}

function checkPipeline(json: Json, model: Json, where: string): void {
  const refuse = (what: string, got: unknown, expected: string): never => {
    throw tokenizerError(where, `${what} is ${JSON.stringify(got)}; this engine implements ${expected}`);
  };
  if (model.type !== "BPE") refuse("model.type", model.type, '"BPE"');
  for (const flag of ["byte_fallback", "ignore_merges", "dropout", "unk_token"])
    if (model[flag]) refuse(`model.${flag}`, model[flag], "plain byte-level BPE without it");
  for (const affix of ["continuing_subword_prefix", "end_of_word_suffix"])
    if (model[affix]) refuse(`model.${affix}`, model[affix], "no affixes");
  const normalizer = json.normalizer;
  const isEmpty =
    isObject(normalizer) && Array.isArray(normalizer.normalizers) && !normalizer.normalizers.length;
  if (normalizer && !isEmpty) refuse("normalizer", normalizer, "none");
  const sequence = isObject(json.pre_tokenizer) ? json.pre_tokenizer.pretokenizers : undefined;
  const steps: unknown[] = Array.isArray(sequence) ? sequence : [];
  const splits = steps.filter((step): step is Json => isObject(step) && step.type === "Split");
  const patterns = splits
    .map((step) => (isObject(step.pattern) ? step.pattern.Regex : undefined))
    .map(spellLineBreaks);
  if (JSON.stringify(patterns) !== JSON.stringify(SPLIT_PATTERNS))
    refuse(
      "the list of split patterns",
      patterns,
      `that of DeepSeek V3 and V4: ${JSON.stringify(SPLIT_PATTERNS)}`,
    );
  if (splits.some((step) => step.behavior !== "Isolated" || step.invert === true))
    refuse("a split's behaviour", splits, '"Isolated", not inverted');
  const last = steps.at(-1);
  if (
    steps.length !== splits.length + 1 ||
    !isObject(last) ||
    last.type !== "ByteLevel" ||
    last.add_prefix_space
  )
    refuse(
      "the last pre-tokenizer step",
      last,
      `ByteLevel without a prefix space (alphabet ${BYTE_CHARS[0]}…)`,
    );
}
