// The tensors of a checkpoint as sources: plain floats, FP8 with tile scales, FP4 with group scales, stacks of experts,
// and the table of expert ids. Shapes of data and scales are held against each other here.
import type { GgmlType } from "../blocks/ggml-types.ts";
import { Ds4Error } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import type { Checkpoint } from "./checkpoint.ts";
import type { ShapedTensor } from "./model-shape.ts";
import type { SafetensorsInfo } from "./safetensors.ts";
import { decodeFp4, decodeFp8Rows, FP4_GROUP, FP8_TILE, repackFp4 } from "./small-floats.ts";
import { EXPERT_MARK, scaleName, sourceNames } from "./tensor-names.ts";
import { storedRows, type TensorSource } from "./tensor-source.ts";

type Reader = Omit<TensorSource, "name">;

/**
 * The source of one tensor of the file: `source` is its name in the checkpoint, of a stack of experts with a mark for
 * the number. Throws `convert` naming what is missing or misshapen.
 */
export function checkpointSource(
  checkpoint: Checkpoint,
  tensor: ShapedTensor,
  source: string,
  expertCount: number,
): TensorSource {
  const infos = sourceNames(source, expertCount).map((name) => required(checkpoint, name));
  const isStack = source.includes(EXPERT_MARK);
  const dims = isStack ? tensor.dims.slice(0, 2) : tensor.dims;
  const readers = infos.map((info) => {
    const reader = source.endsWith(".tid2eid")
      ? idReader(checkpoint, info, expertCount)
      : matrixReader(checkpoint, info);
    if (reader.dims.join() === dims.join()) return reader;
    const expected = `${show(dims)} values (as config.json says)`;
    throw misfit(checkpoint, info, expected, show(reader.dims));
  });
  return { name: tensor.name, ...(isStack ? stackReader(checkpoint, infos, readers) : readers[0]) };
}

/** Sizes as safetensors files give them: slowest first. */
function show(dims: readonly number[]): string {
  return `[${[...dims].reverse().join(", ")}]`;
}

function required(checkpoint: Checkpoint, name: string): SafetensorsInfo {
  const info = checkpoint.find(name);
  if (info !== undefined) return info;
  throw new Ds4Error(
    "convert",
    `${checkpoint.folder}: tensor ${quotedText(name)} is missing; expected a whole checkpoint in DeepSeek V4's own layout`,
  );
}

function matrixReader(checkpoint: Checkpoint, info: SafetensorsInfo): Reader {
  switch (info.dtype) {
    case "F8_E4M3":
      return fp8Reader(checkpoint, info);
    case "I8":
    case "U8":
      return fp4Reader(checkpoint, info);
    case "BF16":
    case "F16":
    case "F32":
      return plainReader(checkpoint, info, info.dtype);
    default:
      throw misfit(checkpoint, info, "dtype F32, F16, BF16, F8_E4M3 or packed FP4 (I8)", info.dtype);
  }
}

function plainReader(checkpoint: Checkpoint, info: SafetensorsInfo, type: GgmlType): Reader {
  if (info.shape.length < 1 || info.shape.length > 2) {
    throw misfit(checkpoint, info, "one or two dimensions", `[${info.shape.join(", ")}]`);
  }
  const dims = [...info.shape].reverse();
  const bytesPerRow = info.bytes / (dims[1] ?? 1);
  return {
    dims,
    ...storedRows(type, dims[0], bytesPerRow, (start, length) => checkpoint.read(info, start, length)),
  };
}

/** The scales that belong to `info`, of the shape that its own asks for. */
function scalesOf(checkpoint: Checkpoint, info: SafetensorsInfo, shape: readonly number[]): SafetensorsInfo {
  const scales = required(checkpoint, scaleName(info.name));
  if (scales.dtype !== "F8_E8M0" || scales.shape.join() !== shape.join()) {
    throw misfit(
      checkpoint,
      scales,
      `F8_E8M0 [${shape.join(", ")}] (for ${info.dtype} [${info.shape.join(", ")}])`,
      `${scales.dtype} [${scales.shape.join(", ")}]`,
    );
  }
  return scales;
}

function fp8Reader(checkpoint: Checkpoint, info: SafetensorsInfo): Reader {
  const [rowCount, columns] = matrixShape(checkpoint, info);
  const tilesPerRow = Math.ceil(columns / FP8_TILE);
  const scales = scalesOf(checkpoint, info, [Math.ceil(rowCount / FP8_TILE), tilesPerRow]);
  return {
    dims: [columns, rowCount],
    exactTypes: [],
    readExact: neverExact,
    readRows(firstRow, rows) {
      const firstTile = Math.floor(firstRow / FP8_TILE);
      const tileRows = Math.floor((firstRow + rows - 1) / FP8_TILE) - firstTile + 1;
      const scaleBytes = checkpoint.read(scales, firstTile * tilesPerRow, tileRows * tilesPerRow);
      const codes = checkpoint.read(info, firstRow * columns, rows * columns);
      return decodeFp8Rows(codes, scaleBytes, firstRow, rows, columns);
    },
  };
}

function fp4Reader(checkpoint: Checkpoint, info: SafetensorsInfo): Reader {
  const [rowCount, packedColumns] = matrixShape(checkpoint, info);
  const columns = 2 * packedColumns;
  const groups = columns / FP4_GROUP;
  if (!Number.isInteger(groups)) {
    throw misfit(checkpoint, info, `a multiple of ${FP4_GROUP / 2} bytes a row`, `${packedColumns}`);
  }
  const scales = scalesOf(checkpoint, info, [rowCount, groups]);
  const read = (firstRow: number, rows: number) => {
    const scaleBytes = checkpoint.read(scales, firstRow * groups, rows * groups);
    if (scaleBytes.includes(255))
      throw misfit(checkpoint, scales, "finite scales", "a scale that is no number");
    return [checkpoint.read(info, firstRow * packedColumns, rows * packedColumns), scaleBytes] as const;
  };
  return {
    dims: [columns, rowCount],
    exactTypes: ["MXFP4"],
    readExact: (_, firstRow, rows) => repackFp4(...read(firstRow, rows)),
    readRows: (firstRow, rows) => decodeFp4(...read(firstRow, rows)),
  };
}

/** All experts' matrices one after another; they must be stored alike. */
function stackReader(
  checkpoint: Checkpoint,
  infos: readonly SafetensorsInfo[],
  readers: readonly Reader[],
): Reader {
  const other = infos.find(({ dtype }) => dtype !== infos[0].dtype);
  if (other !== undefined) {
    throw misfit(checkpoint, other, `${infos[0].dtype} like expert 0`, other.dtype);
  }
  const [{ dims, exactTypes }] = readers;
  const rowsPerExpert = dims[1];
  // Slices never cross experts: each has its own importance.
  const at = (row: number) => readers[Math.floor(row / rowsPerExpert)];
  return {
    dims: [...dims, readers.length],
    exactTypes,
    readExact: (type, firstRow, rows) => at(firstRow).readExact(type, firstRow % rowsPerExpert, rows),
    readRows: (firstRow, rows) => at(firstRow).readRows(firstRow % rowsPerExpert, rows),
  };
}

/** Expert ids by token: I64 in the checkpoint, I32 in the file. */
function idReader(checkpoint: Checkpoint, info: SafetensorsInfo, expertCount: number): Reader {
  if (info.dtype !== "I64" && info.dtype !== "I32") {
    throw misfit(checkpoint, info, "dtype I64", info.dtype);
  }
  const [rowCount, columns] = matrixShape(checkpoint, info);
  const elementBytes = info.dtype === "I64" ? 8 : 4;
  const readIds = (firstRow: number, rows: number) => {
    const count = rows * columns;
    const bytes = checkpoint.read(info, firstRow * columns * elementBytes, count * elementBytes);
    const view = new DataView(bytes.buffer);
    return Int32Array.from({ length: count }, (_, index) => {
      const id =
        elementBytes === 8 ? Number(view.getBigInt64(8 * index, true)) : view.getInt32(4 * index, true);
      if (id >= 0 && id < expertCount) return id;
      throw misfit(checkpoint, info, `expert ids in 0..${expertCount - 1}`, String(id));
    });
  };
  return {
    dims: [columns, rowCount],
    exactTypes: ["I32"],
    readExact: (_, firstRow, rows) => new Uint8Array(readIds(firstRow, rows).buffer),
    readRows: (firstRow, rows) => Float32Array.from(readIds(firstRow, rows)),
  };
}

function matrixShape(checkpoint: Checkpoint, info: SafetensorsInfo): readonly [number, number] {
  const [rows, columns] = info.shape;
  if (info.shape.length === 2 && rows > 0 && columns > 0) return [rows, columns];
  throw misfit(checkpoint, info, "a matrix", `shape [${info.shape.join(", ")}]`);
}

function neverExact(): Uint8Array {
  throw new Error("internal error, please report it: FP8 has no exact form in a file");
}

function misfit(checkpoint: Checkpoint, info: SafetensorsInfo, expected: string, found: string): Ds4Error {
  return new Ds4Error(
    "convert",
    `${checkpoint.folder}: tensor ${quotedText(info.name)}: expected ${expected}, found ${found}`,
  );
}
