// One forward pass on the device, in three parts: what the host knows goes up, kernels are queued, results come back.
// Nothing in the middle part waits unless the caller wants to see intermediate results.
import type { ModelSpec } from "../../model/model-spec.ts";
import type { ForwardResult, TopLogits } from "../backend.ts";
import { rowsOfSegments, type Segment, wantedRows } from "../token-batch.ts";
import { resultOfRows } from "../top-logits.ts";
import { attentionStep } from "./attention-step.ts";
import { enqueueDecode } from "./decode-forward.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import { expertsStep } from "./experts-step.ts";
import type { HostResults } from "./host-results.ts";
import type { CudaKv } from "./kv-state.ts";
import {
  type CudaHyperWeights,
  type CudaLayerWeights,
  type CudaModelWeights,
  type CudaPass,
  isRepeatable,
  notFinite,
  observe,
  stepKey,
  trace,
} from "./pass.ts";
import { HEAD_ROWS } from "./scratch.ts";
import { decodeStateWords } from "./sequence-plans.ts";
import { RESULT_HEADER_BYTES } from "./top-logits-steps.ts";

const NO_LOGITS = new Float32Array(0);

/** Where results go on the host. */
export interface HostLogits {
  pinned: HostResults;
  /** All wanted rows of passes that score: grows with the largest demand so far. */
  values: Float32Array;
}

/**
 * Evaluates the batch and returns the wanted logits: views of memory that the next pass writes. The KV states count the tokens
 * only at the end: a pass that throws leaves them as they were.
 */
export function forwardBatch(pass: CudaPass, model: CudaModelWeights, host: HostLogits): ForwardResult {
  const { batch, ctx, graphs } = pass;
  const { segments } = batch;
  const counts = segments.map(wantedRows);
  const wanted = segments.flatMap((segment, index) => lastRows(segment, counts[index]));
  const first = wanted.slice(0, HEAD_ROWS);
  // Where each segment's rows begin among those of the head.
  let row = 0;
  const places = counts.map((count) => {
    row += count;
    return row - count;
  });
  const isWhole = wanted.length > HEAD_ROWS || segments.some(({ logits }) => logits === "all");
  const tops = isWhole || segments.every(({ logits }) => logits !== "top") ? 0 : first.length;
  upload(pass);
  const chain = isRepeatable(pass) && pass.tokens === 1 ? pass.chain : null;
  const enqueue = () => {
    enqueueEmbedding(pass, model);
    if (chain !== null) {
      enqueueDecode(pass, model, chain, first.length > 0);
    } else {
      for (const layer of model.layers) enqueueLayer(pass, layer);
      if (first.length > 0) enqueueHead(pass, model, first);
    }
    if (tops > 0) enqueueTop(pass, tops);
  };
  if (isRepeatable(pass)) graphs.run(stepKey(pass), enqueue);
  else enqueue();
  const logits = isWhole ? readLogits(pass, model, host, wanted) : null;
  host.pinned.enqueueResults(pass.buffers.results, tops);
  const rows =
    logits === null
      ? enqueueRows(pass, host.pinned, places, first.length)
      : rowsOfSegments(logits, counts, pass.spec.vocabSize);
  ctx.stream.synchronize();
  const { flag } = host.pinned;
  if (flag !== 0) throw notFinite(`layer ${flag - 1}: router scores are not finite numbers`);
  const result =
    logits === null ? resultOf(pass, host.pinned, places, first.length, rows) : resultOfRows(segments, rows);
  checkLogits(result);
  for (const segment of segments) segment.kv.advance(segment.count);
  return result;
}

/** Token ids, positions, and where every sequence stands. */
function upload({ ctx, buffers, batch }: CudaPass): void {
  const { stream } = ctx;
  const states = new Int32Array(4 * batch.segments.length);
  batch.segments.forEach(({ start, count, kv }, index) => {
    states.set(decodeStateWords(start, count, kv.slots), 4 * index);
  });
  stream.enqueueWrite(buffers.tokenIds, batch.tokens);
  stream.enqueueWrite(buffers.positions, batch.positions);
  stream.enqueueWrite(buffers.states, states);
  stream.clear(buffers.flag);
}

/** Angles and embeddings. Like all of a pass, it reads sizes that change per token from device memory. */
function enqueueEmbedding(pass: CudaPass, model: CudaModelWeights): void {
  const { ctx, steps, spec, buffers, tokens } = pass;
  const pairs = spec.rope.dims / 2;
  const [plain, stretched] = [0, 1].map((i) => buffers.frequencies.slice(4 * i * pairs, 4 * pairs));
  const { positions } = buffers;
  steps.ropeTable(ctx, tokens, pairs, positions, plain, buffers.plainCosines, buffers.plainSines);
  steps.ropeTable(ctx, tokens, pairs, positions, stretched, buffers.stretchedCosines, buffers.stretchedSines);
  steps.embed(ctx, tokens, spec.hyperCount, model.embedding, buffers.tokenIds, buffers.streams);
}

function enqueueLayer(pass: CudaPass, layer: CudaLayerWeights): void {
  const { buffers, spec } = pass;
  const { index } = layer.spec;
  readBlockInput(pass, layer.hcAttn, layer.attnNorm);
  attentionStep(pass, layer);
  trace(pass, "attn_out", index, buffers.blockOut, spec.hiddenSize);
  writeBlockOutput(pass);

  readBlockInput(pass, layer.hcFfn, layer.ffnNorm);
  expertsStep(pass, layer);
  trace(pass, "moe_out", index, buffers.blockOut, spec.hiddenSize);
  writeBlockOutput(pass);
  trace(pass, "streams", index, buffers.streams, spec.hyperCount * spec.hiddenSize);
}

/** Hyper-connection read and norm: streams to `x`, `post` and `comb`. */
function readBlockInput(pass: CudaPass, hc: CudaHyperWeights, norm: DeviceBuffer): void {
  const { ctx, steps, work, spec, buffers, tokens } = pass;
  const { streams, mixes, x, post, comb } = buffers;
  const width = spec.hyperCount * spec.hiddenSize;
  steps.multiply(ctx, tokens, streams, width, [hc.fn], [mixes], work.input);
  steps.readStreams(ctx, tokens, hyperRead(spec, hc, norm), streams, mixes, x, post, comb);
}

function hyperRead(spec: ModelSpec, { base, scale }: CudaHyperWeights, normWeight: DeviceBuffer) {
  const {
    hyperCount: n,
    hiddenSize: hidden,
    normEpsilon,
    hyperEpsilon,
    sinkhornIterations: iterations,
  } = spec;
  return { n, hidden, base, scale, normWeight, normEpsilon, hyperEpsilon, iterations };
}

function writeBlockOutput({ ctx, steps, spec, buffers, tokens }: CudaPass): void {
  const { streams, blockOut, post, comb } = buffers;
  steps.writeStreams(ctx, tokens, spec.hyperCount, spec.hiddenSize, streams, blockOut, post, comb);
}

/** The logits of the wanted rows on the host. The head of the first rows is queued already; more go in pieces. */
function readLogits(
  pass: CudaPass,
  model: CudaModelWeights,
  host: HostLogits,
  wanted: readonly number[],
): Float32Array {
  const { vocabSize } = pass.spec;
  if (host.values.length < wanted.length * vocabSize) {
    host.values = new Float32Array(wanted.length * vocabSize);
  }
  for (let done = 0; done < wanted.length; done += HEAD_ROWS) {
    const rows = wanted.slice(done, done + HEAD_ROWS);
    if (done > 0) enqueueHead(pass, model, rows);
    const target = host.values.subarray(done * vocabSize, (done + rows.length) * vocabSize);
    pass.ctx.stream.read(pass.buffers.logits, target);
  }
  return host.values;
}

/** Queues the copies of the rows that are wanted whole: the last ones of some segments. */
function enqueueRows(
  { batch, buffers }: CudaPass,
  pinned: HostResults,
  places: readonly number[],
  total: number,
): Float32Array[] {
  return batch.segments.map(({ logits }, index) =>
    logits === "last" ? pinned.enqueueRow(buffers.logits, places[index], total) : NO_LOGITS,
  );
}

/** The candidates that came back, beside the rows. */
function resultOf(
  { batch, buffers, ctx }: CudaPass,
  pinned: HostResults,
  places: readonly number[],
  total: number,
  logits: Float32Array[],
): ForwardResult {
  const top = batch.segments.map((segment, index): TopLogits | undefined => {
    if (segment.logits !== "top") return undefined;
    const { ids, logits: values, logSumExp } = pinned.top(places[index]);
    let taken: Float32Array | undefined;
    const row = () => {
      if (taken !== undefined) return taken;
      const view = pinned.enqueueRow(buffers.logits, places[index], total);
      ctx.stream.synchronize();
      taken = view;
      return view;
    };
    return { ids, logits: values, logSumExp: () => logSumExp, row };
  });
  return { logits, top };
}

function checkLogits({ logits, top }: ForwardResult): void {
  // The first of candidates is the largest, or NaN if there is one.
  const holds = ({ length, 0: first }: Float32Array) => length === 0 || Number.isFinite(first);
  if (logits.every(holds) && top.every((each) => each === undefined || holds(each.logits))) return;
  throw notFinite("logits are not finite numbers");
}

/** The last `count` rows of a segment. */
function lastRows(segment: Segment<CudaKv>, count: number): number[] {
  return Array.from({ length: count }, (_, i) => segment.first + segment.count - count + i);
}

/** logits [rows, vocab] of some rows of the streams. */
function enqueueHead(pass: CudaPass, model: CudaModelWeights, rows: readonly number[]): void {
  const { ctx, steps, work, spec, buffers } = pass;
  const { hyperCount: n, hiddenSize: hidden } = spec;
  const { headStreams, headMixes, headX, logits, streams } = buffers;
  const rowBytes = 4 * n * hidden;
  for (let at = 0; at < rows.length; ) {
    let count = 1;
    while (rows[at + count] === rows[at] + count) count++;
    ctx.stream.copy(headStreams.slice(at * rowBytes), streams.slice(rows[at] * rowBytes), count * rowBytes);
    at += count;
  }
  steps.multiply(ctx, rows.length, headStreams, n * hidden, [model.outputHc.fn], [headMixes], work.input);
  const read = hyperRead(spec, model.outputHc, model.outputNorm);
  steps.readHead(ctx, rows.length, read, headStreams, headMixes, headX);
  observe(pass, model.head.name, headX, rows.length, hidden);
  steps.multiply(ctx, rows.length, headX, hidden, [model.head.matrix], [logits], work.input);
}

/** The candidates of the first `rows` rows of logits, behind the flag. */
function enqueueTop({ ctx, steps, spec, buffers }: CudaPass, rows: number): void {
  const work = { candidates: buffers.topCandidates, sums: buffers.topSums };
  steps.topLogits(
    ctx,
    rows,
    spec.vocabSize,
    buffers.logits,
    work,
    buffers.results.slice(RESULT_HEADER_BYTES),
  );
}
