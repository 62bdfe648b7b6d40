// Names of tensors in the official checkpoints, by their names in GGUF files.

/** Stands for the expert's number in the source name of a stack. */
export const EXPERT_MARK = "{expert}";

const HEAD: Readonly<Record<string, string>> = {
  "token_embd.weight": "embed.weight",
  "output_norm.weight": "norm.weight",
  "output.weight": "head.weight",
  "output_hc_fn.weight": "hc_head_fn",
  "output_hc_base.weight": "hc_head_base",
  "output_hc_scale.weight": "hc_head_scale",
};

/** Within a layer: `blk.N.` in the file, `layers.N.` in the checkpoint. */
const LAYER: Readonly<Record<string, string>> = {
  "attn_norm.weight": "attn_norm.weight",
  "attn_sinks.weight": "attn.attn_sink",
  "attn_q_a.weight": "attn.wq_a.weight",
  "attn_q_a_norm.weight": "attn.q_norm.weight",
  "attn_q_b.weight": "attn.wq_b.weight",
  "attn_kv.weight": "attn.wkv.weight",
  "attn_kv_a_norm.weight": "attn.kv_norm.weight",
  "attn_output_a.weight": "attn.wo_a.weight",
  "attn_output_b.weight": "attn.wo_b.weight",
  "hc_attn_fn.weight": "hc_attn_fn",
  "hc_attn_base.weight": "hc_attn_base",
  "hc_attn_scale.weight": "hc_attn_scale",
  "hc_ffn_fn.weight": "hc_ffn_fn",
  "hc_ffn_base.weight": "hc_ffn_base",
  "hc_ffn_scale.weight": "hc_ffn_scale",
  "attn_compressor_kv.weight": "attn.compressor.wkv.weight",
  "attn_compressor_gate.weight": "attn.compressor.wgate.weight",
  "attn_compressor_ape.weight": "attn.compressor.ape",
  "attn_compressor_norm.weight": "attn.compressor.norm.weight",
  "indexer.proj.weight": "attn.indexer.weights_proj.weight",
  "indexer.attn_q_b.weight": "attn.indexer.wq_b.weight",
  "indexer_compressor_kv.weight": "attn.indexer.compressor.wkv.weight",
  "indexer_compressor_gate.weight": "attn.indexer.compressor.wgate.weight",
  "indexer_compressor_ape.weight": "attn.indexer.compressor.ape",
  "indexer_compressor_norm.weight": "attn.indexer.compressor.norm.weight",
  "ffn_norm.weight": "ffn_norm.weight",
  "ffn_gate_inp.weight": "ffn.gate.weight",
  "ffn_gate_tid2eid.weight": "ffn.gate.tid2eid",
  "exp_probs_b.bias": "ffn.gate.bias",
  "ffn_gate_exps.weight": `ffn.experts.${EXPERT_MARK}.w1.weight`,
  "ffn_up_exps.weight": `ffn.experts.${EXPERT_MARK}.w3.weight`,
  "ffn_down_exps.weight": `ffn.experts.${EXPERT_MARK}.w2.weight`,
  "ffn_gate_shexp.weight": "ffn.shared_experts.w1.weight",
  "ffn_up_shexp.weight": "ffn.shared_experts.w3.weight",
  "ffn_down_shexp.weight": "ffn.shared_experts.w2.weight",
};

/**
 * The checkpoint's name of a tensor, with `{expert}` for the number in a stack of experts. Undefined for a name that
 * the family does not have.
 */
export function sourceName(name: string): string | undefined {
  if (Object.hasOwn(HEAD, name)) return HEAD[name];
  const match = /^blk\.(\d+)\.(.*)$/.exec(name);
  if (match === null || !Object.hasOwn(LAYER, match[2])) return undefined;
  return `layers.${match[1]}.${LAYER[match[2]]}`;
}

/** The checkpoint's names of all matrices of a stack, or of the one tensor. */
export function sourceNames(source: string, expertCount: number): string[] {
  if (!source.includes(EXPERT_MARK)) return [source];
  return Array.from({ length: expertCount }, (_, expert) => source.replace(EXPERT_MARK, String(expert)));
}

/** The checkpoint's name of the scales of a quantized tensor. */
export function scaleName(name: string): string {
  return name.replace(/\.weight$/, ".scale");
}
