// Opens a GGUF file by path; a part of a split file (`-00001-of-00005.gguf`) opens all of its parts.
import { existsSync } from "node:fs";
import { basename } from "node:path";
import { GgufError } from "../core/errors.ts";
import { openByteSource } from "./file-source.ts";
import type { GgufFile, MetadataValue } from "./gguf-file.ts";
import { MAX_PARTS } from "./limits.ts";
import { type GgufPart, OpenGgufFile, parsePart } from "./parse-gguf.ts";

const SPLIT_NAME = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/;

/** A name of the split scheme, taken apart. */
interface SplitName {
  prefix: string;
  /** 1-based. */
  part: number;
  count: number;
}

/**
 * Opens `path` and reads its header. Any part of a split file may be given: the others are found beside it by
 * name. Throws `io` or GgufError; nothing stays open then.
 */
export function openGguf(path: string): GgufFile {
  const split = parseSplitName(path);
  const paths = split === null ? [path] : partPaths(path, split);
  const parts: GgufPart[] = [];
  const sources = [];
  try {
    for (const [index, partPath] of paths.entries()) {
      const source = openByteSource(partPath);
      sources.push(source);
      parts.push(parsePart(source, index));
    }
    checkSplitMetadata(parts, split);
    return new OpenGgufFile(parts);
  } catch (error) {
    for (const source of sources) source.close();
    throw error;
  }
}

/** Opens `path` for as long as `use` takes. Throws as `openGguf` and what `use` throws. */
export function withGguf<T>(path: string, use: (file: GgufFile) => T): T {
  const file = openGguf(path);
  try {
    return use(file);
  } finally {
    file.close();
  }
}

/** Takes `x-00002-of-00005.gguf` apart; null for any other name. */
export function parseSplitName(path: string): SplitName | null {
  const match = SPLIT_NAME.exec(path);
  if (!match) return null;
  return { prefix: match[1], part: Number(match[2]), count: Number(match[3]) };
}

function partPaths(path: string, split: SplitName): string[] {
  if (split.count < 1 || split.count > MAX_PARTS || split.part < 1 || split.part > split.count) {
    throw new GgufError(`${path}: part ${split.part} of ${split.count} is not a valid split name`);
  }
  const pad = (value: number) => String(value).padStart(5, "0");
  const paths = Array.from(
    { length: split.count },
    (_, index) => `${split.prefix}-${pad(index + 1)}-of-${pad(split.count)}.gguf`,
  );
  const missing = paths.filter((partPath) => !existsSync(partPath));
  if (missing.length > 0) {
    const names = missing.slice(0, 3).map((partPath) => basename(partPath));
    const more = missing.length > 3 ? ` and ${missing.length - 3} more` : "";
    throw new GgufError(
      `${path}: part ${names.join(", ")}${more} of this split file is missing; all ${split.count} parts must lie in one folder`,
    );
  }
  return paths;
}

function checkSplitMetadata(parts: readonly GgufPart[], split: SplitName | null): void {
  const declared = integer(parts[0].metadata.get("split.count"));
  if (split === null) {
    if (declared !== null && declared > 1) {
      throw new GgufError(
        `${parts[0].source.name}: this is one part of a file split into ${declared}; keep the names NAME-00001-of-${String(declared).padStart(5, "0")}.gguf so that the parts can be found`,
      );
    }
    return;
  }
  for (const [index, part] of parts.entries()) {
    const count = integer(part.metadata.get("split.count"));
    const number = integer(part.metadata.get("split.no"));
    if (count !== null && count !== split.count) {
      throw new GgufError(`${part.source.name}: its header says ${count} parts, its name ${split.count}`);
    }
    if (number !== null && number !== index) {
      throw new GgufError(
        `${part.source.name}: its header says it is part ${number + 1}, its name part ${index + 1}`,
      );
    }
  }
  const expected = integer(parts[0].metadata.get("split.tensors.count"));
  const found = parts.reduce((sum, part) => sum + part.tensors.length, 0);
  if (expected !== null && expected !== found) {
    throw new GgufError(
      `${parts[0].source.name}: the parts hold ${found} tensors, the header says ${expected}`,
    );
  }
}

function integer(value: MetadataValue | undefined): number | null {
  if (value === undefined || value.type === "array" || value.type === "string" || value.type === "bool")
    return null;
  return Number(value.value);
}
