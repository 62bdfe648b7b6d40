// Cuts a weight plan into pieces that can be packed, and gathers pieces that lie together into large reads.
import { rowBytes } from "../blocks/ggml-types.ts";
import { alignUp, KIB } from "../core/units.ts";
import {
  MATRIX_ALIGNMENT_BYTES,
  PANEL_ROWS,
  type PlacedMatrix,
  type WeightPlan,
} from "../plan/weight-layout.ts";

/** Bytes between two pieces that are read and thrown away rather than beginning another read. */
const LARGEST_GAP_BYTES = 64 * KIB;

/** Whole panels of one slice of a matrix. */
export interface Piece {
  placed: PlacedMatrix;
  slice: number;
  rowBegin: number;
  rowCount: number;
  /** Within the tensor. */
  startBytes: number;
  bytes: number;
  /** Padded to whole panels, as the kernels have them. */
  packedBytes: number;
}

/** One read of a file and what is in it, in file order. */
export interface Read {
  fileIndex: number;
  /** In the file. */
  offsetBytes: number;
  bytes: number;
  pieces: Piece[];
}

/**
 * All matrices of the plan in its order, in reads of at most `longestBytes` (at least one panel of every matrix), which
 * their packed pieces do not exceed either (`packedOffsets`).
 */
export function planReads(plan: WeightPlan, longestBytes: number): Read[] {
  const reads: Read[] = [];
  let last: Read | undefined;
  let packedBytes = 0;
  for (const placed of plan.matrices) {
    const { fileIndex, offsetBytes } = placed.tensor;
    for (const piece of piecesOf(placed, longestBytes)) {
      const begin = offsetBytes + piece.startBytes;
      const bytes = begin + piece.bytes - (last?.offsetBytes ?? 0);
      const gap = last === undefined ? 0 : begin - (last.offsetBytes + last.bytes);
      packedBytes = alignUp(packedBytes, MATRIX_ALIGNMENT_BYTES) + piece.packedBytes;
      const fits = bytes <= longestBytes && packedBytes <= longestBytes;
      if (last?.fileIndex === fileIndex && gap >= 0 && gap <= LARGEST_GAP_BYTES && fits) {
        last.pieces.push(piece);
        last.bytes = bytes;
        continue;
      }
      packedBytes = piece.packedBytes;
      last = { fileIndex, offsetBytes: begin, bytes: piece.bytes, pieces: [piece] };
      reads.push(last);
    }
  }
  return reads;
}

/** Where each piece of a read begins when the packed pieces lie one behind the other, on boundaries of matrices. */
export function packedOffsets({ pieces }: Read): number[] {
  let end = 0;
  return pieces.map(({ packedBytes }) => {
    const begin = alignUp(end, MATRIX_ALIGNMENT_BYTES);
    end = begin + packedBytes;
    return begin;
  });
}

function* piecesOf(placed: PlacedMatrix, longestBytes: number): Generator<Piece> {
  const { tensor, slices, rows, cols } = placed;
  const bytesPerRow = rowBytes(tensor.type, cols);
  const panels = Math.ceil(rows / PANEL_ROWS);
  const panelsThatFit = Math.floor(longestBytes / (PANEL_ROWS * bytesPerRow));
  // As few pieces as possible, of equal length: no short reads between long ones.
  const rowsPerPiece = Math.ceil(panels / Math.ceil(panels / panelsThatFit)) * PANEL_ROWS;
  for (let slice = 0; slice < slices; slice++) {
    for (let rowBegin = 0; rowBegin < rows; rowBegin += rowsPerPiece) {
      const rowCount = Math.min(rowsPerPiece, rows - rowBegin);
      const startBytes = (slice * rows + rowBegin) * bytesPerRow;
      const packedBytes = alignUp(rowCount, PANEL_ROWS) * bytesPerRow;
      yield { placed, slice, rowBegin, rowCount, startBytes, bytes: rowCount * bytesPerRow, packedBytes };
    }
  }
}
