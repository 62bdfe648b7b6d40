// Checkpoints that are damaged, incomplete or not what they say: each is refused with a typed error that names the
// place, and leaves no output.
import { mkdtempSync, readdirSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import {
  type Damage,
  damagedNano,
  nanoConfig,
  safetensorsStart,
} from "../../test/fixtures/damaged-checkpoint.ts";
import { openCheckpoint } from "./checkpoint.ts";
import { convertCheckpoint } from "./convert.ts";
import { openSafetensors } from "./safetensors.ts";

const folder = mkdtempSync(join(tmpdir(), "ds4-hostile-"));
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => {
  for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true });
});

const entry = (dtype: unknown, shape: unknown, offsets: unknown) => ({ dtype, shape, data_offsets: offsets });

const indexOf = (map: unknown) => JSON.stringify({ weight_map: map });
const INDEX = "model.safetensors.index.json";

describe("checkpoints", () => {
  it("of a single file need no index", () => {
    writeFileSync(join(folder, "config.json"), "{}");
    const bytes = Buffer.concat([safetensorsStart({ a: entry("U8", [2], [0, 2]) }), Buffer.from([5, 6])]);
    writeFileSync(join(folder, "model.safetensors"), bytes);
    const checkpoint = openCheckpoint(folder);
    expect([...checkpoint.names]).toEqual(["a"]);
    expect(checkpoint.read(checkpoint.find("a")!, 0, 2)).toEqual(Uint8Array.of(5, 6));
    checkpoint.close();
  });

  it.each<[what: string, damage: Damage, code: string, message: RegExp]>([
    [
      "a missing shard",
      { files: { "model-00002-of-00002.safetensors": null } },
      "convert",
      /1?.*of 2 shards missing/,
    ],
    ["no index and no single file", { files: { [INDEX]: null } }, "convert", /found neither/],
    ["an index that is no JSON", { files: { [INDEX]: "{" } }, "convert", /no valid JSON/],
    ["an index without a map", { files: { [INDEX]: "{}" } }, "convert", /weight_map/],
    [
      "a path upwards",
      { files: { [INDEX]: indexOf({ a: "../x.safetensors" }) } },
      "convert",
      /in the same folder/,
    ],
    [
      "an absolute path",
      { files: { [INDEX]: indexOf({ a: "/etc/passwd" }) } },
      "convert",
      /found "\/etc\/passwd"/,
    ],
    ["a file that is no text", { files: { [INDEX]: indexOf({ a: 7 }) } }, "convert", /found "7"/],
    ["a NUL in a name", { files: { [INDEX]: indexOf({ a: "a\0.safetensors" }) } }, "convert", /same folder/],
    [
      "an index of another download",
      { files: { [INDEX]: indexOf({ nothing: "model-00001-of-00002.safetensors" }) } },
      "convert",
      /"nothing" should be in model-00001/,
    ],
    ["no config", { files: { "config.json": null } }, "io", /cannot open .*config.json/],
    ["no tokenizer", { files: { "tokenizer.json": null } }, "io", /cannot open .*tokenizer.json/],
    ["a tokenizer of another kind", { files: { "tokenizer.json": "{}" } }, "tokenizer", /expected an object/],
    ["no layer count", config({ num_hidden_layers: null }), "convert", /"num_hidden_layers".*found nothing/],
    ["a huge layer count", config({ num_hidden_layers: 1e9 }), "convert", /in 1..1024, found 1000000000/],
    ["more layers than ratios", config({ num_hidden_layers: 7 }), "convert", /at least 7 entries/],
    ["more layers than tensors", moreLayers(), "convert", /"layers.6.hc_attn_fn" is missing/],
    [
      "an unknown ratio",
      config({ compress_ratios: [0, 0, 4, 128, 4, 64] }),
      "convert",
      /"compress_ratios": expected 0, 4, 128 for each layer/,
    ],
    [
      "another score",
      config({ scoring_func: "sigmoid" }),
      "convert",
      /"scoring_func": expected "sqrtsoftplus"/,
    ],
    [
      "other FP8 tiles",
      config({ quantization_config: { weight_block_size: [32, 32] } }),
      "convert",
      /\[128, 128\]/,
    ],
    ["other RoPE scaling", config({ rope_scaling: { type: "linear" } }), "convert", /"rope_scaling.type"/],
    [
      "V4.1",
      config({ architectures: ["DeepseekV41ForCausalLM"] }),
      "unsupported-model",
      /V4.1 has other layers/,
    ],
    [
      "another width",
      config({ hidden_size: 512 }),
      "convert",
      /expected \[4096, 512\] values.*found \[4096, 256\]/,
    ],
    ["more experts", config({ n_routed_experts: 17 }), "convert", /gate.weight": expected \[17, 256\]/],
    [
      "fewer experts",
      config({ n_routed_experts: 15 }),
      "convert",
      /experts.15.*is no part of a DeepSeek V4 model/,
    ],
  ])("with %s are refused", async (_, damage, code, message) => {
    await expectRefused(damage, code, message);
  });

  it.each<[what: string, shard: NonNullable<Damage["shard"]>, code: string, message: RegExp]>([
    [
      "scales of another shape",
      (header) => {
        header["layers.0.attn.wkv.scale"].shape = [2, 4];
      },
      "convert",
      /wkv.scale": expected F8_E8M0 \[4, 2\] \(for F8_E4M3 \[512, 256\]\), found F8_E8M0 \[2, 4\]/,
    ],
    [
      "scales of another type",
      (header) => {
        header["layers.0.attn.wkv.scale"].dtype = "U8";
      },
      "convert",
      /found U8 \[4, 2\]/,
    ],
    [
      "a transposed matrix",
      (header) => {
        header["layers.0.attn.wq_a.weight"].shape.reverse();
      },
      "convert",
      /wq_a.scale": expected|wq_a.weight": expected/,
    ],
    [
      "a dtype that no rule reads",
      (header) => {
        header["embed.weight"].dtype = "U16";
      },
      "convert",
      /embed.weight": expected dtype .*found U16/,
    ],
    [
      "a value that is no number",
      (header, data) => {
        data[header["layers.0.attn.wkv.weight"].data_offsets[0] + 5] = 0x7f;
      },
      "convert",
      /blk.0.attn_kv.weight.*NaN/,
    ],
    [
      "an expert scale that is no number",
      (header, data) => {
        data[header["layers.0.ffn.experts.3.w1.scale"].data_offsets[1] - 1] = 255;
      },
      "convert",
      /experts.3.w1.scale": expected finite scales/,
    ],
    [
      "an expert id out of range",
      (header, data) => {
        data[header["layers.0.ffn.gate.tid2eid"].data_offsets[0] + 8] = 16;
      },
      "convert",
      /tid2eid": expected expert ids in 0..15, found 16/,
    ],
  ])("with %s are refused", async (_, change, code, message) => {
    await expectRefused({ shard: change }, code, message);
  });

  it("cut short are refused", async () => {
    const checkpoint = damagedNano(join(folder, "checkpoint"), { shard: () => {} });
    truncateSync(join(checkpoint, "model-00001-of-00002.safetensors"), 12_000_000);
    const conversion = convertCheckpoint({
      folder: checkpoint,
      outPath: join(folder, "o.gguf"),
      recipe: "mxfp4",
    });
    await expect(conversion).rejects.toThrow(/is the file cut short/);
  });

  it("with draft tensors convert without them, and say so", async () => {
    const damage: Damage = {
      shard: (header) => {
        header["mtp.0.unknown.weight"] = entry("U8", [0], [0, 0]) as (typeof header)[string];
      },
      files: { [INDEX]: null },
    };
    const checkpoint = damagedNano(join(folder, "checkpoint"), damage);
    const map: Record<string, string> = {};
    for (const part of [1, 2]) {
      const name = `model-0000${part}-of-00002.safetensors`;
      const file = openSafetensors(join(checkpoint, name));
      for (const tensor of file.tensors.keys()) map[tensor] = name;
      file.close();
    }
    writeFileSync(join(checkpoint, INDEX), indexOf(map));
    const outPath = join(folder, "o.gguf");
    const result = await convertCheckpoint({ folder: checkpoint, outPath, recipe: "mxfp4" });
    expect(result).toMatchObject({ skippedDraftTensors: 1, tensorCount: 178 });
  });
});

function config(changes: Record<string, unknown>): Damage {
  return { files: { "config.json": nanoConfig(changes) } };
}

function moreLayers(): Damage {
  return config({ num_hidden_layers: 7, compress_ratios: [0, 0, 4, 128, 4, 128, 4] });
}

async function expectRefused(damage: Damage, code: string, message: RegExp): Promise<void> {
  const checkpoint = damagedNano(join(folder, "checkpoint"), damage);
  const conversion = convertCheckpoint({
    folder: checkpoint,
    outPath: join(folder, "o.gguf"),
    recipe: "mxfp4",
  });
  await expect(conversion).rejects.toMatchObject({ code, message: expect.stringMatching(message) });
  expect(readdirSync(folder)).toEqual(["checkpoint"]);
}
