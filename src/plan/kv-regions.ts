// The attention state's part of a memory plan: what a full window takes, per kind of array over all layers and slots.
import { layerKvSizes, pendingValues } from "./kv-size.ts";
import type { PlanInput, PlanOptions, Region } from "./memory-plan.ts";

/** Bytes of a row's value: float32, or on CUDA one or two halves. Raw projections are float32. */
const rowBytesOf = ({ backend, kvType }: PlanOptions) => (backend === "cuda" && kvType !== "f16x2" ? 2 : 4);
const PENDING_BYTES = 4;

/** Regions of the KV state of all slots, and of the sessions that own them. */
export function kvRegions({ model, options, pools }: PlanInput): Region[] {
  const { spec } = model;
  const { ctxTokens, slots, batchTokens } = options;
  const rowBytes = rowBytesOf(options);
  const totals = new Map<string, number>();
  const add = (kind: string, bytes: number) => totals.set(kind, (totals.get(kind) ?? 0) + slots * bytes);
  add("window", 0); // first in the order
  for (const layer of spec.layers) {
    const { ringValues, compressor, indexer } = layerKvSizes(spec, layer, ctxTokens, batchTokens);
    add("window", rowBytes * ringValues);
    if (compressor) add(`compressed-${compressor.ratio}`, rowBytes * compressor.entryValues);
    if (indexer) add("indexer", rowBytes * indexer.entryValues);
    for (const each of [compressor, indexer]) if (each) add("pending", PENDING_BYTES * pendingValues(each));
  }
  const regions = [...totals].map(([kind, bytes]): Region => {
    const ratio = /^compressed-(\d+)$/.exec(kind)?.[1];
    const label = ratio === undefined ? LABELS[kind] : `KV compressed ${ratio}:1`;
    const why = ratio === undefined ? REASONS[kind] : `one entry per ${ratio} tokens of a full context`;
    return { id: `kv/${kind}`, owner: "kv", label, pool: pools.device.id, bytes, why };
  });
  const sessionBytes = slots * 4 * (ctxTokens + spec.vocabSize);
  regions.push({
    ...{ id: "kv/session", owner: "kv", label: "sessions", pool: pools.host.id },
    ...{ bytes: sessionBytes, why: "token history and last logits of each slot" },
  });
  const { checkpointBytes = 0 } = options;
  if (checkpointBytes > 0) {
    regions.push({
      ...{ id: "kv/checkpoints", owner: "kv", label: "KV checkpoints", pool: pools.host.id },
      ...{ bytes: checkpointBytes, why: "a budget: states that a slot can go back to" },
    });
  }
  return regions;
}

const LABELS: Readonly<Record<string, string>> = {
  window: "KV sliding window",
  indexer: "KV indexer",
  pending: "KV unfinished windows",
};

const REASONS: Readonly<Record<string, string>> = {
  window: "a ring of one window and one batch, per layer",
  indexer: "one key per entry that the indexer scores",
  pending: "raw projections, two slots per compressor",
};
