// The formats without blocks: F32, F16, BF16 and I32 (an index table, decoded as numbers).
import type { BlockFormat } from "./block-format.ts";
import type { GgmlType } from "./ggml-types.ts";
import { bfloatToFloat, floatToBfloat, floatToHalf, halfToFloat } from "./half.ts";

type ReadValue = (view: DataView, offset: number) => number;
type WriteValue = (view: DataView, offset: number, value: number) => void;

function plainFormat(type: GgmlType, bytes: number, read: ReadValue, write: WriteValue): BlockFormat {
  return {
    type,
    decode(source, sourceOffset, target, targetOffset, valueCount) {
      const view = new DataView(source.buffer, source.byteOffset + sourceOffset, valueCount * bytes);
      for (let i = 0; i < valueCount; i++) target[targetOffset + i] = read(view, i * bytes);
    },
    encode(source, sourceOffset, target, targetOffset, valueCount) {
      const view = new DataView(target.buffer, target.byteOffset + targetOffset, valueCount * bytes);
      for (let i = 0; i < valueCount; i++) write(view, i * bytes, source[sourceOffset + i]);
    },
  };
}

/** 32-bit IEEE floats. */
export const F32 = plainFormat(
  "F32",
  4,
  (view, offset) => view.getFloat32(offset, true),
  (view, offset, value) => view.setFloat32(offset, value, true),
);

/** IEEE halves. */
export const F16 = plainFormat(
  "F16",
  2,
  (view, offset) => halfToFloat(view.getUint16(offset, true)),
  (view, offset, value) => view.setUint16(offset, floatToHalf(value), true),
);

/** The upper half of a float32. */
export const BF16 = plainFormat(
  "BF16",
  2,
  (view, offset) => bfloatToFloat(view.getUint16(offset, true)),
  (view, offset, value) => view.setUint16(offset, floatToBfloat(value), true),
);

/** 32-bit integers; exact as float32 up to 2^24. */
export const I32 = plainFormat(
  "I32",
  4,
  (view, offset) => view.getInt32(offset, true),
  (view, offset, value) => view.setInt32(offset, value, true),
);
