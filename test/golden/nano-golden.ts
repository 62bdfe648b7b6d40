// The golden suite: a backend on the exact nano model against vectors that another implementation made. Each backend
// brings its own tolerances.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Backend } from "../../src/backend/backend.ts";
import type { GgufFile } from "../../src/gguf/gguf-file.ts";
import { openGguf } from "../../src/gguf/open-gguf.ts";
import { nanoModelPath } from "../fixtures/nano-model.ts";
import { comparePrompt, compareTrace, nanoPrompts } from "./nano-vectors.ts";

/** What counts as equal. */
export interface GoldenTolerances {
  /** Max |difference| of the last logits, which lie within about +-30. */
  lastLogits: number;
  /** Relative difference of NLL sums. */
  nllRelative: number;
  /** Least share of positions with the same most likely token. */
  argmaxAgreement: number;
  /** Max |difference| of attention and expert outputs and of the streams. */
  activations: number;
  expertWeights: number;
  /** Largest share of tokens with another expert set, and of indexer entries chosen otherwise (near ties). */
  choices: number;
}

/** One prompt, and the tokens per forward call (default: all in one). */
export interface GoldenPrompt {
  name: string;
  chunkTokens?: number;
}

/** Defines the suite. The factory opens the backend on the exact file. */
export function describeNanoGolden(
  name: string,
  factory: (file: GgufFile) => Backend,
  tolerances: GoldenTolerances,
  prompts: readonly GoldenPrompt[],
): void {
  describe(`nano vectors: ${name}`, () => {
    let file: GgufFile;
    let backend: Backend;
    beforeAll(() => {
      file = openGguf(nanoModelPath());
      backend = factory(file);
    });
    afterAll(() => {
      backend?.close();
      file?.close();
    });

    test.each(prompts)(
      "prompt $name: logits, likelihoods and greedy text",
      ({ name: wanted, chunkTokens }) => {
        const prompt = nanoPrompts().find((each) => each.name === wanted)!;
        const result = comparePrompt(backend, prompt, chunkTokens);
        expect(result.lastLogits).toBeLessThan(tolerances.lastLogits);
        expect(result.nllRelative).toBeLessThan(tolerances.nllRelative);
        expect(result.argmaxAgreement).toBeGreaterThanOrEqual(tolerances.argmaxAgreement);
        expect(result.greedyEqual).not.toBe(false);
      },
    );

    test("every layer's intermediates match the trace", () => {
      const { layers, lastLogits } = compareTrace(backend);
      expect(lastLogits).toBeLessThan(tolerances.lastLogits);
      expect(layers.length).toBe(backend.spec.layerCount);
      for (const layer of layers) {
        const where = `layer ${layer.layer}`;
        expect(layer.attnOut, `${where} attn_out`).toBeLessThan(tolerances.activations);
        expect(layer.moeOut, `${where} moe_out`).toBeLessThan(tolerances.activations);
        expect(layer.streams, `${where} streams`).toBeLessThan(tolerances.activations);
        expect(layer.expertWeights, `${where} expert_weights`).toBeLessThan(tolerances.expertWeights);
        expect(layer.expertMismatch, `${where} expert_ids`).toBeLessThanOrEqual(tolerances.choices);
        expect(layer.indexerMismatch, `${where} indexer_topk`).toBeLessThanOrEqual(tolerances.choices);
      }
    });
  });
}
