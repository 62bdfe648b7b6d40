// The common middle form of a tokenizer: what a GGUF file stores and what a checkpoint's tokenizer.json is turned
// into. Knows the rules that make such tables usable; knows neither file format.

import { Ds4Error } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";

/** Token types as GGUF numbers them. */
export const TOKEN_TYPE = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

/** Vocabulary and merges of a byte-level BPE tokenizer. */
export interface TokenizerTables {
  /** Text of each id: in GPT-2's byte alphabet for normal tokens, literal for control and user-defined ones. */
  tokens: string[];
  /** Type of each id, numbered as in `TOKEN_TYPE`; as long as `tokens`. */
  tokenTypes: Int32Array;
  /** `"left right"`, best first: the index is the rank. */
  merges: string[];
  bosId: number;
  eosId: number;
  /** Undefined if the vocabulary has no padding token. */
  padId: number | undefined;
}

/** Largest vocabulary read: eight times that of V4, far below what would hurt. */
export const MAX_VOCAB_SIZE = 1 << 20;
/** Most merges read: ranks are packed into 21 bits of a heap key. */
export const MAX_MERGES = (1 << 21) - 1;
/** Longest token text in code units; real ones stay under 200. */
export const MAX_TOKEN_CHARS = 4096;

/** The special tokens that this project looks up. Ids differ between vocabularies: always go by text. */
export const SPECIAL_TEXT = {
  bos: "<｜begin▁of▁sentence｜>",
  eos: "<｜end▁of▁sentence｜>",
  pad: "<｜▁pad▁｜>",
  user: "<｜User｜>",
  assistant: "<｜Assistant｜>",
  latestReminder: "<｜latest_reminder｜>",
  thinkStart: "<think>",
  thinkEnd: "</think>",
  dsml: "｜DSML｜",
} as const;

const BYTE_TOKEN = /^<0x[0-9A-Fa-f]{2}>$/;

/** A tokenizer error (code `tokenizer`); `where` names the file or JSON it came from. */
export function tokenizerError(where: string, problem: string): Ds4Error {
  return new Ds4Error("tokenizer", `${where}: ${problem}`);
}

/**
 * Throws `tokenizer` unless the tables hold together: sizes within limits, known types, no empty or repeated token
 * (unused ones excepted, which may be padding), byte tokens spelled `<0xHH>`, special ids inside the vocabulary.
 * Merges are checked when the merge table is built. `where` goes into the message.
 */
export function checkTables(tables: TokenizerTables, where: string): void {
  const { tokens, tokenTypes, merges } = tables;
  const count = tokens.length;
  if (count === 0 || count > MAX_VOCAB_SIZE)
    throw tokenizerError(where, `expected 1 to ${MAX_VOCAB_SIZE} tokens, got ${count}`);
  if (merges.length > MAX_MERGES)
    throw tokenizerError(where, `expected at most ${MAX_MERGES} merges, got ${merges.length}`);
  if (tokenTypes.length !== count)
    throw tokenizerError(
      where,
      `expected a type for each of the ${count} tokens, got ${tokenTypes.length} types`,
    );
  const seen = new Map<string, number>();
  for (let id = 0; id < count; id++) checkToken(tables, id, seen, where);
  for (const [name, id] of [
    ["begin", tables.bosId],
    ["end", tables.eosId],
    ["padding", tables.padId ?? 0],
  ] as const) {
    if (!Number.isInteger(id) || id < 0 || id >= count)
      throw tokenizerError(
        where,
        `the ${name} token's id ${id} is outside the vocabulary of ${count} tokens`,
      );
  }
}

function checkToken(tables: TokenizerTables, id: number, seen: Map<string, number>, where: string): void {
  const text = tables.tokens[id];
  const type = tables.tokenTypes[id];
  if (typeof text !== "string") throw tokenizerError(where, `token ${id} is missing`);
  if (type < TOKEN_TYPE.normal || type > TOKEN_TYPE.byte)
    throw tokenizerError(where, `token ${id} has type ${type}; expected 1 to 6`);
  if (text.length > MAX_TOKEN_CHARS)
    throw tokenizerError(
      where,
      `token ${id} has ${text.length} characters; at most ${MAX_TOKEN_CHARS} are read`,
    );
  if (type === TOKEN_TYPE.unused) return;
  if (text === "") throw tokenizerError(where, `token ${id} has an empty text`);
  const first = seen.get(text);
  if (first !== undefined)
    throw tokenizerError(where, `tokens ${first} and ${id} have the same text ${quotedText(text)}`);
  seen.set(text, id);
  if (type === TOKEN_TYPE.byte && !BYTE_TOKEN.test(text))
    throw tokenizerError(
      where,
      `token ${id} is a byte token; expected a text like <0x0A>, got ${quotedText(text)}`,
    );
}
