// The router's choice for one token, by one warp. What router.cu and decode-experts.cu do with scores.
#pragma once
#include <cstdint>

namespace ds4::cuda {

/// Constants and weights of a router: exactly one of bias [experts] and table [vocab, used] (rows by token id) is given.
struct RouterChoice {
  const float* bias;
  const int32_t* table;
  int experts, used;
  float weightsScale;
  int normalize, mark, padding;
};

__device__ __forceinline__ float sqrtSoftplus(float x) { return sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)))); }

// The largest rank, the lower index on ties, in every lane.
__device__ __forceinline__ int bestOf(const float* ranks, int experts) {
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

/// ids, weights [used] of logits [experts], by one warp; scores: 2 * experts floats of shared memory for it. Where a score that
/// matters is not finite, `flag` becomes `mark` if it was 0, and the ids are 0, 1, … with weight 0.
__device__ __forceinline__ void chooseExperts(const RouterChoice& router, const float* logits, int tokenId,
                                              int32_t* ids, float* weights, int32_t* flag, float* scores) {
  const int lane = threadIdx.x % 32, experts = router.experts;
  float* ranks = scores + experts;
  bool finite = true;
  for (int e = lane; e < experts; e += 32) {
    scores[e] = sqrtSoftplus(__ldcg(logits + e));
    if (router.table == nullptr) {
      ranks[e] = scores[e] + router.bias[e];
      finite = finite && isfinite(ranks[e]);
    }
  }
  finite = __all_sync(0xffffffffu, finite);
  __syncwarp();
  float sum = 1e-20f;
  int own = lane;  // of slot `lane`
  for (int slot = 0; slot < router.used; slot++) {
    int expert = slot;
    if (router.table != nullptr) expert = router.table[static_cast<int64_t>(tokenId) * router.used + slot];
    else if (finite) expert = bestOf(ranks, experts);
    sum += scores[expert];
    if (slot % 32 == lane) own = expert;
    __syncwarp();
    if (lane == 0) ranks[expert] = -INFINITY;
    __syncwarp();
    if (slot % 32 == 31 || slot == router.used - 1) {
      const int first = slot / 32 * 32;
      if (first + lane <= slot) ids[first + lane] = own;
    }
  }
  __syncwarp();
  finite = finite && isfinite(sum);
  if (!finite && lane == 0) atomicCAS(flag, 0, router.mark);
  const float factor = router.weightsScale / (router.normalize ? sum : 1.0f);
  for (int slot = lane; slot < router.used; slot += 32) {
    if (!finite) ids[slot] = slot;
    weights[slot] = finite ? scores[ids[slot]] * factor : 0.0f;
  }
}

}  // namespace ds4::cuda
