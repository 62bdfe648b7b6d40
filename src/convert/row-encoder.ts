// Rows of floats to blocks of a tensor type: the native quantizers where the addon is there, else the readable
// encoders of blocks/. Both run the same search; the native one spreads rows over threads.
import { loadNative, type NativeAddon } from "../backend/native.ts";
import { type GgmlType, ggmlType, rowBytes, tensorBytes } from "../blocks/ggml-types.ts";
import { blockFormat } from "../blocks/registry.ts";
import { Ds4Error } from "../core/errors.ts";

/** Encodes matrices row by row. Stateless between calls. */
export interface RowEncoder {
  /** Which code does the work, for logs. */
  readonly description: string;
  /**
   * Encodes `values`, row-major [rows, cols], into fresh bytes of rows · row size. `importance`, when given, holds
   * [cols] non-negative weights (mean squared activation of each input column), the same for all rows. Synchronous:
   * pass slices of at most about 16 MiB of values, so that the caller can yield between calls. Throws
   * `unsupported-type` when the type is only read or `cols` is no multiple of its block, `convert` for wrong
   * sizes, values that are not finite, and importance that is negative or not finite.
   */
  encodeRows(
    type: GgmlType,
    values: Float32Array,
    rows: number,
    cols: number,
    importance: Float32Array | null,
  ): Uint8Array;
}

type QuantizeRows = (
  typeId: number,
  values: Float32Array,
  rows: number,
  cols: number,
  importance: Float32Array | null,
  out: Uint8Array,
  threads: number,
) => void;

/** Types whose encoder exists natively. */
const NATIVE_TYPES: ReadonlySet<GgmlType> = new Set([
  "F32",
  "F16",
  "BF16",
  "Q8_0",
  "Q4_K",
  "Q2_K",
  "IQ2_XXS",
  "MXFP4",
]);

/** The row encoder of this machine. `threads` (default 1) counts for the native path only. */
export function createRowEncoder(options: { threads?: number } = {}): RowEncoder {
  const threads = options.threads ?? 1;
  if (!Number.isInteger(threads) || threads < 1 || threads > MAX_THREADS) {
    throw new Ds4Error("convert", `threads: expected a whole number in 1..${MAX_THREADS}, got ${threads}`);
  }
  const { addon, reason } = loadNative();
  const native = addon === null ? null : nativeFunction(addon);
  const missing = reason ?? "the addon has no quantizeRows; run: npm run build:native";
  return {
    description: native ? `native, ${threads} threads` : `TypeScript (${missing})`,
    encodeRows(type, values, rows, cols, importance) {
      const out = new Uint8Array(checkedBytes(type, values, rows, cols, importance));
      if (native && NATIVE_TYPES.has(type)) {
        native(ggmlType(type).id, values, rows, cols, importance, out, threads);
      } else {
        encodeInTypeScript(type, values, rows, cols, importance, out);
      }
      return out;
    },
  };
}

const MAX_THREADS = 1024;

function nativeFunction(addon: NativeAddon): QuantizeRows | null {
  return typeof addon.quantizeRows === "function" ? (addon.quantizeRows as QuantizeRows) : null;
}

function encodeInTypeScript(
  type: GgmlType,
  values: Float32Array,
  rows: number,
  cols: number,
  importance: Float32Array | null,
  out: Uint8Array,
): void {
  const format = blockFormat(type);
  const bytesPerRow = rowBytes(type, cols);
  for (let row = 0; row < rows; row++) {
    format.encode?.(values, row * cols, out, row * bytesPerRow, cols, importance ?? undefined);
  }
}

/** Checks everything that came from outside; returns the bytes of the result. */
function checkedBytes(
  type: GgmlType,
  values: Float32Array,
  rows: number,
  cols: number,
  importance: Float32Array | null,
): number {
  if (blockFormat(type).encode === undefined) {
    throw new Ds4Error("unsupported-type", `${type} can be read but not written; choose another type`);
  }
  for (const [name, count] of [
    ["rows", rows],
    ["cols", cols],
  ] as const) {
    if (!Number.isSafeInteger(count) || count < 0) {
      throw new Ds4Error("convert", `${name}: expected a count, got ${count}`);
    }
  }
  if (values.length !== rows * cols) {
    throw new Ds4Error("convert", `values: expected ${rows} · ${cols} numbers, got ${values.length}`);
  }
  const bad = firstNotFinite(values);
  if (bad >= 0) {
    const where = `row ${Math.floor(bad / cols)}, column ${bad % cols}`;
    throw new Ds4Error("convert", `${where}: ${values[bad]} cannot be quantized; the checkpoint is damaged`);
  }
  if (importance !== null) checkImportance(importance, cols);
  return tensorBytes(type, [cols, rows]);
}

/** A plain loop: findIndex with a callback costs as much as quantizing. */
function firstNotFinite(values: Float32Array): number {
  for (let i = 0; i < values.length; i++) {
    if (!(Math.abs(values[i]) < Number.POSITIVE_INFINITY)) return i;
  }
  return -1;
}

function checkImportance(importance: Float32Array, cols: number): void {
  if (importance.length !== cols) {
    throw new Ds4Error("convert", `importance: expected ${cols} numbers, got ${importance.length}`);
  }
  const bad = importance.findIndex((weight) => !(weight >= 0 && weight < Number.POSITIVE_INFINITY));
  if (bad >= 0) {
    throw new Ds4Error(
      "convert",
      `importance of column ${bad}: expected a non-negative finite number, got ${importance[bad]}`,
    );
  }
}
