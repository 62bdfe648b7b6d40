// What follows a block's output when one token is decoded, 32 columns at a time, by a block: the write to the
// four streams, and these columns' part of what the next read needs: its mixes (fn times streams) and the products of
// the streams with each other, from which the norms follow (hyper-join.cuh).
//
// Bytes per 32 columns: 1 KiB of streams in and out, 6 KiB of fn; partial sums 144 bytes. Latency alone: 9 us by one warp, 2 by eight
// (H200).
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

/// Lanes l and l + 16 of the warp get the sum over all lanes of values[l].
__device__ __forceinline__ float transposeSum(float (&values)[16]) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
  for (int bit = 3; bit >= 0; bit--) {
    const int step = 1 << bit;
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      if (i >= step) continue;
      const float send = upper ? values[i] : values[i + step];
      const float keep = upper ? values[i + step] : values[i];
      values[i] = keep + __shfl_xor_sync(0xffffffffu, send, step);
    }
  }
  return values[0] + __shfl_xor_sync(0xffffffffu, values[0], 16);
}

/// Sums of the warps of a block, of sixteen values each.
struct TailRoom {
  float sums[8][16];
};

/// What a lane has of fn: its column in the warp's stream, 16 rows of the first panel or 8 of the second.
struct FnColumn {
  uint4 pieces[4];

  __device__ __forceinline__ void load(const HyperTail& tail, int pair) {
    const int warp = static_cast<int>(threadIdx.x) / 32, stream = warp & 3, panel = warp >> 2;
    const int col = min(32 * pair + (static_cast<int>(threadIdx.x) & 31), tail.hidden - 1);
    const int bytes = tail.fn.type == kF32 ? 64 : 32, count = 16 * panel < tail.fn.rows ? bytes >> (4 + panel) : 0;
    const uint8_t* from = panelOf(tail.fn, 0, panel) + static_cast<int64_t>(stream * tail.hidden + col) * bytes;
#pragma unroll
    for (int i = 0; i < 4; i++) pieces[i] = i < count ? loadStream16(from + 16 * i) : make_uint4(0, 0, 0, 0);
  }
  /// values[r] = row r times value.
  template <int Type>
  __device__ __forceinline__ void times(float value, float (&values)[16]) const {
    constexpr int kRows = Type == kF32 ? 4 : 8;
#pragma unroll
    for (int i = 0; i < 16 / kRows; i++) {
      float weights[8];
      widen<Type>(pieces[i], weights);
#pragma unroll
      for (int r = 0; r < kRows; r++) values[i * kRows + r] = weights[r] * value;
    }
  }
};

/// Partial sums of 32 columns, by a block: lane l of every warp has column 32 * pair + l of the streams (zero beyond the end). Warps
/// 0 to 3 have a stream's products with 16 rows of fn each, the others those with 8 rows and with the streams that follow.
__device__ __forceinline__ void writePartial(const HyperTail& tail, int pair, const FnColumn& fn,
                                             const float (&streams)[kHyperStreams], TailRoom& room) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) & 31, stream = warp & 3;
  const auto streamAt = [&](int k) { return (k & 2) != 0 ? (k & 1) != 0 ? streams[3] : streams[2] : (k & 1) != 0 ? streams[1] : streams[0]; };
  const float own = streamAt(stream);
  float values[16];
  if (tail.fn.type == kF32) fn.times<kF32>(own, values);
  else fn.times<kF16>(own, values);
  if (warp >= 4) {
    values[8] = own * own;
    values[9] = own * streamAt(stream + 1);
    values[10] = own * streamAt(stream + 2);
  }
  const float sum = transposeSum(values);
  if (lane < 16) room.sums[warp][lane] = sum;
  __syncthreads();
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kPartialValues) return;
  float total = 0;
  if (i < kSquares) {
    const float* from = &room.sums[i < 16 ? 0 : 4][i & 15];
    total = (from[0] + from[16]) + (from[32] + from[48]);
  } else if (i < kCrosses + 6) {
    // Warp and place of each: 00 11 22 33, 01 02 03 12 13 23.
    constexpr uint64_t kWarps = 0x6557447654, kPlaces = 0x9a99a98888;
    const int shift = 4 * (i - kSquares);
    total = room.sums[kWarps >> shift & 15][kPlaces >> shift & 15];
  }
  tail.partials[pair * kPartialValues + i] = total;
}

/// Writes the block's output of 32 columns (lane l of every warp: column 32 * pair + l) to the streams; by a block.
__device__ __noinline__ void finishBlock(const HyperTail& tail, int pair, float output, TailRoom& room) {
  const int col = 32 * pair + (static_cast<int>(threadIdx.x) & 31), warp = static_cast<int>(threadIdx.x) / 32;
  const bool inside = col < tail.hidden;
  FnColumn fn;
  fn.load(tail, pair);
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
  }
  // All warps have read the streams; each of the first four writes one.
  __syncthreads();
  if (inside && warp < kHyperStreams) {
    tail.streams[warp * tail.hidden + col] = warp == 0 ? after[0] : warp == 1 ? after[1] : warp == 2 ? after[2] : after[3];
  }
  writePartial(tail, pair, fn, after, room);
}

}  // namespace ds4::cuda
