// A checkpoint folder in the official layout: config.json, tokenizer.json, and tensors in one or many .safetensors
// files found through the index. Headers are read at once, tensors by ranges.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Ds4Error } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import { type JsonObject, JsonReader, readJsonFile } from "./json-file.ts";
import { openSafetensors, type SafetensorsFile, type SafetensorsInfo } from "./safetensors.ts";

const INDEX_NAME = "model.safetensors.index.json";
const SINGLE_NAME = "model.safetensors";
/** The largest official index takes 15 MB. */
const MAX_INDEX_BYTES = 134_217_728;
/** Real ones take 2 KB. */
const MAX_CONFIG_BYTES = 1_048_576;
/** DeepSeek's takes 7 MB. */
const MAX_TOKENIZER_BYTES = 67_108_864;
/** Shards stay open together; the largest official model has 64. */
const MAX_SHARDS = 768;

/** An open checkpoint. Close it when done. */
export interface Checkpoint {
  readonly folder: string;
  readonly config: JsonReader;
  readonly names: Iterable<string>;
  find(name: string): SafetensorsInfo | undefined;
  /** Reads `length` bytes from `start` within a tensor that `find` returned. Fresh memory. Throws `io`. */
  read(tensor: SafetensorsInfo, start: number, length: number): Uint8Array;
  /** The parsed tokenizer.json. Throws `io` or `convert`. */
  readTokenizer(): JsonObject;
  close(): void;
}

/** Opens all shards and checks them against the index. Throws `io`, `safetensors` or `convert`; nothing stays open. */
export function openCheckpoint(folder: string): Checkpoint {
  const config = new JsonReader(
    join(folder, "config.json"),
    readJsonFile(folder, "config.json", MAX_CONFIG_BYTES),
  );
  const shards = new Map<string, SafetensorsFile>();
  const close = () => {
    for (const shard of shards.values()) shard.close();
  };
  try {
    const homes = new Map<string, SafetensorsFile>();
    if (existsSync(join(folder, INDEX_NAME))) openIndexed(folder, shards, homes);
    else openSingle(folder, shards, homes);
    return {
      folder,
      config,
      names: homes.keys(),
      find: (name) => homes.get(name)?.tensors.get(name),
      read(tensor, start, length) {
        const home = homes.get(tensor.name);
        if (home === undefined)
          throw new Ds4Error("convert", `${folder}: no tensor ${quotedText(tensor.name)}`);
        return home.read(tensor, start, length);
      },
      readTokenizer: () => readJsonFile(folder, "tokenizer.json", MAX_TOKENIZER_BYTES),
      close,
    };
  } catch (error) {
    close();
    throw error;
  }
}

function openSingle(
  folder: string,
  shards: Map<string, SafetensorsFile>,
  homes: Map<string, SafetensorsFile>,
) {
  const path = join(folder, SINGLE_NAME);
  if (!existsSync(path)) {
    throw new Ds4Error(
      "convert",
      `${folder}: expected ${INDEX_NAME} or ${SINGLE_NAME}, found neither; is it a checkpoint folder?`,
    );
  }
  const shard = openSafetensors(path);
  shards.set(SINGLE_NAME, shard);
  for (const name of shard.tensors.keys()) homes.set(name, shard);
}

function openIndexed(
  folder: string,
  shards: Map<string, SafetensorsFile>,
  homes: Map<string, SafetensorsFile>,
) {
  const indexPath = join(folder, INDEX_NAME);
  const map = new JsonReader(indexPath, readJsonFile(folder, INDEX_NAME, MAX_INDEX_BYTES)).get("weight_map");
  if (typeof map !== "object" || map === null || Array.isArray(map)) {
    throw new Ds4Error("convert", `${indexPath}: expected "weight_map" to be an object of tensor to file`);
  }
  const entries = Object.entries(map as JsonObject);
  const files = [...new Set(entries.map(([, file]) => checkedFileName(indexPath, file)))];
  if (files.length > MAX_SHARDS) {
    throw new Ds4Error(
      "convert",
      `${indexPath}: expected at most ${MAX_SHARDS} files, found ${files.length}`,
    );
  }
  const missing = files.filter((file) => !existsSync(join(folder, file)));
  if (missing.length > 0) {
    const more = missing.length > 3 ? ` and ${missing.length - 3} more` : "";
    throw new Ds4Error(
      "convert",
      `${folder}: ${missing.slice(0, 3).join(", ")}${more} of ${files.length} shards missing; download them all`,
    );
  }
  for (const file of files) shards.set(file, openSafetensors(join(folder, file)));
  for (const [name, file] of entries) {
    const shard = shards.get(file as string) as SafetensorsFile;
    if (!shard.tensors.has(name)) {
      throw new Ds4Error(
        "convert",
        `${indexPath}: tensor ${quotedText(name)} should be in ${file}, which has no such tensor; ` +
          "index and shards are of different downloads",
      );
    }
    homes.set(name, shard);
  }
}

/** A plain file name: an index must not reach outside its folder. */
function checkedFileName(indexPath: string, file: unknown): string {
  if (typeof file === "string" && /^[\w][\w.-]*\.safetensors$/.test(file) && file.length <= 255) return file;
  throw new Ds4Error(
    "convert",
    `${indexPath}: expected names of .safetensors files in the same folder, found ${quotedText(String(file))}`,
  );
}
