// The router's choice for one token, by one warp. What router.cu and decode-route.cuh do with scores.
#pragma once
#include <cstdint>

#include "cuda/float-order.cuh"
#include "cuda/intrinsics.cuh"

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

// The largest rank, the lower index on ties, in every lane; 0 is no rank.
template <int PerLane>
__device__ __forceinline__ int bestOf(const uint32_t (&ranks)[PerLane], int experts) {
  const int lane = threadIdx.x % 32;
  uint32_t best = 0;
#pragma unroll
  for (int i = 0; i < PerLane; i++) best = max(best, ranks[i]);
  const uint32_t most = __reduce_max_sync(0xffffffffu, best);
  uint32_t index = 0x7fffffff;
#pragma unroll
  for (int i = PerLane - 1; i >= 0; i--) {
    if (ranks[i] == most) index = 32 * i + lane;
  }
  return min(static_cast<int>(__reduce_min_sync(0xffffffffu, index)), experts - 1);
}

/// The best experts in turn for slots 0 .. used - 1, by one warp that has at most PerLane experts a lane: takeSlot(slot, expert) in all
/// lanes. False, and nothing taken, where a rank is not finite.
template <int PerLane, class TakeSlot>
__device__ __forceinline__ bool chooseBest(const RouterChoice& router, const float* scores, TakeSlot&& takeSlot) {
  const int lane = threadIdx.x % 32;
  uint32_t ranks[PerLane];
  bool finite = true;
#pragma unroll
  for (int i = 0; i < PerLane; i++) {
    const int expert = 32 * i + lane;
    ranks[i] = 0;
    if (expert >= router.experts) continue;
    const float rank = scores[expert] + router.bias[expert];
    ranks[i] = orderOf(rank);
    finite = finite && isfinite(rank);
  }
  if (!__all_sync(0xffffffffu, finite)) return false;
#pragma unroll 1
  for (int slot = 0; slot < router.used; slot++) {
    const int expert = bestOf(ranks, router.experts);
    takeSlot(slot, expert);
#pragma unroll
    for (int i = 0; i < PerLane; i++) {
      if (32 * i + lane == expert) ranks[i] = 0;
    }
  }
  return true;
}

/// ids, weights [used] by scores [experts] in shared memory (sqrtSoftplus of the logits), by one warp. At most 512 experts, 32
/// used. Where a score that matters is not finite, `flag` becomes `mark` if it was 0, and the ids are 0, 1, … with weight 0.
__device__ __forceinline__ void chooseExperts(const RouterChoice& router, const float* scores, int tokenId, int32_t* ids,
                                              float* weights, int32_t* flag) {
  const int lane = threadIdx.x % 32;
  int own = lane;  // the expert of slot `lane`
  float sum = 1e-20f;
  const auto takeSlot = [&](int slot, int expert) {
    sum += scores[expert];
    if (slot == lane) own = expert;
  };
  bool finite = true;
  if (router.table != nullptr) {
    const int32_t* row = router.table + static_cast<int64_t>(tokenId) * router.used;
#pragma unroll 1
    for (int slot = 0; slot < router.used; slot++) takeSlot(slot, loadConstant<int32_t>(row + slot));
  } else if (router.experts <= 256) {
    finite = chooseBest<8>(router, scores, takeSlot);
  } else {
    finite = chooseBest<16>(router, scores, takeSlot);
  }
  finite = finite && isfinite(sum);
  if (!finite && lane == 0) atomicCAS(flag, 0, router.mark);
  if (lane >= router.used) return;
  const float factor = router.weightsScale / (router.normalize ? sum : 1.0f);
  ids[lane] = finite ? own : lane;
  weights[lane] = finite ? scores[own] * factor : 0.0f;
}

}  // namespace ds4::cuda
