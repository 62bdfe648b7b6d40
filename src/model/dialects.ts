// Files that are not, or not quite, the `deepseek4` layout: recognised so that the refusal can name them. No
// attempt is made to run one.

import { UnsupportedModelError } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";

/** Tensor names of early third-party conversions, as they end. */
const EARLY_TENSOR_SUFFIXES = ["attn_compress_kv.weight", "attn_kv_latent.weight", "hc_head_base"];

/**
 * Throws `unsupported-model` when the file is another architecture, DeepSeek V4.1, a draft-model companion or an
 * early conversion with other names; returns otherwise.
 */
export function refuseOtherDialects(file: GgufFile): void {
  const architecture = file.metadata.get("general.architecture");
  const found = architecture?.type === "string" ? architecture.value : undefined;
  const refuse = (what: string) => new UnsupportedModelError(`${file.name}: ${what}`);
  refuseCompanions(file, refuse);
  if (found !== undefined && /^deepseek[-_]?v?4[._-]?1/i.test(found)) {
    throw refuse(v41Text(`architecture ${quotedText(found)}`));
  }
  const engram =
    [...file.metadata.keys()].find((key) => key.startsWith("deepseek4.engram")) ??
    file.tensors.find((tensor) => tensor.name.includes("engram"))?.name;
  if (engram !== undefined) throw refuse(v41Text(quotedText(engram)));
  if (found !== "deepseek4") {
    throw refuse(`general.architecture: expected "deepseek4", found ${found ? quotedText(found) : "none"}`);
  }
  const early =
    file.tensors.find((tensor) => EARLY_TENSOR_SUFFIXES.some((suffix) => tensor.name.endsWith(suffix)))
      ?.name ?? ["deepseek4.rope.freq_base_swa"].find((key) => file.metadata.has(key));
  if (early !== undefined) {
    throw refuse(
      `${quotedText(early)} marks an early third-party conversion of DeepSeek V4 whose layout differs; ` +
        `use a file made by llama.cpp, ds4 or this project's convert command`,
    );
  }
}

function refuseCompanions(file: GgufFile, refuse: (what: string) => UnsupportedModelError): void {
  if (file.tensor("token_embd.weight") !== undefined) return;
  if (file.tensors.some((tensor) => tensor.name.startsWith("mtp."))) {
    throw refuse("this is the draft (MTP) companion of a model, not a model: open the main file");
  }
  if (file.tensors.some((tensor) => tensor.name.startsWith("dspark."))) {
    throw refuse("this is the DSpark draft companion of a model, not a model: open the main file");
  }
}

function v41Text(mark: string): string {
  return `${mark} marks DeepSeek V4.1, another architecture (shared index layers, Engram tables) that is not supported`;
}
