import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { tablesFromHuggingFace, tokenizerFromHuggingFace } from "./hugging-face.ts";
import { TOKEN_TYPE } from "./tokenizer-tables.ts";

const readJson = (path: string) => JSON.parse(readFileSync(path, "utf8"));
const nano = readJson("models/nano/tokenizer.json");
const LONG_PROMPT_TOKENS = 1900;

it("gives nano's tables with control and user-defined tokens typed", () => {
  const tables = tablesFromHuggingFace(nano);
  expect(tables.tokens.length).toBe(4096);
  expect(tables.merges.length).toBe(3828);
  expect(tables.merges[0]).toBe("Ġ t");
  expect([tables.bosId, tables.eosId, tables.padId]).toEqual([0, 1, 2]);
  expect(tables.tokenTypes[tables.tokens.indexOf("<｜User｜>")]).toBe(TOKEN_TYPE.control);
  expect(tables.tokenTypes[tables.tokens.indexOf("<think>")]).toBe(TOKEN_TYPE.userDefined);
  expect(tables.tokenTypes[0]).toBe(TOKEN_TYPE.control);
  expect(tables.tokenTypes[3]).toBe(TOKEN_TYPE.normal);
});

it("encodes all prompts of the vectors to the recorded ids and decodes the recorded answers", () => {
  const tokenizer = tokenizerFromHuggingFace(nano);
  const vectors: { text: string; ids: number[]; greedy: number[]; greedy_text: string }[] = readJson(
    "test/fixtures/nano/vectors.json",
  );
  expect(vectors.length).toBe(8);
  for (const { text, ids, greedy, greedy_text } of vectors) {
    const encoded = [...tokenizer.encode(text, { allowSpecial: true })];
    // The long prompt was cut at LONG_PROMPT_TOKENS ids for the model run; its text was kept whole.
    const isCut = ids.length === LONG_PROMPT_TOKENS;
    expect(isCut ? encoded.slice(0, ids.length) : encoded).toEqual(ids);
    expect(tokenizer.decode(encoded)).toBe(text);
    if (greedy) expect(tokenizer.decode(greedy)).toBe(greedy_text);
  }
});

it("pads the vocabulary to the model's embedding rows with unused tokens", () => {
  const tables = tablesFromHuggingFace(nano, { vocabSize: 4100 });
  expect(tables.tokens.slice(4096)).toEqual(["[PAD4096]", "[PAD4097]", "[PAD4098]", "[PAD4099]"]);
  expect(tables.tokenTypes[4099]).toBe(TOKEN_TYPE.unused);
  expect(() => tablesFromHuggingFace(nano, { vocabSize: 4000 })).toThrow(/4095.*4000/);
});

it("accepts the line breaks of the patterns as characters too, as DeepSeek's own files have them", () => {
  const json = structuredClone(nano);
  const split = json.pre_tokenizer.pretokenizers[2];
  split.pattern.Regex = split.pattern.Regex.replaceAll("\\r", "\r").replaceAll("\\n", "\n");
  expect(split.pattern.Regex).not.toBe(nano.pre_tokenizer.pretokenizers[2].pattern.Regex);
  expect(tablesFromHuggingFace(json)).toEqual(tablesFromHuggingFace(nano));
});

it("refuses another pipeline instead of tokenizing wrongly", () => {
  const change = (edit: (json: typeof nano) => void) => {
    const json = structuredClone(nano);
    edit(json);
    return () => tablesFromHuggingFace(json);
  };
  expect(change((json) => (json.model.type = "Unigram"))).toThrow(/Unigram/);
  expect(change((json) => (json.model.ignore_merges = true))).toThrow(/ignore_merges/);
  expect(change((json) => (json.normalizer = { type: "NFC" }))).toThrow(/NFC/);
  expect(change((json) => json.pre_tokenizer.pretokenizers.shift())).toThrow(/split patterns/);
  expect(change((json) => (json.pre_tokenizer.pretokenizers[3].add_prefix_space = true))).toThrow(/prefix/);
  expect(change((json) => (json.model.vocab.extra = 5))).toThrow(/share id 5/);
  expect(change((json) => (json.model.vocab.extra = -1))).toThrow(/id -1/);
  expect(() => tablesFromHuggingFace("text")).toThrow(/expected an object/);
});
