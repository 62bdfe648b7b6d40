// One forward pass on native kernels. The order of steps is the reference backend's; here each is one native call over
// the whole batch, or over one sequence where its state is involved.
import type { ModelSpec } from "../../model/model-spec.ts";
import { headValuesPerRow } from "../../plan/scratch-size.ts";
import type { ForwardResult } from "../backend.ts";
import { rowsOfSegments, wantedRows } from "../token-batch.ts";
import { resultOfRows } from "../top-logits.ts";
import { attentionStep } from "./attention-step.ts";
import { expertsStep } from "./experts-step.ts";
import type { HyperWeights, LayerWeights, ModelWeights } from "./layer-weights.ts";
import { notFinite, type Pass } from "./pass.ts";
import { residentFloats } from "./resident-array.ts";

/** Room for the wanted rows of the head: grows with the largest demand so far. */
export interface HeadBuffers {
  streams: Float32Array; // [rows, n, hidden]
  x: Float32Array; // [rows, hidden]
  logits: Float32Array; // [rows, vocab]
}

/**
 * Evaluates the batch and returns the wanted logits, views of `head.logits`. The KV states count the tokens only at the end:
 * a pass that throws leaves them as they were.
 */
export function forwardBatch(pass: Pass, model: ModelWeights, head: HeadBuffers): ForwardResult {
  const { kernels, workspace, spec, scratch, batch, tokens } = pass;
  fillRopeTables(pass);
  kernels.embed(workspace, tokens, spec.hyperCount, model.embedding, batch.tokens, scratch.streams);
  for (const layer of model.layers) forwardLayer(pass, layer);
  const result = resultOfRows(batch.segments, outputLogits(pass, model, head));
  if (result.top.some((top) => top !== undefined && !Number.isFinite(top.logits[0]))) throw damagedLogits();
  for (const segment of batch.segments) segment.kv.advance(segment.count);
  return result;
}

function fillRopeTables({ kernels, scratch, batch, tokens, frequencies }: Pass): void {
  const { plain, stretched } = frequencies;
  const { plainCosines, plainSines, stretchedCosines, stretchedSines } = scratch;
  kernels.ropeTable(tokens, plain.length, batch.positions, plain, plainCosines, plainSines);
  kernels.ropeTable(tokens, stretched.length, batch.positions, stretched, stretchedCosines, stretchedSines);
}

function forwardLayer(pass: Pass, layer: LayerWeights): void {
  const { scratch, tokens, spec, options } = pass;
  const trace = options.trace;
  const hiddenValues = tokens * spec.hiddenSize;
  readBlockInput(pass, layer.hcAttn, layer.attnNorm);
  attentionStep(pass, layer);
  trace?.("attn_out", layer.spec.index, scratch.blockOut.subarray(0, hiddenValues));
  writeBlockOutput(pass);

  readBlockInput(pass, layer.hcFfn, layer.ffnNorm);
  expertsStep(pass, layer);
  trace?.("moe_out", layer.spec.index, scratch.blockOut.subarray(0, hiddenValues));
  writeBlockOutput(pass);
  trace?.("streams", layer.spec.index, scratch.streams.subarray(0, hiddenValues * spec.hyperCount));
}

/** Hyper-connection read and norm: streams to `x`, `post` and `comb`. */
function readBlockInput(
  { kernels, workspace, spec, scratch, tokens }: Pass,
  hc: HyperWeights,
  norm: Float32Array,
) {
  kernels.readStreams(
    workspace,
    tokens,
    spec.hyperCount,
    spec.hiddenSize,
    hc.fn,
    hc.base,
    hc.scale,
    norm,
    spec.normEpsilon,
    spec.hyperEpsilon,
    spec.sinkhornIterations,
    scratch.streams,
    scratch.x,
    scratch.post,
    scratch.comb,
  );
}

function writeBlockOutput({ kernels, workspace, spec, scratch, tokens }: Pass): void {
  const { streams, blockOut, post, comb } = scratch;
  kernels.writeStreams(workspace, tokens, spec.hyperCount, spec.hiddenSize, streams, blockOut, post, comb);
}

/** The head over the rows that the segments want, all in one product. */
function outputLogits(pass: Pass, model: ModelWeights, head: HeadBuffers): Float32Array[] {
  const { kernels, workspace, spec, scratch, batch } = pass;
  const { hyperCount: n, hiddenSize: hidden, vocabSize } = spec;
  const counts = batch.segments.map(wantedRows);
  const rows = counts.reduce((sum, count) => sum + count, 0);
  if (rows > 0) {
    growHead(head, rows, spec);
    let row = 0;
    batch.segments.forEach((segment, index) => {
      const end = (segment.first + segment.count) * n * hidden;
      head.streams.set(scratch.streams.subarray(end - counts[index] * n * hidden, end), row * n * hidden);
      row += counts[index];
    });
    const hc = model.outputHc;
    kernels.readHead(
      workspace,
      rows,
      n,
      hidden,
      hc.fn,
      hc.base,
      hc.scale,
      model.outputNorm,
      spec.normEpsilon,
      spec.hyperEpsilon,
      spec.sinkhornIterations,
      head.streams,
      head.x,
    );
    pass.options.observeInputs?.(model.head.name, -1, head.x.subarray(0, rows * hidden), rows);
    kernels.multiply(workspace, rows, head.x, [model.head.matrix], [head.logits]);
    if (!Number.isFinite(head.logits[0])) throw damagedLogits();
  }
  return rowsOfSegments(head.logits, counts, vocabSize);
}

function damagedLogits() {
  return notFinite("logits are not finite numbers");
}

function growHead(head: HeadBuffers, rows: number, spec: ModelSpec): void {
  if (head.x.length >= rows * spec.hiddenSize) return;
  const perRow = headValuesPerRow(spec);
  head.streams = residentFloats(rows * perRow.streams);
  head.x = residentFloats(rows * perRow.x);
  head.logits = residentFloats(rows * perRow.logits);
}
