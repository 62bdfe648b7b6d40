// Tasks that share the columns of the same rows: their sums meet in device memory, and the warp that comes last adds them
// up, always in the same order.
#pragma once
#include "cuda/intrinsics.cuh"

namespace ds4::cuda {

constexpr int kMaxSharedTasks = 2048;

// Launches of one stream follow each other in what they write here (overlapping ones wait first), and the counts are zero
// again after each.
__device__ float sharedSums[kMaxSharedTasks][32];
__device__ unsigned int sharedArrivals[kMaxSharedTasks];

/// Counts a warp of `parts` that brought its result; true in all lanes of the last. What the others wrote is visible then.
__device__ __forceinline__ bool arrivesLast(unsigned int* arrivals, int parts) {
  __syncwarp();
  unsigned int before = 0;
  if (threadIdx.x % 32 == 0) before = countArrival(arrivals, static_cast<unsigned int>(parts - 1));
  before = __shfl_sync(0xffffffffu, before, 0);
  return before == static_cast<unsigned int>(parts - 1);
}

/// A warp's sum of a group's parts, where it brought the last.
struct WholeSum {
  bool is;
  float sum;
};

/// Adds the sum of part `part` of `parts` of a group, by one warp; the group's sums lie from `first` on.
static __device__ __noinline__ WholeSum addShare(int first, int part, int parts, float sum) {
  if (parts == 1) return {true, sum};
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __stcg(&sharedSums[first + part][lane], sum);
  if (!arrivesLast(&sharedArrivals[first], parts)) return {false, 0.0f};
  sum = 0;
  constexpr int kAhead = 4;
#pragma unroll 1
  for (int from = 0; from < parts; from += kAhead) {
    float some[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; i++) some[i] = from + i < parts ? __ldcg(&sharedSums[first + from + i][lane]) : 0.0f;
#pragma unroll
    for (int i = 0; i < kAhead; i++) sum += some[i];
  }
  return {true, sum};
}

}  // namespace ds4::cuda
