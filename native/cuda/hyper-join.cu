// Decode of one token: a block's input from the four streams (hyper-join.cuh), float32 and int8.
//
// Bytes: 64 KiB of streams once, 18 KiB of partial sums by every block from the second-level cache. Latency: one pass
// over the partials.
#include "cuda/hyper-join.cuh"
#include "cuda/overlap.cuh"

namespace ds4::cuda {

/// Grid: hidden / 256 blocks.
extern "C" __global__ void __launch_bounds__(kStreamThreads) hyper_join(const __grid_constant__ HyperJoin j) {
  letNextStart();
  __shared__ JoinRoom room;
  const int col = static_cast<int>(blockIdx.x) * kStreamThreads + static_cast<int>(threadIdx.x);
  const bool inside = col < j.hidden;
  const float weight = inside ? loadConstant<float>(j.normWeight + col) : 0.0f;
  float bases[4];
#pragma unroll
  for (int k = 0; k < 4; k++) bases[k] = loadConstant<float>(j.base + k);
  const float scale = loadConstant<float>(j.scale);
  waitForPrevious();
  float streams[4] = {};
  if (inside) {
#pragma unroll
    for (int k = 0; k < 4; k++) streams[k] = __ldcg(j.streams + k * j.hidden + col);
  }
  sumPartials(j, room);
  const float* sums = room.sums;
  const float* squares = sums + kSquares;
  const float* crosses = sums + kCrosses;
  const float factor = streamsFactor(j, room);
  float pre[4], mix = 0, square = 0;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    pre[k] = sigmoidOf(sums[k] * factor * scale + bases[k]) + j.hyperEpsilon;
    mix += pre[k] * streams[k];
    square += pre[k] * pre[k] * squares[k];
  }
  square += 2.0f * (pre[0] * (pre[1] * crosses[0] + pre[2] * crosses[1] + pre[3] * crosses[2]) +
                    pre[1] * (pre[2] * crosses[3] + pre[3] * crosses[4]) + pre[2] * pre[3] * crosses[5]);
  const float norm = 1.0f / sqrtf(fmaxf(square, 0.0f) / static_cast<float>(j.hidden) + j.normEpsilon);
  const float value = mix * norm * weight;
  if (inside) j.x[col] = value;
  const int first = col & ~31;
  if (first < strideOf(j.hidden)) storeQuantized(value, {j.quantized, strideOf(j.hidden)}, first);
}

/// Partial sums of streams that no block has written: a warp per 32 columns. `tail` as of hyper-tail.cuh, without post and comb.
extern "C" __global__ void __launch_bounds__(128) hyper_start(const __grid_constant__ HyperTail tail) {
  letNextStart();
  waitForPrevious();
  const int pair = static_cast<int>(blockIdx.x) * 4 + static_cast<int>(threadIdx.x) / 32;
  if (32 * pair >= tail.hidden) return;
  const int col = 32 * pair + static_cast<int>(threadIdx.x) % 32;
  float streams[kHyperStreams];
#pragma unroll
  for (int k = 0; k < kHyperStreams; k++) streams[k] = col < tail.hidden ? __ldcg(tail.streams + k * tail.hidden + col) : 0.0f;
  writePartial(tail, pair, streams);
}

}  // namespace ds4::cuda
