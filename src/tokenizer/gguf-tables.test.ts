// Acceptance cases 116 to 119: a file's tokenizer metadata is hostile until checked.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { MetadataValue } from "../gguf/gguf-file.ts";
import { type TokenizerSource, tablesFromGguf, tokenizerFromGguf } from "./gguf-tables.ts";
import { tablesFromHuggingFace } from "./hugging-face.ts";
import { TOKEN_TYPE } from "./tokenizer-tables.ts";

const nano = tablesFromHuggingFace(JSON.parse(readFileSync("models/nano/tokenizer.json", "utf8")));

type Changes = Record<string, MetadataValue | undefined>;
const strings = (values: string[]): MetadataValue => ({ type: "array", elementType: "string", values });
const u32 = (value: number): MetadataValue => ({ type: "u32", value });

function source(changes: Changes = {}): TokenizerSource {
  const entries: Changes = {
    "deepseek4.vocab_size": u32(nano.tokens.length),
    "tokenizer.ggml.model": { type: "string", value: "gpt2" },
    "tokenizer.ggml.pre": { type: "string", value: "joyai-llm" },
    "tokenizer.ggml.tokens": strings(nano.tokens),
    "tokenizer.ggml.token_type": { type: "array", elementType: "i32", values: nano.tokenTypes },
    "tokenizer.ggml.merges": strings(nano.merges),
    "tokenizer.ggml.bos_token_id": u32(0),
    "tokenizer.ggml.eos_token_id": u32(1),
    "tokenizer.ggml.padding_token_id": u32(2),
    "tokenizer.ggml.add_bos_token": { type: "bool", value: true },
    ...changes,
  };
  const metadata = new Map(
    Object.entries(entries).filter((entry): entry is [string, MetadataValue] => !!entry[1]),
  );
  return { name: "test.gguf", metadata };
}

/** Metadata whose token `id` is `text` of `type`. */
function withToken(id: number, text: string, type: number): Changes {
  const values = Int32Array.from(nano.tokenTypes);
  values[id] = type;
  return {
    "tokenizer.ggml.tokens": strings(nano.tokens.with(id, text)),
    "tokenizer.ggml.token_type": { type: "array", elementType: "i32", values },
  };
}

const load = (changes: Changes) => () => tokenizerFromGguf(source(changes));

describe("a GGUF file's tokenizer", () => {
  it("gives the same tables as the checkpoint it was converted from, and never a begin token by itself", () => {
    expect(tablesFromGguf(source())).toEqual(nano);
    const tokenizer = tokenizerFromGguf(source());
    expect([...tokenizer.encode("Hello")]).toEqual([1580]);
    expect(tokenizer.stopIds).toEqual([1, 4087, 4088]);
  });

  it("finds begin and end tokens by text when the keys are absent, and needs no vocab_size nor pre", () => {
    const absent = { "tokenizer.ggml.bos_token_id": undefined, "tokenizer.ggml.eos_token_id": undefined };
    const more = { "deepseek4.vocab_size": undefined, "tokenizer.ggml.pre": undefined };
    expect(tablesFromGguf(source({ ...absent, ...more }))).toEqual(nano);
  });

  it("is refused with both numbers when the token list and vocab_size differ (case 116)", () => {
    expect(load({ "deepseek4.vocab_size": u32(5000) })).toThrow(/5000.*4096/);
    expect(load({ "tokenizer.ggml.tokens": strings(nano.tokens.slice(0, 4000)) })).toThrow(/4096.*4000/);
  });

  it("is refused when an array has the wrong element type or length, naming the key (case 117)", () => {
    const types = (elementType: "u8" | "i32", values: Uint8Array | Int32Array): Changes => ({
      "tokenizer.ggml.token_type": { type: "array", elementType, values },
    });
    expect(load(types("u8", new Uint8Array(4096)))).toThrow(/tokenizer\.ggml\.token_type.*u8/);
    expect(load(types("i32", nano.tokenTypes.slice(1)))).toThrow(/4096 tokens.*4095/);
    expect(load({ "tokenizer.ggml.tokens": u32(3) })).toThrow(/tokenizer\.ggml\.tokens.*u32/);
    const numbers: MetadataValue = { type: "array", elementType: "i32", values: new Int32Array(3) };
    expect(load({ "tokenizer.ggml.merges": numbers })).toThrow(/tokenizer\.ggml\.merges.*i32/);
    expect(load({ "tokenizer.ggml.merges": undefined })).toThrow(/tokenizer\.ggml\.merges.*nothing/);
  });

  it("is refused when a special id is outside the vocabulary (case 118)", () => {
    expect(load({ "tokenizer.ggml.eos_token_id": u32(4294967295) })).toThrow(
      /eos_token_id is 4294967295.*4096/,
    );
    expect(load({ "tokenizer.ggml.bos_token_id": { type: "i32", value: -1 } })).toThrow(/bos_token_id is -1/);
    expect(load({ "tokenizer.ggml.padding_token_id": u32(4096) })).toThrow(/padding.*4096/);
    expect(load({ "tokenizer.ggml.eos_token_id": { type: "u64", value: 1n } })).not.toThrow();
    expect(load({ "tokenizer.ggml.eos_token_id": { type: "u64", value: 2n ** 64n - 1n } })).toThrow(
      /outside/,
    );
    expect(load({ "tokenizer.ggml.eos_token_id": { type: "f32", value: 1 } })).toThrow(/eos_token_id.*f32/);
  });

  it.each(["<0x-1>", "<0xZZ>", "<0x100>", "0x0A"])("is refused with the byte token %s (case 119)", (text) => {
    expect(load(withToken(4000, text, TOKEN_TYPE.byte))).toThrow(/token 4000 is a byte token/);
  });

  it("reads a well-formed byte token as its byte", () => {
    const tokenizer = tokenizerFromGguf(source(withToken(4000, "<0xe4>", TOKEN_TYPE.byte)));
    expect([...tokenizer.tokenBytes(4000)]).toEqual([0xe4]);
  });

  it("is refused when two tokens share a text, except unused ones", () => {
    expect(load(withToken(4000, nano.tokens[300], TOKEN_TYPE.normal))).toThrow(/tokens 300 and 4000/);
    expect(load(withToken(4000, nano.tokens[300], TOKEN_TYPE.unused))).not.toThrow();
    expect(load(withToken(4000, "", TOKEN_TYPE.control))).toThrow(/token 4000 has an empty text/);
    expect(load(withToken(4000, "x".repeat(5000), TOKEN_TYPE.normal))).toThrow(/5000 characters/);
    expect(load(withToken(4000, "odd", 9))).toThrow(/token 4000 has type 9/);
  });

  it("is refused when a byte has no token", () => {
    expect(load(withToken(nano.tokens.indexOf("A"), "ABCABC", TOKEN_TYPE.normal))).toThrow(/byte 65/);
  });

  it("is refused when a merge is malformed or repeated", () => {
    const merges = (...extra: string[]) =>
      load({ "tokenizer.ggml.merges": strings([...nano.merges, ...extra]) });
    for (const bad of ["ab", " b", "a ", "a b c", ""]) expect(merges(bad)).toThrow(/merge 3828: expected/);
    expect(merges(nano.merges[7])).toThrow(/merges 7 and 3828 are the same/);
  });

  it("is refused when it is of another kind", () => {
    const named = (key: string, value: string) =>
      load({ [`tokenizer.ggml.${key}`]: { type: "string", value } });
    expect(named("model", "llama")).toThrow(/tokenizer\.ggml\.model: expected gpt2, got "llama"/);
    expect(named("pre", "qwen2")).toThrow(
      /tokenizer\.ggml\.pre: expected joyai-llm or deepseek-v3, got "qwen2"/,
    );
    expect(named("pre", "deepseek-v3")).not.toThrow();
  });

  it("never lets a merge make a special token, so that plain text cannot become one (case 121)", () => {
    const changes: Changes = {
      ...withToken(4000, "th", TOKEN_TYPE.control),
      "tokenizer.ggml.merges": strings(["t h", ...nano.merges.filter((merge) => merge !== "t h")]),
    };
    changes["tokenizer.ggml.tokens"] = strings(
      nano.tokens.map((t, id) => (id === 4000 ? "th" : t === "th" ? "☃" : t)),
    );
    const tokenizer = tokenizerFromGguf(source(changes));
    expect([...tokenizer.encode("th")]).not.toContain(4000);
    expect([...tokenizer.encode("th", { allowSpecial: true })]).toEqual([4000]);
  });
});
