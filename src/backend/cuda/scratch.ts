// The activations of one forward pass on the device, allocated once for the largest batch. Names, shapes and order are
// the CPU backend's; what kernels need beside them is listed here.
import type { ModelSpec } from "../../model/model-spec.ts";
import { headValuesPerRow, scratchValuesPerToken } from "../../plan/scratch-size.ts";
import { type DeviceBuffer, DeviceMemory } from "./device-memory.ts";
import type { DeviceInfo } from "./driver.ts";
import { attentionScratchBytes, DECODE_STATE_BYTES, selectionScratchBytes } from "./sequence-plans.ts";
import type { DeviceStream } from "./stream.ts";
import { resultBytes, topLogitsWorkBytes } from "./top-logits-steps.ts";

/** Rows of the output head that are computed at a time: logits of more come back in pieces. */
export const HEAD_ROWS = 64;

type Activation = keyof ReturnType<typeof scratchValuesPerToken>;
type HeadPart = "headStreams" | "headX" | "headMixes" | "logits";
type Input = "tokenIds" | "positions" | "states";

type Part =
  | Activation
  | HeadPart
  | Input
  | "mixes"
  | "parts"
  | "stats"
  | "frequencies"
  | "results"
  | "topCandidates"
  | "topSums";

/**
 * All arrays are row-major over tokens; the first `tokens` rows of a call are valid. `flag` is the first word of `results`,
 * so that both come back in one copy.
 */
export type ScratchBuffers = Record<Part | "flag", DeviceBuffer>;

/** What the sizes depend on. */
export interface ScratchLimits {
  spec: ModelSpec;
  device: DeviceInfo;
  maxBatchTokens: number;
}

/** Fixed buffers of a backend, and those that grow with the largest context. */
export class CudaScratch {
  readonly buffers: ScratchBuffers;
  readonly #memory: DeviceMemory;
  readonly #limits: ScratchLimits;
  #selection: { scores: DeviceBuffer; candidates: DeviceBuffer } | null = null;
  #mostEntries = 0;

  /** Throws `memory` or `cuda`; nothing stays allocated then. */
  constructor(stream: DeviceStream, limits: ScratchLimits) {
    this.#limits = limits;
    this.#memory = new DeviceMemory(stream.driver);
    const parts = this.#memory.allocateParts("scratch", scratchSizes(limits));
    this.buffers = { ...parts, flag: parts.results.slice(0, 4) };
  }

  /** Bytes held. */
  get bytes(): number {
    return this.#memory.bytes;
  }

  /** Scores and candidates of the indexer. Throws when `reserveEntries` was not called. */
  get selection(): { scores: DeviceBuffer; candidates: DeviceBuffer } {
    if (this.#selection === null) throw new RangeError("no room was reserved for the indexer's scores");
    return this.#selection;
  }

  /** Makes room for contexts of `mostEntries` indexer entries. Throws `memory`; the earlier room stays then. */
  reserveEntries(mostEntries: number): void {
    const { spec, device, maxBatchTokens } = this.#limits;
    const earlier = this.#selection;
    if (earlier !== null && mostEntries <= this.#mostEntries) return;
    const sizes = selectionScratchBytes(device, spec.indexerTopK, maxBatchTokens, mostEntries);
    const { scores, candidates } = this.#memory.allocateParts("selection", {
      scores: sizes.scoreBytes,
      candidates: sizes.candidateBytes,
    });
    this.#selection = { scores, candidates };
    this.#mostEntries = mostEntries;
    if (earlier !== null) this.#memory.release(earlier.scores);
  }

  close(): void {
    this.#memory.close();
  }
}

/** Bytes of every fixed buffer. */
export function scratchSizes({ spec, device, maxBatchTokens }: ScratchLimits): Record<Part, number> {
  const perToken = Object.entries(scratchValuesPerToken(spec)).map(([name, values]) => {
    return [name, 4 * values * maxBatchTokens];
  });
  const { hyperCount: n } = spec;
  const head = headValuesPerRow(spec);
  const top = topLogitsWorkBytes(HEAD_ROWS, spec.vocabSize);
  const attention = attentionScratchBytes(device, spec.headCount, spec.headDim);
  return {
    ...(Object.fromEntries(perToken) as Record<Activation, number>),
    mixes: 4 * maxBatchTokens * (2 * n + n * n),
    tokenIds: 4 * maxBatchTokens,
    positions: 4 * maxBatchTokens,
    states: DECODE_STATE_BYTES * maxBatchTokens,
    results: resultBytes(HEAD_ROWS),
    topCandidates: top.candidates,
    topSums: top.sums,
    headStreams: 4 * HEAD_ROWS * head.streams,
    headX: 4 * HEAD_ROWS * head.x,
    headMixes: 4 * HEAD_ROWS * n,
    logits: 4 * HEAD_ROWS * head.logits,
    parts: attention.partBytes,
    stats: attention.statBytes,
    /** Of sliding-only layers, then of compressed ones: [2, pairs]. */
    frequencies: 4 * spec.rope.dims,
  };
}
