// Prefill of F16, BF16, MXFP4 and F32 on tensor cores without losing float32's accuracy: weights of the first three are tf32
// numbers as they are, activations are split into two of them (together 22 bits and the sign), F32 weights too.
//
// A block of four warps multiplies 128 weight rows (two panels per warp) by 64 activation rows; or 32 weight rows, with each
// warp taking 8 of 32 columns, where a matrix has few rows. In a panel the rows 2g and 2g + 1 lie side by side: lane g of
// operand A has them as its rows g and g + 8.
#pragma once
#include "cuda/products.cuh"
#include "cuda/rare-blocks.cuh"

namespace ds4::cuda {

constexpr int kPlainTokens = 64, kPlainCols = 32, kPlainTiles = kPlainTokens / 8, kPlainStride = kPlainCols + 4;

/// Both parts of the activations of 32 columns; rows 36 words apart, so that a warp's reads hit all banks.
struct PlainShared {
  uint32_t high[kPlainTokens][kPlainStride];
  uint32_t low[kPlainTokens][kPlainStride];
};

/// Weights of rows 2g and 2g + 1 of a panel in one column.
template <int Type>
__device__ __forceinline__ float2 weightPair(const uint8_t* panel, int g, int col) {
  if (Type == kF32) return loadConstant<float2>(panel + static_cast<int64_t>(col) * 64 + 8 * g);
  if (Type == kMxfp4) {
    const uint8_t* block = panel + static_cast<int64_t>(col / 32) * mxfp4_panel::kBytes;
    const uint32_t codes = loadConstant<uint16_t>(block + mxfp4_panel::kCodes + 16 * (col % 16) + 2 * g);
    const uint32_t scales = loadConstant<uint16_t>(block + 2 * g);
    const int shift = col % 32 < 16 ? 0 : 4;
    return {e2m1Twice(codes >> shift & 15) * 0.5f * e8m0(scales & 255),
            e2m1Twice(codes >> (8 + shift) & 15) * 0.5f * e8m0(scales >> 8)};
  }
  const uint32_t word = loadConstant<uint32_t>(panel + static_cast<int64_t>(col) * 32 + 4 * g);
  if (Type == kF16) return {halfBits(word & 0xffff), halfBits(word >> 16)};
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}

// Activations of 32 columns of a thread: four pieces of four.
__device__ __forceinline__ void loadPieces(float4 (&pieces)[4], const float* const (&x)[4], int col, int cols) {
  const int at = col + 4 * (static_cast<int>(threadIdx.x) % 8);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    pieces[i] = make_float4(0, 0, 0, 0);
    if (cols % 4 == 0) {
      if (at < cols) pieces[i] = loadConstant<float4>(x[i] + at);
    } else {
      if (at < cols) pieces[i].x = x[i][at];
      if (at + 1 < cols) pieces[i].y = x[i][at + 1];
      if (at + 2 < cols) pieces[i].z = x[i][at + 2];
      if (at + 3 < cols) pieces[i].w = x[i][at + 3];
    }
  }
}

__device__ __forceinline__ void storePieces(const float4 (&pieces)[4], PlainShared& shared) {
  const int at = 4 * (static_cast<int>(threadIdx.x) % 8), token = static_cast<int>(threadIdx.x) / 8;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float4& v = pieces[i];
    const uint4 high = {toTf32(v.x), toTf32(v.y), toTf32(v.z), toTf32(v.w)};
    const uint4 low = {toTf32(v.x - __uint_as_float(high.x)), toTf32(v.y - __uint_as_float(high.y)),
                       toTf32(v.z - __uint_as_float(high.z)), toTf32(v.w - __uint_as_float(high.w))};
    *reinterpret_cast<uint4*>(&shared.high[token + 16 * i][at]) = high;
    *reinterpret_cast<uint4*>(&shared.low[token + 16 * i][at]) = low;
  }
}

/// A warp's sums with 8 columns: sums[tile][4 * panel + c], c as multiplyTile has them. Tensor cores cut sums off instead
/// of rounding: over thousands of steps that adds up to 2e-5, so each step starts at zero and float32 adds it.
template <int Type>
__device__ __forceinline__ void addStep(const uint8_t* const (&panels)[2], int col, int step, int cols,
                                        const PlainShared& shared, int tiles, float (&sums)[kPlainTiles][8]) {
  const int lane = static_cast<int>(threadIdx.x) & 31, g = lane / 4, t = lane % 4;
  uint32_t high[2][4], low[2][4];
#pragma unroll
  for (int p = 0; p < 2; p++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int at = col + 8 * step + t + 4 * half;
      float2 pair = {0, 0};
      if (at < cols) pair = weightPair<Type>(panels[p], g, at);
      high[p][2 * half] = Type == kF32 ? toTf32(pair.x) : __float_as_uint(pair.x);
      high[p][2 * half + 1] = Type == kF32 ? toTf32(pair.y) : __float_as_uint(pair.y);
      if (Type == kF32) {
        low[p][2 * half] = toTf32(pair.x - __uint_as_float(high[p][2 * half]));
        low[p][2 * half + 1] = toTf32(pair.y - __uint_as_float(high[p][2 * half + 1]));
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kPlainTiles; tile++) {
    if (tile >= tiles) break;
    const uint32_t* xHigh = &shared.high[8 * tile + g][8 * step + t];
    const uint32_t* xLow = &shared.low[8 * tile + g][8 * step + t];
    const uint32_t h0 = xHigh[0], h1 = xHigh[4], l0 = xLow[0], l1 = xLow[4];
#pragma unroll
    for (int p = 0; p < 2; p++) {
      float c[4] = {};
      const uint32_t(&a)[4] = high[p];
      multiplyTf32(c, a[0], a[1], a[2], a[3], l0, l1);
      if (Type == kF32) multiplyTf32(c, low[p][0], low[p][1], low[p][2], low[p][3], h0, h1);
      multiplyTf32(c, a[0], a[1], a[2], a[3], h0, h1);
#pragma unroll
      for (int i = 0; i < 4; i++) sums[tile][4 * p + i] += c[i];
    }
  }
}

/// Sums over all columns. Narrow: the warps have the same panels and 8 of each 32 columns, and the first gets all sums.
template <int Type, bool Narrow>
__device__ __forceinline__ void plainProduct(const uint8_t* const (&panels)[2], int cols, const float* x,
                                             const RowList& rows, int first, PlainShared& shared,
                                             float (&sums)[kPlainTiles][8]) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const int tiles = min(kPlainTiles, (rows.count - first + 7) / 8);
  const float* own[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = rows.at(min(first + thread / 8 + 16 * i, rows.count - 1));
    own[i] = x + static_cast<int64_t>(row) * cols;
  }
  float4 pieces[4];
  loadPieces(pieces, own, 0, cols);
  for (int col = 0; col < cols; col += kPlainCols) {
    __syncthreads();
    storePieces(pieces, shared);
    __syncthreads();
    if (col + kPlainCols < cols) loadPieces(pieces, own, col + kPlainCols, cols);
    if (Narrow) {
      addStep<Type>(panels, col, warp, cols, shared, tiles, sums);
    } else {
#pragma unroll
      for (int step = 0; step < kPlainCols / 8; step++) addStep<Type>(panels, col, step, cols, shared, tiles, sums);
    }
  }
  if (!Narrow) return;
  float* room = reinterpret_cast<float*>(&shared);
  for (int giver = 1; giver < 4; giver++) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPlainTiles * 8; i++) {
      if (warp == giver) room[32 * i + thread % 32] = sums[i / 8][i % 8];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPlainTiles * 8; i++) {
      if (warp == 0) sums[i / 8][i % 8] += room[32 * i + thread % 32];
    }
  }
}

/// Rows from `firstPanel` on (128; Narrow 32) times tokens [first, first + 64) of the list. `end`: first row that is no output.
template <bool Narrow>
__device__ __forceinline__ void plainTile(const Matrix& matrix, int slice, int firstPanel, int endPanel, int endRow,
                                          const float* x, const RowList& rows, int first, float* out) {
  __shared__ PlainShared shared;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int panel = firstPanel + (Narrow ? 0 : 2 * warp);
  const uint8_t* panels[2] = {panelOf(matrix, slice, min(panel, endPanel - 1)),
                              panelOf(matrix, slice, min(panel + 1, endPanel - 1))};
  float sums[kPlainTiles][8] = {};
  switch (matrix.type) {
    case kF16: plainProduct<kF16, Narrow>(panels, matrix.cols, x, rows, first, shared, sums); break;
    case kBf16: plainProduct<kBf16, Narrow>(panels, matrix.cols, x, rows, first, shared, sums); break;
    case kMxfp4: plainProduct<kMxfp4, Narrow>(panels, matrix.cols, x, rows, first, shared, sums); break;
    default: plainProduct<kF32, Narrow>(panels, matrix.cols, x, rows, first, shared, sums); break;
  }
  if (Narrow && warp != 0) return;
#pragma unroll
  for (int tile = 0; tile < kPlainTiles; tile++) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const int token = first + 8 * tile + 2 * (lane % 4) + i % 2;
      const int row = 16 * (panel + i / 4) + 2 * (lane / 4) + i % 4 / 2;
      if (token < rows.count && panel + i / 4 < endPanel && row < endRow) {
        out[static_cast<int64_t>(token) * matrix.rows + row] = sums[tile][i];
      }
    }
  }
}

}  // namespace ds4::cuda
