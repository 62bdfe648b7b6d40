// Decode of one token: what a block reads from the four streams. The kernel before has written the streams and, 32
// columns at a time, their products with fn and with each other (hyper-tail.cuh); both norms follow from these: of the
// streams, and of their mix, whose square is the streams' products times the mix's weights twice.
//
// Bytes: 64 KiB of streams once, 18 KiB of partial sums by every block from the second-level cache. Latency: one pass
// over the partials; the Sinkhorn steps of one thread (1.2 us at 1.7 GHz) run beside it in a block of their own.
#include "cuda/hyper-tail.cuh"
#include "cuda/overlap.cuh"
#include "cuda/reductions.cuh"

namespace ds4::cuda {

/// mixes = 24 rows of fn; at the head 4, and post and comb null. partials [parts, kPartialValues].
struct HyperJoin {
  const float *streams, *partials;
  const float *base, *scale, *normWeight;
  float *x, *post, *comb;
  int parts, hidden, iterations;
  float normEpsilon, hyperEpsilon;
  int padding;
};

constexpr int kJoinThreads = 256;
constexpr int kJoinGroups = kJoinThreads / kPartialValues;

__device__ __forceinline__ float sigmoidOf(float x) { return 1.0f / (1.0f + expf(-x)); }

// The sums of all partials, in `sums` [kPartialValues] for the whole block.
__device__ __forceinline__ void sumPartials(const HyperJoin& j, float (*room)[kPartialValues], float* sums) {
  const int value = static_cast<int>(threadIdx.x) % kPartialValues, group = static_cast<int>(threadIdx.x) / kPartialValues;
  if (group < kJoinGroups) {
    constexpr int kAhead = 8;
    float sum = 0;
    for (int first = group; first < j.parts; first += kAhead * kJoinGroups) {
      float some[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; i++) {
        const int part = first + i * kJoinGroups;
        some[i] = part < j.parts ? __ldcg(j.partials + part * kPartialValues + value) : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kAhead; i++) sum += some[i];
    }
    room[group][value] = sum;
  }
  __syncthreads();
  if (threadIdx.x < kPartialValues) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kJoinGroups; i++) sum += room[i][threadIdx.x];
    sums[threadIdx.x] = sum;
  }
  __syncthreads();
}

// Softmax over rows, columns to sum 1, then rows and columns in turn.
__device__ __forceinline__ void balance(float (&m)[4][4], int iterations, float epsilon) {
#pragma unroll
  for (int row = 0; row < 4; row++) {
    const float most = fmaxf(fmaxf(m[row][0], m[row][1]), fmaxf(m[row][2], m[row][3]));
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) sum += m[row][i] = expf(m[row][i] - most);
#pragma unroll
    for (int i = 0; i < 4; i++) m[row][i] = m[row][i] / sum + epsilon;
  }
  for (int iteration = 0; iteration < iterations; iteration++) {
    if (iteration > 0) {
#pragma unroll
      for (int row = 0; row < 4; row++) {
        const float inverse = __frcp_rn(epsilon + m[row][0] + m[row][1] + m[row][2] + m[row][3]);
#pragma unroll
        for (int i = 0; i < 4; i++) m[row][i] *= inverse;
      }
    }
#pragma unroll
    for (int col = 0; col < 4; col++) {
      const float inverse = __frcp_rn(epsilon + m[0][col] + m[1][col] + m[2][col] + m[3][col]);
#pragma unroll
      for (int i = 0; i < 4; i++) m[i][col] *= inverse;
    }
  }
}

__device__ __forceinline__ void balanceStreams(const HyperJoin& j, const float* sums, float factor) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= 32 && i < 36) {
    const int k = i - 32;
    j.post[k] = 2.0f * sigmoidOf(sums[4 + k] * factor * j.scale[1] + j.base[4 + k]);
  }
  if (i != 0) return;
  float matrix[4][4];
#pragma unroll
  for (int k = 0; k < 16; k++) matrix[k / 4][k % 4] = sums[8 + k] * factor * j.scale[2] + j.base[8 + k];
  balance(matrix, j.iterations, j.hyperEpsilon);
#pragma unroll
  for (int k = 0; k < 16; k++) j.comb[k] = matrix[k / 4][k % 4];
}

/// Grid: hidden / 256 blocks, and one more where post and comb are wanted.
extern "C" __global__ void __launch_bounds__(kJoinThreads) hyper_join(const __grid_constant__ HyperJoin j) {
  letNextStart();
  __shared__ float room[kJoinGroups][kPartialValues];
  __shared__ float sums[kPartialValues];
  const int col = static_cast<int>(blockIdx.x) * kJoinThreads + static_cast<int>(threadIdx.x);
  const bool inside = col < j.hidden, balances = j.comb != nullptr && blockIdx.x == gridDim.x - 1;
  const float weight = inside && !balances ? loadConstant<float>(j.normWeight + col) : 0.0f;
  waitForPrevious();
  float streams[4] = {};
  if (inside && !balances) {
#pragma unroll
    for (int k = 0; k < 4; k++) streams[k] = __ldcg(j.streams + k * j.hidden + col);
  }
  sumPartials(j, room, sums);
  const float* squares = sums + kSquares;
  const float* crosses = sums + kCrosses;
  const float mean = (squares[0] + squares[1] + squares[2] + squares[3]) / (4.0f * static_cast<float>(j.hidden));
  const float factor = 1.0f / sqrtf(mean + j.normEpsilon);
  if (balances) {
    balanceStreams(j, sums, factor);
    return;
  }
  float pre[4], mix = 0;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    pre[k] = sigmoidOf(sums[k] * factor * j.scale[0] + j.base[k]) + j.hyperEpsilon;
    mix += pre[k] * streams[k];
  }
  float square = 0;
#pragma unroll
  for (int k = 0; k < 4; k++) square += pre[k] * pre[k] * squares[k];
  square += 2.0f * (pre[0] * (pre[1] * crosses[0] + pre[2] * crosses[1] + pre[3] * crosses[2]) +
                    pre[1] * (pre[2] * crosses[3] + pre[3] * crosses[4]) + pre[2] * pre[3] * crosses[5]);
  const float norm = 1.0f / sqrtf(fmaxf(square, 0.0f) / static_cast<float>(j.hidden) + j.normEpsilon);
  if (inside) j.x[col] = mix * norm * weight;
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
