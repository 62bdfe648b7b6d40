// Routing slots grouped by expert (counting sort, order within an expert as in the slots, so that results never depend on
// timing), and the weighted sum that ends a mixture of experts. Bytes: a few per slot, and 4 * (used + 2) per output.
#include "cuda/products.cuh"

namespace ds4::cuda {

// Start of each expert's rows from the counts [warps][experts] of the warps' slots; the counts become the warps' own starts.
__device__ __forceinline__ void startGroups(int* counts, int warps, int experts, int* begin, int* active,
                                            int* activeCount) {
  const int lane = static_cast<int>(threadIdx.x);
  int row = 0, found = 0;
  for (int first = 0; first < experts; first += 32) {
    const int e = first + lane;
    int count = 0;
    for (int warp = 0; e < experts && warp < warps; warp++) count += counts[warp * experts + e];
    int before = count;  // inclusive sum over the lanes
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, before, step);
      if (lane >= step) before += other;
    }
    const uint32_t used = __ballot_sync(0xffffffffu, count > 0);
    if (e < experts) {
      int start = row + before - count;
      begin[e] = start;
      if (count > 0) active[found + __popc(used & ((1u << lane) - 1))] = e;
      for (int warp = 0; warp < warps; warp++) {
        const int own = counts[warp * experts + e];
        counts[warp * experts + e] = start;
        start += own;
      }
    }
    row += __shfl_sync(0xffffffffu, before, 31);
    found += __popc(used);
  }
  if (lane == 0) {
    begin[experts] = row;
    *activeCount = found;
  }
}

/// One block; shared memory: 4 bytes per warp and expert. A warp has a run of consecutive slots.
extern "C" __global__ void __launch_bounds__(1024)
    group_by_expert(const int* ids, int tokens, int used, int experts, int* begin, int* rowToken, int* slotRow,
                    int* active, int* activeCount) {
  int* counts = reinterpret_cast<int*>(dynamicShared());
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int warps = threads / 32, warp = thread / 32, lane = thread % 32, slots = tokens * used;
  const int run = (slots + threads - 1) / threads * 32;
  int* own = counts + warp * experts;
  for (int i = thread; i < warps * experts; i += threads) counts[i] = 0;
  __syncthreads();
  for (int i = lane; i < run; i += 32) {
    if (warp * run + i < slots) atomicAdd(&own[ids[warp * run + i]], 1);
  }
  __syncthreads();
  if (warp == 0) startGroups(counts, warps, experts, begin, active, activeCount);
  __syncthreads();
  for (int i = lane; i < run; i += 32) {
    const int slot = warp * run + i;
    const int expert = slot < slots ? ids[slot] : -1;
    const uint32_t equal = __match_any_sync(0xffffffffu, expert);
    const int before = __popc(equal & ((1u << lane) - 1));
    const int start = expert >= 0 ? own[expert] : 0;
    __syncwarp();
    if (expert >= 0) {
      rowToken[start + before] = slot / used;
      slotRow[slot] = start + before;
      if (equal >> lane == 1) own[expert] = start + before + 1;  // the last of its equals
    }
    __syncwarp();
  }
}

/// out [tokens, hidden] (the shared expert's result) += sum over slots of weight * down[row of the slot], in slot order.
extern "C" __global__ void combine_experts(const float* down, const float* weights, const int* slotRow, int used,
                                           int hidden, float* out) {
  const int col = 4 * static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), token = static_cast<int>(blockIdx.y);
  if (col >= hidden) return;
  float4* target = reinterpret_cast<float4*>(out + static_cast<int64_t>(token) * hidden + col);
  float4 sum = *target;
  for (int slot = token * used; slot < (token + 1) * used; slot++) {
    const float weight = weights[slot];
    const float4 x = *reinterpret_cast<const float4*>(down + static_cast<int64_t>(slotRow[slot]) * hidden + col);
    sum.x += weight * x.x;
    sum.y += weight * x.y;
    sum.z += weight * x.z;
    sum.w += weight * x.w;
  }
  *target = sum;
}

/// h [count] = swiglu(gate, up): where gate and up are of different types and could not be multiplied in one kernel.
extern "C" __global__ void swiglu_values(const float* gate, const float* up, int64_t count, float limit, float* h) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) h[i] = swiglu(gate[i], up[i], limit);
}

}  // namespace ds4::cuda
