// What a block reads from the four streams when one token is decoded. The kernel before has written the streams and, 32
// columns at a time, their products with fn and with each other (hyper-tail.cuh); both norms follow from these: of the
// streams, and of their mix, whose square is the streams' products times the mix's weights twice.
//
// Bytes: 64 KiB of streams once, 18 KiB of partial sums by every block from the second-level cache. Latency: one pass over the
// partials.
#pragma once
#include "cuda/grid-barrier.cuh"
#include "cuda/hyper-tail.cuh"
#include "cuda/staged-rows.cuh"

namespace ds4::cuda {

/// mixes = 24 rows of fn; at the head 4. partials [parts, kPartialValues]. x [hidden] and its int8 form; post [4], comb [4, 4], null at
/// the head. streams null: nothing is joined.
struct HyperJoin {
  const float *streams, *partials;
  const float *base, *scale, *normWeight;
  float* x;
  uint8_t* quantized;
  float *post, *comb;
  int parts, hidden, iterations;
  float normEpsilon, hyperEpsilon;
  int padding;
};

constexpr int kJoinQuads = kPartialValues / 4, kJoinGroups = kStreamThreads / kJoinQuads;
static_assert(kPartialValues % 4 == 0 && kJoinGroups % 4 == 0);

/// Shared memory of a join.
struct JoinRoom {
  float4 groups[kJoinGroups][kJoinQuads];
  float sums[kPartialValues];
};

__device__ __forceinline__ float sigmoidOf(float x) { return 1.0f / (1.0f + expf(-x)); }

/// The sums of all partials, in room.sums for the whole block; always in the same order. Four values a thread, all of its loads
/// under way at once.
__device__ __forceinline__ void sumPartials(const HyperJoin& j, JoinRoom& room) {
  const int quad = static_cast<int>(threadIdx.x) % kJoinQuads, group = static_cast<int>(threadIdx.x) / kJoinQuads;
  if (group < kJoinGroups) {
    constexpr int kAhead = 5;  // 140 partials: a hidden size of 4,480
    const float4* from = reinterpret_cast<const float4*>(j.partials) + quad;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int first = group; first < j.parts; first += kAhead * kJoinGroups) {
      float4 some[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; i++) {
        const int part = first + i * kJoinGroups;
        some[i] = part < j.parts ? __ldcg(from + part * kJoinQuads) : make_float4(0, 0, 0, 0);
      }
#pragma unroll
      for (int i = 0; i < kAhead; i++) {
        sum.x += some[i].x;
        sum.y += some[i].y;
        sum.z += some[i].z;
        sum.w += some[i].w;
      }
    }
    room.groups[group][quad] = sum;
  }
  __syncthreads();
  if (threadIdx.x < kPartialValues) {
    const float* value = reinterpret_cast<const float*>(room.groups) + threadIdx.x;
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < kJoinGroups; i++) sums[i % 4] += value[i * kPartialValues];
    room.sums[threadIdx.x] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  __syncthreads();
}

/// 1 / rms of the streams.
__device__ __forceinline__ float streamsFactor(const HyperJoin& j, const JoinRoom& room) {
  const float* squares = room.sums + kSquares;
  const float mean = (squares[0] + squares[1] + squares[2] + squares[3]) / (4.0f * static_cast<float>(j.hidden));
  return 1.0f / sqrtf(mean + j.normEpsilon);
}

__device__ __forceinline__ float sumOfFour(float a, float b, float c, float d, float epsilon) {
  return (a + b) + (c + d) + epsilon;
}

// Softmax over rows, columns to sum 1, then rows and columns in turn; by one thread.
__device__ __forceinline__ void balanceFour(float (&m)[4][4], int iterations, float epsilon) {
#pragma unroll
  for (int row = 0; row < 4; row++) {
    const float most = fmaxf(fmaxf(m[row][0], m[row][1]), fmaxf(m[row][2], m[row][3]));
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) sum += m[row][i] = expf(m[row][i] - most);
#pragma unroll
    for (int i = 0; i < 4; i++) m[row][i] = m[row][i] / sum + epsilon;
  }
#pragma unroll 1
  for (int iteration = 0; iteration < iterations; iteration++) {
    if (iteration > 0) {
#pragma unroll
      for (int row = 0; row < 4; row++) {
        const float inverse = __fdividef(1.0f, sumOfFour(m[row][0], m[row][1], m[row][2], m[row][3], epsilon));
#pragma unroll
        for (int i = 0; i < 4; i++) m[row][i] *= inverse;
      }
    }
#pragma unroll
    for (int col = 0; col < 4; col++) {
      const float inverse = __fdividef(1.0f, sumOfFour(m[0][col], m[1][col], m[2][col], m[3][col], epsilon));
#pragma unroll
      for (int i = 0; i < 4; i++) m[i][col] *= inverse;
    }
  }
}

/// post and comb, by a block of its own beside the kernel that reads x: they are needed when the block's output is written.
__device__ __noinline__ void balanceStreams(const HyperJoin& j, JoinRoom& room) {
  sumPartials(j, room);
  const float factor = streamsFactor(j, room);
  const float* sums = room.sums;
  const int i = static_cast<int>(threadIdx.x);
  if (i >= 32 && i < 36) {
    const int k = i - 32;
    j.post[k] = 2.0f * sigmoidOf(sums[4 + k] * factor * j.scale[1] + j.base[4 + k]);
  }
  if (i != 0) return;
  float matrix[4][4];
#pragma unroll
  for (int k = 0; k < 16; k++) matrix[k / 4][k % 4] = sums[8 + k] * factor * j.scale[2] + j.base[8 + k];
  balanceFour(matrix, j.iterations, j.hyperEpsilon);
#pragma unroll
  for (int k = 0; k < 16; k++) j.comb[k] = matrix[k / 4][k % 4];
}

/// What a join reads of the weights, a thread each: there before any kernel.
struct JoinWeights {
  float norm, scale, base[4];

  __device__ __forceinline__ JoinWeights(const HyperJoin& j, int col)
      : norm(col < j.hidden ? loadConstant<float>(j.normWeight + col) : 0.0f), scale(loadConstant<float>(j.scale)) {
#pragma unroll
    for (int k = 0; k < 4; k++) base[k] = loadConstant<float>(j.base + k);
  }
};

/// x and its int8 form, 256 columns from `first` on, by a block.
__device__ __forceinline__ void joinColumns(const HyperJoin& j, JoinRoom& room, int first, const JoinWeights& weights) {
  const int col = first + static_cast<int>(threadIdx.x);
  const bool inside = col < j.hidden;
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
    pre[k] = sigmoidOf(sums[k] * factor * weights.scale + weights.base[k]) + j.hyperEpsilon;
    mix += pre[k] * streams[k];
    square += pre[k] * pre[k] * squares[k];
  }
  square += 2.0f * (pre[0] * (pre[1] * crosses[0] + pre[2] * crosses[1] + pre[3] * crosses[2]) +
                    pre[1] * (pre[2] * crosses[3] + pre[3] * crosses[4]) + pre[2] * pre[3] * crosses[5]);
  const float norm = 1.0f / sqrtf(fmaxf(square, 0.0f) / static_cast<float>(j.hidden) + j.normEpsilon);
  const float value = mix * norm * weights.norm;
  if (inside) j.x[col] = value;
  const int firstOf32 = col & ~31;
  if (firstOf32 < strideOf(j.hidden)) storeQuantized(value, {j.quantized, strideOf(j.hidden)}, firstOf32);
}

/// All blocks wait for the streams, the first of them join 256 columns each, all wait for each other. The barrier by value, as what is
/// passed by reference lies in local memory, of which every wait at the barrier empties the cache.
static __device__ __noinline__ GridBarrier joinStreams(const HyperJoin& j, JoinRoom& room, GridBarrier barrier) {
  const int first = static_cast<int>(blockIdx.x * kStreamThreads);
  const JoinWeights weights(j, first + static_cast<int>(threadIdx.x));
  barrier.wait();
  if (first < j.hidden) joinColumns(j, room, first, weights);
  barrier.arrive();
  barrier.wait();
  return barrier;
}

}  // namespace ds4::cuda
