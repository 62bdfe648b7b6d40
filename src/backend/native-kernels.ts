// The addon's kernels as TypeScript sees them: objects in native memory, and one function per step of a layer.
// Every function checks sizes at its boundary and throws RangeError or TypeError on misuse. Float arrays are row-major.
// All calls are synchronous and run on the workspace's thread team, one at a time.
import { Ds4Error } from "../core/errors.ts";
import type { WorkspaceCounts } from "../plan/workspace-size.ts";
import type { NativeAddon } from "./native.ts";

/** Memory for weights, outside V8's heap. */
export interface WeightArena {
  readonly bytes: number;
  /** Where it lies, for copies by a device's driver; page-aligned. 0 once closed. */
  readonly address: number;
  close(): void;
}

/** A weight tensor [slices, rows, cols] in kernel layout inside an arena. */
export interface WeightMatrix {
  /** Repacks file-layout rows; `rowBegin` and `rowCount` are multiples of 16 unless they reach the last row. */
  packRows(
    workspace: Workspace,
    slice: number,
    rowBegin: number,
    rowCount: number,
    sourceBytes: Uint8Array,
  ): void;
  /** Decodes one row to `target` [cols]. */
  unpackRow(slice: number, row: number, target: Float32Array): void;
}

/** A thread team and the scratch of the steps. */
export interface Workspace {
  readonly threads: number;
  /** Bytes in use by the scratch of the steps; grows with the largest batch so far. */
  readonly bytes: number;
  /** Grows the vectors to their final sizes; throws an Error when there is no memory. */
  reserve(counts: WorkspaceCounts): void;
  close(): void;
}

/** Options of `SpanReader`. */
export interface SpanReaderOptions {
  /** Of one buffer: the longest span. */
  bufferBytes: number;
  /** 2 to 64. */
  buffers: number;
  threads: number;
  /** Pack pieces of the spans as they arrive, on the reading threads; their arena cannot be closed meanwhile. */
  matrices?: readonly WeightMatrix[];
  /** Span, offset within it, matrix, slice, rowBegin and rowCount of each piece, by span ascending. */
  pieces?: Float64Array;
  /** Default true: reads do not fill the page cache. */
  bypassCache?: boolean;
  /** For tests: most bytes of one system call. */
  maxReadBytes?: number;
  /** For tests: the span that holds this byte of all spans together fails with an I/O error. */
  failAtByte?: number;
}

/** Reads spans of files in order, ahead of the caller, on threads of its own. */
export interface SpanReader {
  /** Whether the page cache is bypassed by O_DIRECT. */
  readonly direct: boolean;
  readonly stagingBytes: number;
  /**
   * Waits for the next span, whose bytes are valid until the following call; null after the last. Throws an Error
   * with `file`, `offsetBytes`, `expectedBytes`, `foundBytes` and `reason` (empty when the file ended).
   */
  next(): Uint8Array | null;
  /** Waits for reads under way and frees the buffers; bytes handed out become empty. */
  close(): void;
}

/** Router scores and tables: exactly one of `bias` and `table` is given. */
type OptionalFloats = Float32Array | null;
type OptionalInts = Int32Array | null;

/** What the addon exports for the CPU backend. Argument lists follow native/addon/*-glue.cpp. */
export interface NativeKernels {
  WeightArena: new (bytes: number) => WeightArena;
  WeightMatrix: new (
    arena: WeightArena,
    offsetBytes: number,
    typeId: number,
    slices: number,
    rows: number,
    cols: number,
  ) => WeightMatrix;
  Workspace: new (threads: number) => Workspace;
  /** `spans`: file index, offset and bytes of each. The descriptors may be closed once this returns. */
  SpanReader: new (
    descriptors: readonly number[],
    spans: Float64Array,
    options: SpanReaderOptions,
  ) => SpanReader;
  /** Bytes of an open file in the page cache; Linux tells owners of the file only. Throws an Error. */
  cachedFileBytes(descriptor: number): number;
  /** "generic", "avx2", "avx512" or "neon". Throws when DS4_CPU_ISA names a level that is missing. */
  kernelLevelName(): string;

  /** outs[i] [rows, matrices[i].rows] = x [rows, cols] times each matrix. */
  multiply(
    workspace: Workspace,
    rows: number,
    x: Float32Array,
    matrices: readonly WeightMatrix[],
    outs: readonly Float32Array[],
  ): void;
  /** x [rows, groups, cols], out [rows, groups, matrix.rows / groups]: each group has its own rows of the matrix. */
  multiplyGroups(
    workspace: Workspace,
    rows: number,
    groups: number,
    matrix: WeightMatrix,
    x: Float32Array,
    out: Float32Array,
  ): void;
  /** streams [tokens, copies, cols]: each copy the token's row. */
  embed(
    workspace: Workspace,
    tokens: number,
    copies: number,
    matrix: WeightMatrix,
    ids: Int32Array,
    streams: Float32Array,
  ): void;
  /** Hyper-connection read and norm: x [tokens, hidden], post [tokens, n], comb [tokens, n, n]. */
  readStreams(
    workspace: Workspace,
    tokens: number,
    n: number,
    hidden: number,
    fn: WeightMatrix,
    base: Float32Array,
    scale: Float32Array,
    normWeight: Float32Array,
    normEpsilon: number,
    hyperEpsilon: number,
    iterations: number,
    streams: Float32Array,
    x: Float32Array,
    post: Float32Array,
    comb: Float32Array,
  ): void;
  /** The head's hyper-connection read and norm: x [tokens, hidden]. */
  readHead(
    workspace: Workspace,
    tokens: number,
    n: number,
    hidden: number,
    fn: WeightMatrix,
    base: Float32Array,
    scale: Float32Array,
    normWeight: Float32Array,
    normEpsilon: number,
    hyperEpsilon: number,
    iterations: number,
    streams: Float32Array,
    x: Float32Array,
  ): void;
  /** Updates streams [tokens, n, hidden] with a block's out [tokens, hidden]. */
  writeStreams(
    workspace: Workspace,
    tokens: number,
    n: number,
    hidden: number,
    streams: Float32Array,
    out: Float32Array,
    post: Float32Array,
    comb: Float32Array,
  ): void;
  /** RMS norm of each row of x [rows, width], in place. */
  normRows(
    workspace: Workspace,
    rows: number,
    width: number,
    x: Float32Array,
    weight: OptionalFloats,
    epsilon: number,
  ): void;
  /** cosines, sines [tokens, pairs]. */
  ropeTable(
    tokens: number,
    pairs: number,
    positions: Int32Array,
    frequencies: Float32Array,
    cosines: Float32Array,
    sines: Float32Array,
  ): void;
  /** rows [tokens, heads, dim]: optional norm per head, then rotation of the last 2 * pairs values. */
  rotateHeads(
    workspace: Workspace,
    tokens: number,
    heads: number,
    dim: number,
    pairs: number,
    rows: Float32Array,
    cosines: Float32Array,
    sines: Float32Array,
    normalize: boolean,
    epsilon: number,
    inverse: boolean,
  ): void;
  /** See CompressorStep in native/cpu/attention_steps.h. */
  compress(
    workspace: Workspace,
    ratio: number,
    width: number,
    projected: number,
    start: number,
    count: number,
    pairs: number,
    kv: Float32Array,
    gate: Float32Array,
    pendingKv: Float32Array,
    pendingGate: Float32Array,
    nextPendingKv: Float32Array,
    nextPendingGate: Float32Array,
    previousKv: Float32Array,
    previousGate: Float32Array,
    nextPreviousKv: Float32Array,
    nextPreviousGate: Float32Array,
    ape: Float32Array,
    normWeight: Float32Array,
    normEpsilon: number,
    frequencies: Float32Array,
    entries: Float32Array,
  ): void;
  /** selected [count, topK] ascending, counts [count]. */
  selectEntries(
    workspace: Workspace,
    start: number,
    count: number,
    ratio: number,
    heads: number,
    dim: number,
    topK: number,
    queries: Float32Array,
    headWeights: Float32Array,
    entries: Float32Array,
    selected: Int32Array,
    counts: Int32Array,
  ): void;
  /** out [count, heads, dim]; `selected` null: all visible entries. */
  attend(
    workspace: Workspace,
    start: number,
    count: number,
    heads: number,
    dim: number,
    window: number,
    ringRows: number,
    ratio: number,
    topK: number,
    queries: Float32Array,
    ring: Float32Array,
    entries: Float32Array,
    selected: OptionalInts,
    counts: OptionalInts,
    sinks: Float32Array,
    out: Float32Array,
  ): void;
  /** ids, weights [tokens, used]. False: a score is not finite, and the results must not be used. */
  route(
    workspace: Workspace,
    tokens: number,
    experts: number,
    used: number,
    vocab: number,
    weightsScale: number,
    normalize: boolean,
    logits: Float32Array,
    bias: OptionalFloats,
    table: OptionalInts,
    tokenIds: Int32Array,
    ids: Int32Array,
    weights: Float32Array,
  ): boolean;
  /** h [tokens * used, inner]: rows grouped by expert ascending, tokens in order; sharedH [tokens, sharedInner]. */
  expertsUp(
    workspace: Workspace,
    gate: WeightMatrix,
    up: WeightMatrix,
    down: WeightMatrix,
    sharedGate: WeightMatrix,
    sharedUp: WeightMatrix,
    sharedDown: WeightMatrix,
    tokens: number,
    used: number,
    limit: number,
    sharedLimit: number,
    x: Float32Array,
    ids: Int32Array,
    h: Float32Array,
    sharedH: Float32Array,
  ): void;
  /** out [tokens, hidden]. Right after `expertsUp` of the same tokens. */
  expertsDown(
    workspace: Workspace,
    gate: WeightMatrix,
    up: WeightMatrix,
    down: WeightMatrix,
    sharedGate: WeightMatrix,
    sharedUp: WeightMatrix,
    sharedDown: WeightMatrix,
    tokens: number,
    used: number,
    h: Float32Array,
    sharedH: Float32Array,
    weights: Float32Array,
    out: Float32Array,
  ): void;
}

/** The addon seen as kernels. Throws `native` when it lacks them (an addon of another version). */
export function nativeKernels(addon: NativeAddon): NativeKernels {
  if (typeof addon.multiply !== "function" || typeof addon.SpanReader !== "function") {
    throw new Ds4Error("native", "the native addon is of another version; run: npm run build:native");
  }
  return addon as unknown as NativeKernels;
}
