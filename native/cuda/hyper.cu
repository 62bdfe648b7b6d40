// Hyper-connections around a block: read (mix + norm, Sinkhorn) and write. The product with `fn` comes before.
// Bytes per token: read n * hidden * 4 once (first 4 * blockDim columns stay in registers) and writes hidden * 4; write
// reads (n + 1) * hidden * 4 and writes n * hidden * 4. Prefill is limited by memory, one token by latency: two block
// reductions, and 2 * iterations dependent divisions of the Sinkhorn steps, which a second block takes (gridDim.y = 2).
#include "reductions.cuh"

namespace {

constexpr int kMaxStreams = 8;
constexpr int kHeld = 4;  // streams of the first columns that stay in registers

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Lane `line` scales its line of m [n, n] in shared memory to sum 1.
__device__ void normalizeLines(float* m, int n, int lineStride, int stride, float epsilon) {
  const int line = threadIdx.x % 32;
  if (line < n) {
    float sum = epsilon;
    for (int i = 0; i < n; i++) sum += m[line * lineStride + i * stride];
    const float inverse = 1.0f / sum;
    for (int i = 0; i < n; i++) m[line * lineStride + i * stride] *= inverse;
  }
  __syncwarp();
}

// Softmax over rows, columns to sum 1, then rows and columns in turn; by one warp.
__device__ void balance(float* m, int n, int iterations, float epsilon) {
  const int row = threadIdx.x % 32;
  if (row < n) {
    float max = m[row * n];
    for (int i = 1; i < n; i++) max = fmaxf(max, m[row * n + i]);
    float sum = 0;
    for (int i = 0; i < n; i++) sum += m[row * n + i] = expf(m[row * n + i] - max);
    for (int i = 0; i < n; i++) m[row * n + i] = m[row * n + i] / sum + epsilon;
  }
  __syncwarp();
  normalizeLines(m, n, 1, n, epsilon);
  for (int iteration = 1; iteration < iterations; iteration++) {
    normalizeLines(m, n, n, 1, epsilon);
    normalizeLines(m, n, 1, n, epsilon);
  }
}

__device__ float4 scaled(float4 v, float factor) {
  return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

__device__ void addScaled(float4& sum, float4 v, float factor) {
  sum.x += v.x * factor;
  sum.y += v.y * factor;
  sum.z += v.z * factor;
  sum.w += v.w * factor;
}

// x = mix * factor * weight
__device__ float4 normed(float4 mix, float factor, float4 weight) {
  return make_float4(mix.x * factor * weight.x, mix.y * factor * weight.y, mix.z * factor * weight.z,
                     mix.w * factor * weight.w);
}

}  // namespace

/// Grid (tokens, 1 or 2), a block per token. streams [tokens, n, hidden], mixes [tokens, 2n + n*n] = fn x streams ->
/// x [tokens, hidden], post [tokens, n], comb [tokens, n, n]. Head: comb and post null, mixes [tokens, n].
/// hidden is a multiple of 4, n at most 8.
extern "C" __global__ void __launch_bounds__(512)
    hyper_read(const float* __restrict__ streams, const float* __restrict__ mixes, const float* __restrict__ base,
               const float* __restrict__ scale, const float* __restrict__ normWeight, float* x, float* post, float* comb,
               int n, int hidden, float normEpsilon, float hyperEpsilon, int iterations) {
  __shared__ float room[32];
  __shared__ float pre[kMaxStreams];
  __shared__ float matrix[kMaxStreams * kMaxStreams];
  const int64_t token = blockIdx.x;
  const bool head = comb == nullptr;
  const bool balances = !head && blockIdx.y == gridDim.y - 1;
  const int columns = hidden / 4, first = threadIdx.x;
  const float4* in = reinterpret_cast<const float4*>(streams + token * n * hidden);
  float4 held[kHeld];
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kHeld; k++) {
    held[k] = k < n && first < columns ? in[static_cast<int64_t>(k) * columns + first] : make_float4(0, 0, 0, 0);
    squares += dot4(held[k]);
  }
  for (int k = kHeld; k < n; k++) {
    if (first < columns) squares += dot4(in[static_cast<int64_t>(k) * columns + first]);
  }
  for (int column = first + blockDim.x; column < columns; column += blockDim.x) {
    for (int k = 0; k < n; k++) squares += dot4(in[static_cast<int64_t>(k) * columns + column]);
  }
  const float factor = 1.0f / sqrtf(blockSum(squares, room) / (static_cast<float>(n) * hidden) + normEpsilon);
  const float* mix = mixes + token * (head ? n : 2 * n + n * n);
  if (first < n) {
    pre[first] = sigmoid(mix[first] * factor * scale[0] + base[first]) + hyperEpsilon;
    if (balances) post[token * n + first] = 2.0f * sigmoid(mix[n + first] * factor * scale[1] + base[n + first]);
  }
  if (balances && first < n * n) matrix[first] = mix[2 * n + first] * factor * scale[2] + base[2 * n + first];
  __syncthreads();
  if (blockIdx.y == 0) {
    float4* out = reinterpret_cast<float4*>(x + token * hidden);
    const float4* weights = reinterpret_cast<const float4*>(normWeight);
    float4 own = scaled(held[0], pre[0]);
#pragma unroll
    for (int k = 1; k < kHeld; k++) {
      if (k < n) addScaled(own, held[k], pre[k]);
    }
    for (int k = kHeld; k < n; k++) {
      if (first < columns) addScaled(own, in[static_cast<int64_t>(k) * columns + first], pre[k]);
    }
    float total = dot4(own);
    for (int column = first + blockDim.x; column < columns; column += blockDim.x) {
      float4 sum = scaled(in[column], pre[0]);
      for (int k = 1; k < n; k++) addScaled(sum, in[static_cast<int64_t>(k) * columns + column], pre[k]);
      out[column] = sum;
      total += dot4(sum);
    }
    const float norm = 1.0f / sqrtf(blockSum(total, room) / static_cast<float>(hidden) + normEpsilon);
    if (first < columns) out[first] = normed(own, norm, weights[first]);
    for (int column = first + blockDim.x; column < columns; column += blockDim.x) {
      out[column] = normed(out[column], norm, weights[column]);
    }
  }
  if (balances && first < 32) {
    balance(matrix, n, iterations, hyperEpsilon);
    for (int i = first; i < n * n; i += 32) comb[token * n * n + i] = matrix[i];
  }
}

/// Grid (columns / blockDim, tokens): streams[k] = post[k] * out + sum over j of comb[j][k] * streams[j], in place.
extern "C" __global__ void __launch_bounds__(256)
    hyper_write(float* streams, const float* __restrict__ out, const float* __restrict__ post,
                const float* __restrict__ comb, int n, int hidden) {
  const int64_t token = blockIdx.y;
  const int columns = hidden / 4, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float4* rows = reinterpret_cast<float4*>(streams + token * n * hidden) + column;
  const float* weights = comb + token * n * n;
  float4 old[kMaxStreams];
#pragma unroll
  for (int j = 0; j < kMaxStreams; j++) {
    if (j < n) old[j] = rows[static_cast<int64_t>(j) * columns];
  }
  const float4 block = reinterpret_cast<const float4*>(out + token * hidden)[column];
#pragma unroll
  for (int k = 0; k < kMaxStreams; k++) {
    if (k >= n) break;
    float4 sum = scaled(block, post[token * n + k]);
#pragma unroll
    for (int j = 0; j < kMaxStreams; j++) {
      if (j < n) addScaled(sum, old[j], weights[j * n + k]);
    }
    rows[static_cast<int64_t>(k) * columns] = sum;
  }
}
