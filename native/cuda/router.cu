// Router: which experts a token goes to and with what weight. A warp per token; logits are read once (1 KiB per token of
// 256 experts): latency of `used` warp-wide maxima, nothing else.
#include <cstdint>

#include "reductions.cuh"

namespace {

__device__ float sqrtSoftplus(float x) { return sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)))); }

// The largest rank, the lower index on ties, in every lane.
__device__ int bestOf(const float* ranks, int experts) {
  float best = -INFINITY;
  int index = 0x7fffffff;
  for (int e = threadIdx.x % 32; e < experts; e += 32) {
    if (ranks[e] > best) best = ranks[e], index = e;
  }
  for (int step = 16; step > 0; step /= 2) {
    const float value = __shfl_xor_sync(0xffffffffu, best, step);
    const int other = __shfl_xor_sync(0xffffffffu, index, step);
    if (value > best || (value == best && other < index)) best = value, index = other;
  }
  return index;
}

}  // namespace

/// Warps of a block take tokens in turn. logits [tokens, experts] -> ids, weights [tokens, used]. Exactly one of bias
/// [experts] and table [vocab, used] (rows by tokenIds) is given. Where a score that matters is not finite, `flag`
/// becomes `mark` if it was 0, and the token's ids are 0, 1, … with weight 0. Shared: 2 * experts floats per warp.
extern "C" __global__ void __launch_bounds__(128)
    route(const float* __restrict__ logits, const float* __restrict__ bias, const int32_t* __restrict__ table,
          const int32_t* __restrict__ tokenIds, int32_t* ids, float* weights, int32_t* flag, int tokens, int experts,
          int used, float weightsScale, int normalize, int mark) {
  extern __shared__ __align__(16) unsigned char memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (token >= tokens) return;
  float* scores = reinterpret_cast<float*>(memory) + 2 * warp * experts;
  float* ranks = scores + experts;
  bool finite = true;
  for (int e = lane; e < experts; e += 32) {
    scores[e] = sqrtSoftplus(logits[token * experts + e]);
    if (table == nullptr) {
      ranks[e] = scores[e] + bias[e];
      finite = finite && isfinite(ranks[e]);
    }
  }
  finite = __all_sync(0xffffffffu, finite);
  __syncwarp();
  int32_t* chosen = ids + token * used;
  float sum = 1e-20f;
  for (int slot = 0; slot < used; slot++) {
    int expert = slot;
    if (table != nullptr) expert = table[static_cast<int64_t>(tokenIds[token]) * used + slot];
    else if (finite) expert = bestOf(ranks, experts);
    sum += scores[expert];
    __syncwarp();
    if (lane == 0) {
      chosen[slot] = expert;
      ranks[expert] = -INFINITY;
    }
    __syncwarp();
  }
  finite = finite && isfinite(sum);
  if (!finite && lane == 0) atomicCAS(flag, 0, mark);
  const float factor = weightsScale / (normalize ? sum : 1.0f);
  for (int slot = lane; slot < used; slot += 32) {
    if (!finite) chosen[slot] = slot;
    weights[token * used + slot] = finite ? scores[chosen[slot]] * factor : 0.0f;
  }
}
