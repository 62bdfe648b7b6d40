// A vocabulary for synthetic files: the byte alphabet, V4's special tokens at their places, a handful of merges, and
// fillers up to the wanted size. Any text can be encoded; most tokens are one byte.
import { BYTE_CHARS } from "../tokenizer/byte-alphabet.ts";
import { SPECIAL_TEXT, TOKEN_TYPE, type TokenizerTables } from "../tokenizer/tokenizer-tables.ts";

/** Ids of V4's added tokens; those from `latest_reminder` on are not published and stand in our order. */
const FULL_VOCABULARY = 129_280;
const FIRST_PLACE_HOLDER = 128_000;
const PLACE_HOLDER_COUNT = 800;
const FULL_SPECIALS: Readonly<Record<number, string>> = {
  128800: "<｜fim▁hole｜>",
  128801: "<｜fim▁begin｜>",
  128802: "<｜fim▁end｜>",
  128803: SPECIAL_TEXT.user,
  128804: SPECIAL_TEXT.assistant,
  128805: "<|EOT|>",
  128806: "<｜tool▁calls▁begin｜>",
  128807: "<｜tool▁calls▁end｜>",
  128808: "<｜tool▁call▁begin｜>",
  128809: "<｜tool▁call▁end｜>",
  128810: "<｜tool▁outputs▁begin｜>",
  128811: "<｜tool▁outputs▁end｜>",
  128812: "<｜tool▁output▁begin｜>",
  128813: "<｜tool▁output▁end｜>",
  128814: "<｜tool▁sep｜>",
  128821: SPECIAL_TEXT.thinkStart,
  128822: SPECIAL_TEXT.thinkEnd,
  128825: SPECIAL_TEXT.dsml,
  128826: SPECIAL_TEXT.latestReminder,
  128827: "<｜action｜>",
  128828: "<｜query｜>",
  128829: "<｜authority｜>",
  128830: "<｜domain｜>",
  128831: "<｜title｜>",
  128832: "<｜read_url｜>",
  128833: "<｜extracted_url｜>",
};

/** The last ids of a smaller vocabulary, in nano's order. */
const SMALL_SPECIALS: readonly string[] = [
  SPECIAL_TEXT.user,
  SPECIAL_TEXT.assistant,
  "<｜fim▁hole｜>",
  "<｜fim▁begin｜>",
  "<｜fim▁end｜>",
  "<|EOT|>",
  SPECIAL_TEXT.thinkStart,
  SPECIAL_TEXT.thinkEnd,
  SPECIAL_TEXT.dsml,
];

/** Tokens that plain text between tags may still show: typed user-defined, like the tokenizer's JSON has them. */
const USER_DEFINED: readonly string[] = [SPECIAL_TEXT.thinkStart, SPECIAL_TEXT.thinkEnd, SPECIAL_TEXT.dsml];

const MERGES: readonly string[] = ["Ġ t", "h e", "Ġt he", "i n", "Ġ a", "e r", "o n", "Ġa n"];

/**
 * The tables of a vocabulary of `vocabSize` entries: V4's own ids when it has V4's size, else specials at both ends.
 * `vocabSize` must be at least 512.
 */
export function synthVocabulary(vocabSize: number): TokenizerTables {
  const byId = specialsById(vocabSize);
  const normal = [...new Set([...BYTE_CHARS].sort()), ...MERGES.map((merge) => merge.replace(" ", ""))];
  const tokens: string[] = [];
  const tokenTypes = new Int32Array(vocabSize);
  for (let id = 0; id < vocabSize; id++) {
    const special = byId.get(id);
    const token = special ?? normal.shift();
    tokens.push(token ?? `<|fill_${id}|>`);
    if (token === undefined) tokenTypes[id] = TOKEN_TYPE.unused;
    else if (special === undefined) tokenTypes[id] = TOKEN_TYPE.normal;
    else tokenTypes[id] = USER_DEFINED.includes(token) ? TOKEN_TYPE.userDefined : TOKEN_TYPE.control;
  }
  return { tokens, tokenTypes, merges: [...MERGES], bosId: 0, eosId: 1, padId: 2 };
}

function specialsById(vocabSize: number): Map<number, string> {
  const byId = new Map<number, string>([SPECIAL_TEXT.bos, SPECIAL_TEXT.eos, SPECIAL_TEXT.pad].entries());
  if (vocabSize < FULL_VOCABULARY) {
    const first = vocabSize - SMALL_SPECIALS.length;
    for (const [index, special] of SMALL_SPECIALS.entries()) byId.set(first + index, special);
    return byId;
  }
  for (let index = 0; index < PLACE_HOLDER_COUNT; index++)
    byId.set(FIRST_PLACE_HOLDER + index, `<｜place▁holder▁no▁${index}｜>`);
  for (const [id, special] of Object.entries(FULL_SPECIALS)) byId.set(Number(id), special);
  return byId;
}
