// Decode of the float types: two panels times up to four activation rows. Sixteen lanes read a panel; each piece of 16 bytes
// is 4 rows (F32), 8 rows (F16, BF16) of one column, or 16 rows of two columns (MXFP4).
#pragma once
#include "cuda/rare-blocks.cuh"

namespace ds4::cuda {

constexpr int kFloatTokens = 4;

/// Which runs of 32 columns a warp takes: first, first + step, ...
struct Turns {
  int first, step;
};

/// Weights of a 16-byte piece as floats.
template <int Type>
__device__ __forceinline__ void widen(const uint4& piece, float* values) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint32_t word = i == 0 ? piece.x : i == 1 ? piece.y : i == 2 ? piece.z : piece.w;
    if (Type == kF32) {
      values[i] = __uint_as_float(word);
    } else if (Type == kF16) {
      values[2 * i] = halfBits(word & 0xffff);
      values[2 * i + 1] = halfBits(word >> 16);
    } else {
      values[2 * i] = __uint_as_float(word << 16);
      values[2 * i + 1] = __uint_as_float(word & 0xffff0000u);
    }
  }
}

/// F32, F16, BF16: the warps of a block take turns at 32 columns. `sums` [4][8]: rows of the lane's piece.
template <int Type>
__device__ __forceinline__ void plainColumns(const uint8_t* panel, int cols, const float* const (&x)[kFloatTokens],
                                             int lane16, const Turns& turns, float (&sums)[kFloatTokens][8]) {
  constexpr int kLanes = Type == kF32 ? 4 : 2;      // lanes per column
  constexpr int kRows = Type == kF32 ? 4 : 8;       // rows per lane
  constexpr int kStep = 16 / kLanes, kPieces = 32 / kStep;
  for (int first = 32 * turns.first; first < cols; first += 32 * turns.step) {
    uint4 pieces[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; i++) {
      const int col = first + i * kStep + lane16 / kLanes;
      pieces[i] = make_uint4(0, 0, 0, 0);
      if (col < cols) pieces[i] = loadStream16(panel + (static_cast<int64_t>(col) * kLanes + lane16 % kLanes) * 16);
    }
#pragma unroll
    for (int i = 0; i < kPieces; i++) {
      const int col = min(first + i * kStep + lane16 / kLanes, cols - 1);
      float weights[8];
      widen<Type>(pieces[i], weights);
#pragma unroll
      for (int t = 0; t < kFloatTokens; t++) {
        const float value = x[t] == nullptr ? 0.0f : x[t][col];
#pragma unroll
        for (int r = 0; r < kRows; r++) sums[t][r] += weights[r] * value;
      }
    }
  }
}

/// MXFP4: lane i of 16 has the codes of columns i and i + 16, all rows.
__device__ __forceinline__ void mxfp4Columns(const uint8_t* panel, int cols, const float* const (&x)[kFloatTokens],
                                             int lane16, const Turns& turns, float (&sums)[kFloatTokens][16]) {
  for (int sub = turns.first; sub < cols / 32; sub += turns.step) {
    const uint8_t* block = panel + static_cast<int64_t>(sub) * mxfp4_panel::kBytes;
    const uint4 codes = loadStream16(block + mxfp4_panel::kCodes + 16 * lane16);
    const uint4 exponents = loadConstant<uint4>(block);
    float low[kFloatTokens], high[kFloatTokens];
#pragma unroll
    for (int t = 0; t < kFloatTokens; t++) {
      low[t] = x[t] == nullptr ? 0.0f : 0.5f * x[t][32 * sub + lane16];
      high[t] = x[t] == nullptr ? 0.0f : 0.5f * x[t][32 * sub + 16 + lane16];
    }
#pragma unroll
    for (int r = 0; r < 16; r++) {
      const uint32_t word = r < 4 ? codes.x : r < 8 ? codes.y : r < 12 ? codes.z : codes.w;
      const uint32_t scales = r < 4 ? exponents.x : r < 8 ? exponents.y : r < 12 ? exponents.z : exponents.w;
      const uint32_t code = word >> (8 * (r % 4)) & 255;
      const float scale = e8m0(scales >> (8 * (r % 4)) & 255);
      const float a = scale * e2m1Twice(code), b = scale * e2m1Twice(code >> 4);
#pragma unroll
      for (int t = 0; t < kFloatTokens; t++) sums[t][r] += a * low[t] + b * high[t];
    }
  }
}

__device__ __forceinline__ float sumLanes(float value, int from, int to) {
  for (int step = from; step < to; step *= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

/// Sums of two panels with `tokens` (1..4) rows of x into partial[token][32 rows] of this warp.
template <int Type>
__device__ __forceinline__ void plainRows(const uint8_t* panel, int cols, const float* const (&x)[kFloatTokens],
                                          const Lane& lane, const Turns& turns, float* partial) {
  constexpr int kLanes = Type == kF32 ? 4 : 2, kRows = Type == kF32 ? 4 : 8;
  const int lane16 = lane.lane & 15;
  float sums[kFloatTokens][8] = {};
  plainColumns<Type>(panel, cols, x, lane16, turns, sums);
#pragma unroll
  for (int t = 0; t < kFloatTokens; t++) {
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      const float sum = sumLanes(sums[t][r], kLanes, 16);
      if (lane16 < kLanes) partial[t * 32 + 16 * lane.panel + kRows * lane16 + r] = sum;
    }
  }
}

__device__ __forceinline__ void mxfp4Rows(const uint8_t* panel, int cols, const float* const (&x)[kFloatTokens],
                                          const Lane& lane, const Turns& turns, float* partial) {
  const int lane16 = lane.lane & 15;
  float sums[kFloatTokens][16] = {};
  mxfp4Columns(panel, cols, x, lane16, turns, sums);
#pragma unroll
  for (int t = 0; t < kFloatTokens; t++) {
#pragma unroll
    for (int r = 0; r < 16; r++) {
      const float sum = sumLanes(sums[t][r], 1, 16);
      if (lane16 == 0) partial[t * 32 + 16 * lane.panel + r] = sum;
    }
  }
}

/// The other types: a lane for each of the 32 rows.
__device__ __noinline__ void rareRows(int type, const uint8_t* panel, int cols, const float* const* x, Turns turns,
                                      float* partial) {
  const Lane lane = ownLane();
  float sums[kFloatTokens] = {};
  for (int first = 32 * turns.first; first < cols; first += 32 * turns.step) {
    for (int col = first; col < first + 32; col++) {
      const float weight = floatWeight(type, panel, lane.lane & 15, col);
      for (int t = 0; t < kFloatTokens; t++) sums[t] += x[t] == nullptr ? 0.0f : weight * x[t][col];
    }
  }
  for (int t = 0; t < kFloatTokens; t++) partial[t * 32 + lane.lane] = sums[t];
}

}  // namespace ds4::cuda
