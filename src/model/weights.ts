// Which tensor plays which role: the file's tensor table bound to a typed structure, every shape checked against
// the `ModelSpec`. Holds table entries only; the bytes stay in the file.
import type { GgmlType } from "../blocks/ggml-types.ts";
import { UnsupportedModelError } from "../core/errors.ts";
import type { GgufFile, TensorInfo } from "../gguf/gguf-file.ts";
import type { LayerSpec, ModelSpec } from "./model-spec.ts";
import { readModelSpec } from "./spec-reader.ts";

/** Weights of one hyper-connection read: `fn` [rows, hyper*hidden], `base` [rows], `scale` [3, or 1 at the head]. */
export interface HyperTensors {
  fn: TensorInfo;
  base: TensorInfo;
  scale: TensorInfo;
}

/** `kv`, `gate` [W, hidden], `ape` [ratio, W], `norm` [width]; W = 2*width at ratio 4, else width. */
export interface CompressorTensors {
  kv: TensorInfo;
  gate: TensorInfo;
  ape: TensorInfo;
  norm: TensorInfo;
}

/** `proj` [indexerHeads, hidden], `qB` [indexerHeads*indexerHeadDim, queryLoraRank]. */
export interface IndexerTensors {
  proj: TensorInfo;
  qB: TensorInfo;
  compressor: CompressorTensors;
}

/** One layer's tensors by role. Shapes as [rows, columns], row-major (`dims` of a TensorInfo is the reverse). */
export interface BoundLayer {
  spec: LayerSpec;
  attnNorm: TensorInfo; // [hidden]
  qA: TensorInfo; // [queryLoraRank, hidden]
  qANorm: TensorInfo; // [queryLoraRank]
  qB: TensorInfo; // [heads*headDim, queryLoraRank]
  kv: TensorInfo; // [headDim, hidden]
  kvNorm: TensorInfo; // [headDim]
  sinks: TensorInfo; // [heads]
  outA: TensorInfo; // [groups*outputLoraRank, heads/groups*headDim]
  outB: TensorInfo; // [hidden, groups*outputLoraRank]
  hcAttn: HyperTensors;
  hcFfn: HyperTensors;
  /** Layers with a compress ratio. */
  compressor?: CompressorTensors;
  /** Ratio-4 layers. */
  indexer?: IndexerTensors;
  ffnNorm: TensorInfo; // [hidden]
  router: TensorInfo; // [experts, hidden]
  /** Hash-routed layers: I32 [vocab, used]. */
  tid2eid?: TensorInfo;
  /** Other layers: added to the scores for choosing only, [experts]. */
  expBias?: TensorInfo;
  gateExps: TensorInfo; // [experts, expertHidden, hidden]
  upExps: TensorInfo; // [experts, expertHidden, hidden]
  downExps: TensorInfo; // [experts, hidden, expertHidden]
  gateShared: TensorInfo; // [shared*expertHidden, hidden]
  upShared: TensorInfo; // [shared*expertHidden, hidden]
  downShared: TensorInfo; // [hidden, shared*expertHidden]
}

/** A whole model: spec and tensors by role. */
export interface BoundModel {
  spec: ModelSpec;
  embedding: TensorInfo; // [vocab, hidden]
  head: TensorInfo; // [vocab, hidden]
  outputNorm: TensorInfo; // [hidden]
  outputHc: HyperTensors; // fn [hyper, hyper*hidden], base [hyper], scale [1]
  layers: readonly BoundLayer[];
  /** Names of tensors in the file that no role uses (draft blocks, for example). */
  unusedTensors: readonly string[];
}

/** Vectors stay small and exact: plain floats only. */
const VECTOR_TYPES: readonly GgmlType[] = ["F32", "F16", "BF16"];
const INDEX_TYPES: readonly GgmlType[] = ["I32"];

/**
 * Binds every tensor of the model. `spec` defaults to `readModelSpec(file)`. Throws `unsupported-model` naming the
 * tensor with expected and found dims (fastest first, as in the file) or type. Reads no tensor data.
 */
export function bindModel(file: GgufFile, spec: ModelSpec = readModelSpec(file)): BoundModel {
  return bindTensors(file, spec);
}

/** A tensor table with a name for messages: a file, or one that is only planned. */
export type TensorTable = Pick<GgufFile, "name" | "tensors" | "tensor">;

/** The same for a table alone. Throws as `bindModel`. */
export function bindTensors(table: TensorTable, spec: ModelSpec): BoundModel {
  const binder = new Binder(table);
  const { hiddenSize, hyperCount, vocabSize } = spec;
  const model = {
    spec,
    embedding: binder.matrix("token_embd.weight", [hiddenSize, vocabSize]),
    head: binder.matrix("output.weight", [hiddenSize, vocabSize]),
    outputNorm: binder.vector("output_norm.weight", [hiddenSize]),
    outputHc: {
      fn: binder.matrix("output_hc_fn.weight", [hyperCount * hiddenSize, hyperCount]),
      base: binder.vector("output_hc_base.weight", [hyperCount]),
      scale: binder.vector("output_hc_scale.weight", [1]),
    },
    layers: spec.layers.map((layer) => bindLayer(binder, spec, layer)),
  };
  return { ...model, unusedTensors: binder.unused() };
}

function bindLayer(binder: Binder, spec: ModelSpec, layer: LayerSpec): BoundLayer {
  const p = `blk.${layer.index}.`;
  const { hiddenSize: hidden, headDim, queryLoraRank, expertCount, expertHiddenSize: inner } = spec;
  const groupWidth = (spec.headCount / spec.outputGroupCount) * headDim;
  const groupRows = spec.outputGroupCount * spec.outputLoraRank;
  const sharedInner = spec.expertSharedCount * inner;
  const hashed = layer.hashRouted;
  return {
    spec: layer,
    attnNorm: binder.vector(`${p}attn_norm.weight`, [hidden]),
    qA: binder.matrix(`${p}attn_q_a.weight`, [hidden, queryLoraRank]),
    qANorm: binder.vector(`${p}attn_q_a_norm.weight`, [queryLoraRank]),
    qB: binder.matrix(`${p}attn_q_b.weight`, [queryLoraRank, spec.headCount * headDim]),
    kv: binder.matrix(`${p}attn_kv.weight`, [hidden, headDim]),
    kvNorm: binder.vector(`${p}attn_kv_a_norm.weight`, [headDim]),
    sinks: binder.vector(`${p}attn_sinks.weight`, [spec.headCount]),
    outA: binder.matrix(`${p}attn_output_a.weight`, [groupWidth, groupRows]),
    outB: binder.matrix(`${p}attn_output_b.weight`, [groupRows, hidden]),
    hcAttn: bindHyper(binder, `${p}hc_attn`, spec),
    hcFfn: bindHyper(binder, `${p}hc_ffn`, spec),
    compressor:
      layer.compressRatio === 0
        ? undefined
        : bindCompressor(binder, `${p}attn_compressor`, spec, headDim, layer.compressRatio),
    indexer: layer.hasIndexer ? bindIndexer(binder, p, spec, layer.compressRatio) : undefined,
    ffnNorm: binder.vector(`${p}ffn_norm.weight`, [hidden]),
    router: binder.matrix(`${p}ffn_gate_inp.weight`, [hidden, expertCount]),
    tid2eid: hashed
      ? binder.index(`${p}ffn_gate_tid2eid.weight`, [spec.expertUsedCount, spec.vocabSize])
      : undefined,
    expBias: hashed ? undefined : binder.vector(`${p}exp_probs_b.bias`, [expertCount]),
    gateExps: binder.matrix(`${p}ffn_gate_exps.weight`, [hidden, inner, expertCount]),
    upExps: binder.matrix(`${p}ffn_up_exps.weight`, [hidden, inner, expertCount]),
    downExps: binder.matrix(`${p}ffn_down_exps.weight`, [inner, hidden, expertCount]),
    gateShared: binder.matrix(`${p}ffn_gate_shexp.weight`, [hidden, sharedInner]),
    upShared: binder.matrix(`${p}ffn_up_shexp.weight`, [hidden, sharedInner]),
    downShared: binder.matrix(`${p}ffn_down_shexp.weight`, [sharedInner, hidden]),
  };
}

function bindHyper(binder: Binder, prefix: string, spec: ModelSpec): HyperTensors {
  const streams = spec.hyperCount;
  const rows = 2 * streams + streams * streams; // pre, post, comb
  return {
    fn: binder.matrix(`${prefix}_fn.weight`, [streams * spec.hiddenSize, rows]),
    base: binder.vector(`${prefix}_base.weight`, [rows]),
    scale: binder.vector(`${prefix}_scale.weight`, [3]),
  };
}

function bindCompressor(
  binder: Binder,
  prefix: string,
  spec: ModelSpec,
  width: number,
  ratio: number,
): CompressorTensors {
  const projected = compressorWidth(width, ratio);
  return {
    kv: binder.matrix(`${prefix}_kv.weight`, [spec.hiddenSize, projected]),
    gate: binder.matrix(`${prefix}_gate.weight`, [spec.hiddenSize, projected]),
    ape: binder.matrix(`${prefix}_ape.weight`, [projected, ratio]),
    norm: binder.vector(`${prefix}_norm.weight`, [width]),
  };
}

function bindIndexer(binder: Binder, p: string, spec: ModelSpec, ratio: number): IndexerTensors {
  const rows = spec.indexerHeadCount * spec.indexerHeadDim;
  return {
    proj: binder.matrix(`${p}indexer.proj.weight`, [spec.hiddenSize, spec.indexerHeadCount]),
    qB: binder.matrix(`${p}indexer.attn_q_b.weight`, [spec.queryLoraRank, rows]),
    compressor: bindCompressor(binder, `${p}indexer_compressor`, spec, spec.indexerHeadDim, ratio),
  };
}

/** Columns a compressor projects to: two halves at ratio 4 (overlapping windows), one otherwise. */
export function compressorWidth(width: number, ratio: number): number {
  return ratio === 4 ? 2 * width : width;
}

/** Looks tensors up, checks them and remembers which were asked for. */
class Binder {
  readonly #table: TensorTable;
  readonly #used = new Set<string>();

  constructor(table: TensorTable) {
    this.#table = table;
  }

  /** Any float or quantized type. */
  matrix(name: string, dims: readonly number[]): TensorInfo {
    const tensor = this.#find(name, dims);
    if (tensor.type === "I32") throw this.#fail(name, "a float or quantized type", tensor.type);
    return tensor;
  }

  vector(name: string, dims: readonly number[]): TensorInfo {
    return this.#typed(name, dims, VECTOR_TYPES);
  }

  index(name: string, dims: readonly number[]): TensorInfo {
    return this.#typed(name, dims, INDEX_TYPES);
  }

  unused(): string[] {
    return this.#table.tensors.map((tensor) => tensor.name).filter((name) => !this.#used.has(name));
  }

  #typed(name: string, dims: readonly number[], types: readonly GgmlType[]): TensorInfo {
    const tensor = this.#find(name, dims);
    if (!types.includes(tensor.type)) throw this.#fail(name, `type ${types.join(" or ")}`, tensor.type);
    return tensor;
  }

  #find(name: string, dims: readonly number[]): TensorInfo {
    const tensor = this.#table.tensor(name);
    if (tensor === undefined) throw this.#fail(name, `a tensor [${dims.join(", ")}]`, "none");
    if (!sameDims(tensor.dims, dims)) {
      throw this.#fail(name, `dims [${dims.join(", ")}]`, `[${tensor.dims.join(", ")}]`);
    }
    this.#used.add(name);
    return tensor;
  }

  #fail(name: string, expected: string, found: string): UnsupportedModelError {
    return new UnsupportedModelError(
      `${this.#table.name}: tensor "${name}": expected ${expected}, found ${found}`,
    );
  }
}

/** Trailing dims of 1 are the same shape: writers differ on them. */
function sameDims(found: readonly number[], expected: readonly number[]): boolean {
  const length = Math.max(found.length, expected.length);
  for (let axis = 0; axis < length; axis++) {
    if ((found[axis] ?? 1) !== (expected[axis] ?? 1)) return false;
  }
  return true;
}
