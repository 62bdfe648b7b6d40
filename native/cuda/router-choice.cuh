// The router's choice for one token, by one warp. What router.cu and decode-experts.cu do with scores.
#pragma once
#include <cstdint>

#include "cuda/float-order.cuh"

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

/// Experts that a lane of a warp keeps in registers.
constexpr int kExpertsPerLane = 16;

// The largest rank, the lower index on ties, in every lane; 0 is no rank.
__device__ __forceinline__ int bestOf(const uint32_t (&ranks)[kExpertsPerLane], int experts) {
  const int lane = threadIdx.x % 32;
  uint32_t best = 0;
#pragma unroll
  for (int i = 0; i < kExpertsPerLane; i++) best = max(best, ranks[i]);
  const uint32_t most = __reduce_max_sync(0xffffffffu, best);
  uint32_t index = 0x7fffffff;
#pragma unroll
  for (int i = kExpertsPerLane - 1; i >= 0; i--) {
    if (ranks[i] == most) index = 32 * i + lane;
  }
  return min(static_cast<int>(__reduce_min_sync(0xffffffffu, index)), experts - 1);
}

/// ids, weights [used] of logits [experts], by one warp; scores: 2 * experts floats of shared memory for it. At most
/// 512 experts. Where a score that
/// matters is not finite, `flag` becomes `mark` if it was 0, and the ids are 0, 1, … with weight 0.
__device__ __forceinline__ void chooseExperts(const RouterChoice& router, const float* logits, int tokenId,
                                              int32_t* ids, float* weights, int32_t* flag, float* scores) {
  const int lane = threadIdx.x % 32, experts = router.experts;
  uint32_t* order = reinterpret_cast<uint32_t*>(scores + experts);
  bool finite = true;
  // Loops of few instructions: the code runs once, and reading it takes longer than running it.
#pragma unroll 1
  for (int e = lane; e < experts; e += 32) {
    const float score = sqrtSoftplus(__ldcg(logits + e));
    scores[e] = score;
    if (router.table != nullptr) continue;
    const float rank = score + router.bias[e];
    order[e] = orderOf(rank);
    finite = finite && isfinite(rank);
  }
  __syncwarp();
  uint32_t ranks[kExpertsPerLane];
#pragma unroll
  for (int i = 0; i < kExpertsPerLane; i++) {
    ranks[i] = 32 * i + lane < experts && router.table == nullptr ? order[32 * i + lane] : 0;
  }
  finite = __all_sync(0xffffffffu, finite);
  __syncwarp();
  float sum = 1e-20f;
  int own = lane;  // of slot `lane`
#pragma unroll 1
  for (int slot = 0; slot < router.used; slot++) {
    int expert = slot;
    if (router.table != nullptr) expert = router.table[static_cast<int64_t>(tokenId) * router.used + slot];
    else if (finite) expert = bestOf(ranks, experts);
    sum += scores[expert];
    if (slot % 32 == lane) own = expert;
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; i++) {
      if (32 * i + lane == expert) ranks[i] = 0;
    }
    if (slot % 32 == 31 || slot == router.used - 1) {
      const int first = slot / 32 * 32;
      if (first + lane <= slot) ids[first + lane] = own;
    }
  }
  __syncwarp();
  finite = finite && isfinite(sum);
  if (!finite && lane == 0) atomicCAS(flag, 0, router.mark);
  const float factor = router.weightsScale / (router.normalize ? sum : 1.0f);
#pragma unroll 1
  for (int slot = lane; slot < router.used; slot += 32) {
    if (!finite) ids[slot] = slot;
    weights[slot] = finite ? scores[ids[slot]] * factor : 0.0f;
  }
}

}  // namespace ds4::cuda
