// Files in parts: found from any of them, and refused with a text that names what is wrong (case 129).
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { buildGguf, sampleTensors } from "../../test/fixtures/gguf-builder.ts";
import { Ds4Error } from "../core/errors.ts";
import type { MetadataValue } from "./gguf-file.ts";
import { openGguf, parseSplitName } from "./open-gguf.ts";

const COUNT = 3;
let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "ds4-split-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const partName = (part: number, count = COUNT) =>
  `model-${String(part).padStart(5, "0")}-of-${String(count).padStart(5, "0")}.gguf`;
const partPath = (part: number, count?: number) => join(folder, partName(part, count));

interface PartOptions {
  no?: number;
  count?: number;
  total?: number;
  tensors?: ReturnType<typeof sampleTensors>;
}

/** Part `part` (1-based) of a valid split: the first has no tensors, the others two each. */
function writePart(part: number, options: PartOptions = {}): void {
  const metadata = new Map<string, MetadataValue>();
  if (part === 1) metadata.set("general.architecture", { type: "string", value: "deepseek4" });
  metadata.set("split.no", { type: "u16", value: options.no ?? part - 1 });
  metadata.set("split.count", { type: "u16", value: options.count ?? COUNT });
  metadata.set("split.tensors.count", { type: "i32", value: options.total ?? 4 });
  const share = part === 1 ? [] : sampleTensors().slice((part - 2) * 2, (part - 1) * 2);
  writeFileSync(partPath(part), buildGguf(metadata, options.tensors ?? share).bytes);
}

function writeAll(): void {
  for (let part = 1; part <= COUNT; part++) writePart(part);
}

function messageOf(path: string): string {
  try {
    openGguf(path).close();
  } catch (error) {
    expect(error).toBeInstanceOf(Ds4Error);
    return (error as Error).message;
  }
  throw new Error("expected an error");
}

describe("openGguf on a split file (case 129)", () => {
  it.each([1, 2, 3])("opens all three parts when given part %s", (part) => {
    writeAll();
    const file = openGguf(partPath(part));
    expect(file.parts).toEqual([partPath(1), partPath(2), partPath(3)]);
    expect(file.metadata.get("general.architecture")).toEqual({ type: "string", value: "deepseek4" });
    expect(file.tensors.map((tensor) => tensor.fileIndex)).toEqual([1, 1, 2, 2]);
    for (const { name, data } of sampleTensors()) {
      expect(file.readTensor(file.tensor(name)!)).toEqual(data);
    }
    file.close();
  });

  it.each([1, 2, 3])("names part %s when it is missing, whichever part was given", (missing) => {
    writeAll();
    rmSync(partPath(missing));
    const given = missing === 2 ? 3 : 2;
    expect(messageOf(partPath(given))).toContain(`part ${partName(missing)} of this split file is missing`);
  });

  it("says how to name a part that was renamed", () => {
    writeAll();
    renameSync(partPath(1), join(folder, "model.gguf"));
    expect(messageOf(join(folder, "model.gguf"))).toContain("NAME-00001-of-00003.gguf");
  });

  it("refuses counts that disagree: parts in the header, tensors in all, numbers of parts", () => {
    writeAll();
    writePart(2, { count: 4 });
    expect(messageOf(partPath(1))).toMatch(/00002-of-00003\.gguf: its header says 4 parts, its name 3/);
    writeAll();
    writePart(1, { total: 5 });
    expect(messageOf(partPath(1))).toMatch(/the parts hold 4 tensors, the header says 5/);
    writeAll();
    writePart(3, { no: 1 });
    expect(messageOf(partPath(1))).toMatch(
      /00003-of-00003\.gguf: its header says it is part 2, its name part 3/,
    );
  });

  it("refuses the same tensor in two parts, naming both", () => {
    writeAll();
    writePart(3, { tensors: sampleTensors().slice(0, 2) });
    expect(messageOf(partPath(1))).toMatch(/occurs in .*00002-of-00003\.gguf and .*00003-of-00003\.gguf/);
  });

  it("refuses a damaged part by its own name", () => {
    writeAll();
    writeFileSync(partPath(2), "GGUF");
    expect(messageOf(partPath(1))).toMatch(/00002-of-00003\.gguf: expected a GGUF file/);
  });

  it.each([
    [0, 3],
    [4, 3],
    [1, 0],
    [1, 99_999],
  ])("refuses the name of part %s of %s", (part, count) => {
    expect(messageOf(partPath(part, count))).toMatch(/not a valid split name/);
  });

  it("takes names apart and leaves other names alone", () => {
    expect(parseSplitName("/a/b-00002-of-00010.gguf")).toEqual({ prefix: "/a/b", part: 2, count: 10 });
    expect(parseSplitName("/a/b-2-of-10.gguf")).toBeNull();
    expect(parseSplitName("/a-00001-of-00002.gguf/b.gguf")).toBeNull();
  });
});
