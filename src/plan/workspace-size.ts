// How large the native working memory of the CPU backend gets: `Workspace` in native/cpu/workspace.h and the
// thread-local vectors of its steps. They grow with the batches that come; this is where they end.
import type { TensorInfo } from "../gguf/gguf-file.ts";
import type { BoundLayer, BoundModel } from "../model/weights.ts";
import { PANEL_ROWS } from "./weight-layout.ts";

/** Types whose products read int8 activations: the negation of `usesFloatInput` in native/cpu/matmul.h. */
const INT8_INPUT_TYPES: readonly string[] = ["Q8_0", "Q2_K", "Q4_K", "IQ2_XXS"];

/** `PreparedInput`, per value: int8, then five words of four bytes per 32 columns and one more for sums16. */
const PREPARED_BYTES_PER_VALUE = 1 + (4 * (1 + 1 + 2 + 1 + 1)) / 32;

/** sizeof(MatmulJob): nine fields of eight bytes. */
const JOB_BYTES = 72;
/** sizeof(Task) in native/cpu/matmul.cpp. */
const TASK_BYTES = 24;

/** What the bound depends on besides the model. */
export interface WorkspaceOptions {
  ctxTokens: number;
  /** Most tokens of a forward call. */
  batchTokens: number;
  /** Most rows of logits wanted in one call. */
  headRows: number;
}

/** How many values each vector of `Workspace` comes to hold: what `Workspace::reserve` takes. */
export interface WorkspaceCounts {
  inputValues: number;
  sharedInputValues: number;
  mixes: number;
  rowToken: number;
  slotRow: number;
  expertBegin: number;
  identity: number;
  /** Of `gate`, and as many of `up`. */
  gate: number;
  down: number;
}

/** The largest counts that a model and batches of this size lead to. */
export function workspaceCounts(model: BoundModel, options: WorkspaceOptions): WorkspaceCounts {
  const { spec } = model;
  const { batchTokens: tokens } = options;
  const { hyperCount: n, hiddenSize: hidden, expertCount: experts, expertUsedCount: used } = spec;
  const rows = tokens * used;
  const sharedInner = spec.expertSharedCount * spec.expertHiddenSize;
  const visible = Math.max(0, ...indexedLayers(model).map((ratio) => Math.floor(options.ctxTokens / ratio)));
  return {
    inputValues: inputValues(model, options),
    sharedInputValues: Math.max(
      ...model.layers.map(({ downShared }) => reads(tokens * downShared.dims[0], downShared)),
    ),
    // Hyper-connection products, or one token's scores over all entries.
    mixes: Math.max(tokens * (2 * n + n * n), visible > spec.indexerTopK ? visible : 0),
    rowToken: Math.max(rows, tokens * spec.outputGroupCount),
    slotRow: rows,
    expertBegin: experts + 1,
    identity: Math.max(experts, rows),
    gate: rows * spec.expertHiddenSize + tokens * sharedInner,
    down: rows * hidden,
  };
}

/** Largest value of `Workspace::bytes()`. */
export function workspaceBytes(model: BoundModel, options: WorkspaceOptions): number {
  const { spec } = model;
  const counts = workspaceCounts(model, options);
  const jobs = Math.max(2 * Math.min(spec.expertCount, counts.slotRow) + 2, spec.outputGroupCount, 7);
  const { mixes, rowToken, slotRow, expertBegin, identity, gate, down } = counts;
  const words = mixes + rowToken + slotRow + expertBegin + identity + 2 * gate + down;
  const prepared = counts.inputValues + counts.sharedInputValues;
  return 4 * words + jobs * JOB_BYTES + PREPARED_BYTES_PER_VALUE * prepared;
}

/** Bytes of the thread-local vectors of one compute thread. They grow with the context, doubling at most. */
export function threadBytes(model: BoundModel, { ctxTokens }: WorkspaceOptions): number {
  const { spec } = model;
  const compressed = spec.layers.map(({ compressRatio, hasIndexer }) => {
    if (compressRatio === 0) return 0;
    const entries = Math.floor(ctxTokens / compressRatio);
    return hasIndexer ? Math.min(entries, spec.indexerTopK) : entries;
  });
  const keys = spec.slidingWindow + Math.max(0, ...compressed);
  const scored = Math.max(0, ...indexedLayers(model).map((ratio) => Math.floor(ctxTokens / ratio)));
  const attention = 8 * keys + 4 * 4 * (keys + PANEL_ROWS) + 4 * 8 * spec.headDim; // keys, scores, padded
  const indexer = 4 * scored + 4 * scored; // scores, order
  const router = 2 * 4 * spec.expertCount; // scores, ranks
  return 2 * (attention + indexer + router);
}

/** Bytes of the task list, held by the calling thread alone: at most one task per panel of the largest step. */
export function taskBytes(model: BoundModel, { batchTokens }: WorkspaceOptions): number {
  const { spec } = model;
  const busy = Math.min(spec.expertCount, batchTokens * spec.expertUsedCount) + spec.expertSharedCount;
  const widest = Math.max(2 * spec.expertHiddenSize, spec.hiddenSize);
  const rows = Math.max(busy * widest, spec.vocabSize, spec.headCount * spec.headDim * 2);
  return 2 * TASK_BYTES * Math.ceil(rows / PANEL_ROWS);
}

function indexedLayers(model: BoundModel): number[] {
  return model.spec.layers.filter((layer) => layer.hasIndexer).map((layer) => layer.compressRatio);
}

/** The most values that any step quantizes at once. */
function inputValues(model: BoundModel, { batchTokens: tokens, headRows }: WorkspaceOptions): number {
  const { hyperCount: n, hiddenSize: hidden } = model.spec;
  return Math.max(
    reads(headRows * n * hidden, model.outputHc.fn),
    reads(headRows * hidden, model.head),
    ...model.layers.map((layer) => layerInputValues(model, layer, tokens)),
  );
}

function layerInputValues({ spec }: BoundModel, layer: BoundLayer, tokens: number): number {
  const { compressor, indexer } = layer;
  const wide = tokens * spec.hiddenSize;
  const fromInput = [
    ...[layer.qA, layer.kv, layer.router, layer.gateExps, layer.upExps, layer.gateShared, layer.upShared],
    ...(compressor ? [compressor.kv, compressor.gate] : []),
    ...(indexer ? [indexer.compressor.kv, indexer.compressor.gate, indexer.proj] : []),
  ];
  return Math.max(
    reads(wide * spec.hyperCount, layer.hcAttn.fn, layer.hcFfn.fn),
    reads(wide, ...fromInput),
    reads(tokens * spec.queryLoraRank, layer.qB, ...(indexer ? [indexer.qB] : [])),
    reads(tokens * spec.headCount * spec.headDim, layer.outA),
    reads(tokens * spec.outputGroupCount * spec.outputLoraRank, layer.outB),
    reads(tokens * spec.expertUsedCount * spec.expertHiddenSize, layer.downExps),
  );
}

/** `values`, if any of the matrices reads them as int8. */
function reads(values: number, ...matrices: TensorInfo[]): number {
  return matrices.some(({ type }) => INT8_INPUT_TYPES.includes(type)) ? values : 0;
}
