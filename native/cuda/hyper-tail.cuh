// What follows a block's output when one token is decoded, 32 columns at a time, by the warp that has them: the write to the
// four streams, and these columns' part of what the next read needs: its mixes (fn times streams) and the products of
// the streams with each other, from which the norms follow (hyper-join.cu).
//
// Bytes per 32 columns: 1 KiB of streams in and out, 6 KiB of fn; partial sums 144 bytes.
#pragma once
#include "cuda/float-rows.cuh"
#include "cuda/overlap.cuh"

namespace ds4::cuda {

constexpr int kHyperStreams = 4;
constexpr int kMostMixes = 2 * kHyperStreams + kHyperStreams * kHyperStreams;
/// Values of a partial: mixes, squares of the streams (0, 1, 2, 3), products (01, 02, 03, 12, 13, 23), padding.
constexpr int kPartialValues = 36;
constexpr int kSquares = kMostMixes, kCrosses = kMostMixes + kHyperStreams;

/// streams [4, hidden] in place; post [4] and comb [4, 4] of the read before; fn of the next read (F16 or F32, 24 or 4 rows);
/// partials [hidden / 32, kPartialValues]. streams null: no tail.
struct HyperTail {
  float* streams;
  const float *post, *comb;
  Matrix fn;
  float* partials;
  int hidden, padding;
};

/// Asks the second-level cache for the columns of fn that belong to a pair of panels, by the first warp.
__device__ __forceinline__ void prefetchColumns(const HyperTail& tail, int pair) {
  const int stream = static_cast<int>(threadIdx.x) & 3, panel = static_cast<int>(threadIdx.x) >> 2;
  if (panel >= (tail.fn.rows + 15) / 16) return;
  const int col = stream * tail.hidden + 32 * pair, each = tail.fn.type == kF32 ? 64 : 32;
  prefetchToL2(panelOf(tail.fn, 0, panel) + static_cast<int64_t>(col) * each, 32 * each);
}

/// Lane l of the warp gets the sum over all lanes of values[l].
__device__ __forceinline__ float transposeSum(float (&values)[32]) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
  for (int bit = 4; bit >= 0; bit--) {
    const int step = 1 << bit;
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < 16; i++) {
      if (i >= step) continue;
      const float send = upper ? values[i] : values[i + step];
      const float keep = upper ? values[i + step] : values[i];
      values[i] = keep + __shfl_xor_sync(0xffffffffu, send, step);
    }
  }
  return values[0];
}

/// mixes[r] += row r of fn at a column times value, rows 0 to 23 (beyond the matrix's rows: padding of its panels or nothing).
template <int Type>
__device__ __forceinline__ void addColumn(const Matrix& fn, int col, float value, float (&mixes)[32]) {
  constexpr int kRows = Type == kF32 ? 4 : 8, kLoads = kMostMixes / kRows, kPanelLoads = 16 / kRows;
#pragma unroll
  for (int i = 0; i < kLoads; i++) {
    uint4 piece = make_uint4(0, 0, 0, 0);
    if (i * kRows < fn.rows) {
      const uint8_t* panel = panelOf(fn, 0, i / kPanelLoads);
      piece = loadStream16(panel + (static_cast<int64_t>(col) * kPanelLoads + i % kPanelLoads) * 16);
    }
    float weights[8];
    widen<Type>(piece, weights);
#pragma unroll
    for (int r = 0; r < kRows; r++) mixes[i * kRows + r] += weights[r] * value;
  }
}

/// Partial sums of 32 columns, lane l having column 32 * pair + l of the streams (zero beyond the end).
__device__ __forceinline__ void writePartial(const HyperTail& tail, int pair, const float (&streams)[kHyperStreams]) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int col = min(32 * pair + lane, tail.hidden - 1);
  float values[32] = {};
#pragma unroll 2
  for (int k = 0; k < kHyperStreams; k++) {
    const int at = k * tail.hidden + col;
    const float value = k == 0 ? streams[0] : k == 1 ? streams[1] : k == 2 ? streams[2] : streams[3];
    if (tail.fn.type == kF32) addColumn<kF32>(tail.fn, at, value, values);
    else addColumn<kF16>(tail.fn, at, value, values);
  }
  const float a = streams[0], b = streams[1], c = streams[2], d = streams[3];
  const float products[10] = {a * a, b * b, c * c, d * d, a * b, a * c, a * d, b * c, b * d, c * d};
#pragma unroll
  for (int i = 0; i < 8; i++) values[kSquares + i] = products[i];
  const float sum = transposeSum(values);
  float last = products[8], beforeLast = products[9];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    last += __shfl_xor_sync(0xffffffffu, last, step);
    beforeLast += __shfl_xor_sync(0xffffffffu, beforeLast, step);
  }
  float* out = tail.partials + pair * kPartialValues;
  out[lane] = sum;
  if (lane == 0) {
    out[32] = last;
    out[33] = beforeLast;
  }
}

/// Writes the block's output of 32 columns (lane l: column 32 * pair + l) to the streams.
__device__ __noinline__ void finishBlock(const HyperTail& tail, int pair, float output) {
  const int col = 32 * pair + (static_cast<int>(threadIdx.x) & 31);
  const bool inside = col < tail.hidden;
  float before[kHyperStreams], after[kHyperStreams];
#pragma unroll
  for (int k = 0; k < kHyperStreams; k++) before[k] = inside ? __ldcg(tail.streams + k * tail.hidden + col) : 0.0f;
  const float4 post = __ldcg(reinterpret_cast<const float4*>(tail.post));
  float4 comb[kHyperStreams];  // [from], to the four streams
#pragma unroll
  for (int j = 0; j < kHyperStreams; j++) comb[j] = __ldcg(reinterpret_cast<const float4*>(tail.comb) + j);
  const auto part = [](const float4& of, int k) { return k == 0 ? of.x : k == 1 ? of.y : k == 2 ? of.z : of.w; };
#pragma unroll
  for (int k = 0; k < kHyperStreams; k++) {
    float sum = part(post, k) * output;
#pragma unroll
    for (int j = 0; j < kHyperStreams; j++) sum += before[j] * part(comb[j], k);
    after[k] = inside ? sum : 0.0f;
    if (inside) tail.streams[k * tail.hidden + col] = sum;
  }
  writePartial(tail, pair, after);
}

}  // namespace ds4::cuda
