// The GGUF form of an importance matrix: tensors NAME.in_sum2 [columns, experts] and NAME.counts [1, experts], F32.
import { Ds4Error } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import type { GgufFile, TensorInfo } from "../gguf/gguf-file.ts";
import { openGguf } from "../gguf/open-gguf.ts";
import { COUNTS_SUFFIX, type ImatrixIndex, type ImatrixSlot, SUMS_SUFFIX } from "./imatrix-slots.ts";

/** Opens the file and reads its table and counts. Throws `io`, `gguf` or `convert`; nothing stays open then. */
export function openImatrixGguf(path: string): ImatrixIndex {
  const file = openGguf(path);
  try {
    const slots = new Map<string, ImatrixSlot>();
    for (const tensor of file.tensors) {
      if (!tensor.name.endsWith(SUMS_SUFFIX)) continue;
      const name = tensor.name.slice(0, -SUMS_SUFFIX.length);
      slots.set(name, slotOf(file, name, tensor));
    }
    if (slots.size === 0) {
      throw new Ds4Error(
        "convert",
        `${path}: expected an importance matrix (tensors ending in ${SUMS_SUFFIX}), found none among ` +
          `${file.tensors.length} tensors. Is it a model? Make one with "ds4 imatrix".`,
      );
    }
    const datasets = file.metadata.get("imatrix.datasets");
    const chunks = file.metadata.get("imatrix.chunk_count");
    return {
      slots,
      datasets: datasets?.type === "array" && datasets.elementType === "string" ? strings(datasets) : [],
      chunkCount: chunks !== undefined && "value" in chunks ? Number(chunks.value) : undefined,
      close: () => file.close(),
    };
  } catch (error) {
    file.close();
    throw error;
  }
}

function strings(array: { values: unknown }): readonly string[] {
  return array.values as string[];
}

function slotOf(file: GgufFile, name: string, sums: TensorInfo): ImatrixSlot {
  const counts = file.tensor(name + COUNTS_SUFFIX);
  if (counts === undefined || sums.type !== "F32" || counts.type !== "F32") {
    throw new Ds4Error(
      "convert",
      `${file.name}: the importance of ${quotedText(name)}: expected F32 sums and F32 counts, found ` +
        `${sums.type} and ${counts?.type ?? "none"}. The file is damaged or of another kind.`,
    );
  }
  const sumCount = sums.bytes / Float32Array.BYTES_PER_ELEMENT;
  const read = (tensor: TensorInfo, start: number, count: number) => {
    const values = new Float32Array(count);
    file.readTensorInto(tensor, new Uint8Array(values.buffer), start * Float32Array.BYTES_PER_ELEMENT);
    return values;
  };
  const experts = counts.bytes / Float32Array.BYTES_PER_ELEMENT;
  if (experts !== 1 && experts !== sumCount / sums.dims[0]) {
    throw new Ds4Error(
      "convert",
      `${file.name}: the importance of ${quotedText(name)}: sums of dims [${sums.dims.join(", ")}] need ` +
        `${sumCount / sums.dims[0]} counts, found ${experts}. The file is damaged.`,
    );
  }
  const countValues = read(counts, 0, experts);
  checkCounts(file.name, name, countValues);
  return { sumCount, counts: countValues, read: (start, count) => read(sums, start, count) };
}

function checkCounts(path: string, name: string, counts: Float32Array): void {
  if (counts.every((count) => count >= 0 && count < Number.POSITIVE_INFINITY)) return;
  throw new Ds4Error(
    "convert",
    `${path}: the importance of ${quotedText(name)} has counts below zero or not finite. The file is damaged.`,
  );
}
