// Where all blocks of a launch meet: between two steps of a kernel, what took the end of one launch and the start of the next
// otherwise. All blocks of the launch must be resident at once, or the first wait for ever for the last.
#pragma once
#include "cuda/intrinsics.cuh"
#include "cuda/overlap.cuh"

namespace ds4::cuda {

// Grows by 2^31 whenever all blocks of a launch have come. Launches that use it follow each other.
__device__ unsigned int gridArrivals;

/// What the steps of a block wait for: first the kernel before, then each other.
struct GridBarrier {
  unsigned int ticket = 0;  // of the last arrival; in thread 0
  bool inside = false;      // a step has ended

  /// Says that this block has ended its step. To be followed by `wait`, whatever the block has to do next.
  __device__ __forceinline__ void arrive() {
    __syncthreads();
    inside = true;
    if (threadIdx.x != 0) return;
    ticket = addRelease(&gridArrivals, blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u);
  }
  /// For a step that needs only what was there before the step before it: waits where that came from the kernel before.
  __device__ __forceinline__ void waitForKernel() const {
    if (!inside) waitForPrevious();
  }
  /// Waits until all blocks have arrived, before the first arrival for the kernel before; what they wrote is visible then to
  /// loads that bypass the first-level cache. By all threads.
  __device__ __forceinline__ void wait() const {
    if (!inside) {
      waitForPrevious();
      return;
    }
    if (threadIdx.x == 0) {
      while (((loadAcquire(&gridArrivals) ^ ticket) & 0x80000000u) == 0) {
      }
    }
    __syncthreads();
  }
};

}  // namespace ds4::cuda
