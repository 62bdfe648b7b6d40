// Row-wise steps: norms, rotation, the greedy choice. All read and write each value once (the norms
// read twice, the second time from L1): prefill is limited by memory, one token by launch latency.
#include <cstdint>

#include "reductions.cuh"

/// A block per row of x [rows, width], in place: x * weight / rms; weight null = 1.
extern "C" __global__ void __launch_bounds__(1024)
    norm_rows(float* x, const float* __restrict__ weight, int width, float epsilon) {
  __shared__ float room[32];
  float* row = x + static_cast<int64_t>(blockIdx.x) * width;
  float squares = 0;
  for (int i = threadIdx.x; i < width; i += blockDim.x) squares += row[i] * row[i];
  const float factor = 1.0f / sqrtf(blockSum(squares, room) / static_cast<float>(width) + epsilon);
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    row[i] = weight == nullptr ? row[i] * factor : row[i] * factor * weight[i];
  }
}

/// A thread per (token, pair): cosines, sines [tokens, pairs] of float32(position * frequency), in double as on the CPU.
extern "C" __global__ void __launch_bounds__(128)
    rope_table(const int32_t* __restrict__ positions, const float* __restrict__ frequencies, float* cosines,
               float* sines, int tokens, int pairs) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= static_cast<int64_t>(tokens) * pairs) return;
  const double angle = __fmul_rn(static_cast<float>(positions[i / pairs]), frequencies[i % pairs]);
  cosines[i] = static_cast<float>(cos(angle));
  sines[i] = static_cast<float>(sin(angle));
}

/// A warp per row of rows [tokens, heads, dim] (`total` = tokens * heads): optional norm without weight, then rotation of
/// the last 2 * pairs values by the token's angles, backwards when `inverse`. dim is even.
extern "C" __global__ void __launch_bounds__(256)
    rotate_heads(float* rows, const float* __restrict__ cosines, const float* __restrict__ sines, int64_t total,
                 int heads, int dim, int pairs, int normalize, float epsilon, int inverse) {
  const int lane = threadIdx.x % 32;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (index >= total) return;
  float2* row = reinterpret_cast<float2*>(rows + index * dim);
  const int couples = dim / 2, firstPair = couples - pairs;
  const int64_t angles = index / heads * pairs;
  float factor = 1.0f;
  if (normalize) {
    float squares = 0;
    for (int i = lane; i < couples; i += 32) squares += row[i].x * row[i].x + row[i].y * row[i].y;
    factor = 1.0f / sqrtf(warpSum(squares) / static_cast<float>(dim) + epsilon);
    for (int i = lane; i < firstPair; i += 32) row[i] = make_float2(row[i].x * factor, row[i].y * factor);
  }
  for (int pair = lane; pair < pairs; pair += 32) {
    const float x = row[firstPair + pair].x * factor, y = row[firstPair + pair].y * factor;
    const float c = cosines[angles + pair], s = inverse ? -sines[angles + pair] : sines[angles + pair];
    row[firstPair + pair] = make_float2(x * c - y * s, x * s + y * c);
  }
}

/// A block per row of logits [rows, vocab]: out[row] = index of the largest value, the lower index on ties. NaN never
/// wins. `flag` becomes `mark` where it was 0 when no value is above -infinity.
extern "C" __global__ void __launch_bounds__(1024)
    argmax_rows(const float* __restrict__ logits, int32_t* out, int32_t* flag, int vocab, int mark) {
  __shared__ float bestValues[32];
  __shared__ int bestIndices[32];
  const float* row = logits + static_cast<int64_t>(blockIdx.x) * vocab;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float best = -INFINITY;
  int index = 0x7fffffff;
  for (int i = threadIdx.x; i < vocab; i += blockDim.x) {
    const float value = row[i];
    if (value > best) best = value, index = i;
  }
  const auto reduce = [&] {
    for (int step = 16; step > 0; step /= 2) {
      const float value = __shfl_xor_sync(0xffffffffu, best, step);
      const int other = __shfl_xor_sync(0xffffffffu, index, step);
      if (value > best || (value == best && other < index)) best = value, index = other;
    }
  };
  reduce();
  if (lane == 0) bestValues[warp] = best, bestIndices[warp] = index;
  __syncthreads();
  if (warp != 0) return;
  const int warps = blockDim.x / 32;
  best = lane < warps ? bestValues[lane] : -INFINITY;
  index = lane < warps ? bestIndices[lane] : 0x7fffffff;
  reduce();
  if (lane != 0) return;
  if (index == 0x7fffffff) {
    atomicCAS(flag, 0, mark);
    index = 0;
  }
  out[blockIdx.x] = index;
}
