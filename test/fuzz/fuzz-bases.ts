// The small valid files that fuzzing starts from.
import { ggmlType } from "../../src/blocks/ggml-types.ts";
import type { MetadataValue } from "../../src/gguf/gguf-file.ts";
import { BYTE_CHARS } from "../../src/tokenizer/byte-alphabet.ts";
import { SPECIAL_TEXT, TOKEN_TYPE } from "../../src/tokenizer/tokenizer-tables.ts";
import { type BuiltTensor, sampleMetadata, sampleTensors } from "../fixtures/gguf-builder.ts";
import { tinyModel } from "../fixtures/tiny-model.ts";

/** A file before it is encoded. */
export interface FuzzBase {
  name: string;
  metadata: Map<string, MetadataValue>;
  tensors: BuiltTensor[];
}

/** Every value type with nested arrays; one without tensors; a whole model with its tokenizer. */
export function fuzzBases(): FuzzBase[] {
  const ints = (length: number) => Int32Array.from({ length }, (_, index) => index);
  return [
    { name: "sample", metadata: sampleMetadata(), tensors: sampleTensors() },
    {
      name: "bare",
      metadata: new Map([["sample.ints", { type: "array", elementType: "i32", values: ints(40) }]]),
      tensors: [],
    },
    modelBase(),
  ];
}

/** A model that binds and tokenizes: both layer kinds that differ most, every byte a token. */
function modelBase(): FuzzBase {
  const specials = Object.values(SPECIAL_TEXT);
  const merges = ["h e", "l l", "he ll", "Ġ t", "Ġt he"];
  const merged = merges.map((merge) => merge.replace(" ", ""));
  const tokens = [...specials, ...BYTE_CHARS, ...merged];
  const tokenTypes = Int32Array.from(tokens, (_, id) =>
    id < specials.length ? TOKEN_TYPE.control : TOKEN_TYPE.normal,
  );
  const model = tinyModel({ ratios: [0, 4], experts: 4, vocab: tokens.length, matrixType: "BF16" });
  const { metadata } = model;
  metadata.set("tokenizer.ggml.model", { type: "string", value: "gpt2" });
  metadata.set("tokenizer.ggml.pre", { type: "string", value: "joyai-llm" });
  metadata.set("tokenizer.ggml.tokens", { type: "array", elementType: "string", values: tokens });
  metadata.set("tokenizer.ggml.token_type", { type: "array", elementType: "i32", values: tokenTypes });
  metadata.set("tokenizer.ggml.merges", { type: "array", elementType: "string", values: merges });
  metadata.set("tokenizer.ggml.bos_token_id", { type: "u32", value: 0 });
  metadata.set("tokenizer.ggml.eos_token_id", { type: "u32", value: 1 });
  const tensors = model.tensors.map(({ name, dims, type }) => ({
    name,
    dims,
    typeId: ggmlType(type).id,
    data: model.contents.get(name)!,
  }));
  return { name: "model", metadata, tensors };
}
