// Launches that overlap: a kernel that was launched so starts while the one before it still runs, and waits where it first
// needs that one's results. What it reads before that must be older: weights, or what was finished when the kernel before
// it was allowed to let it start. Loads of results must not be marked as constant (`__restrict__` and const, __ldg): the
// compiler could move them before the wait.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace ds4::cuda {

/// Waits until the kernels before this one have finished and their writes are visible. Nothing where launches do not overlap.
__device__ __forceinline__ void waitForPrevious() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the next kernel start once all blocks of this one have called it or ended.
__device__ __forceinline__ void letNextStart() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Asks the second-level cache for bytes at a multiple of 16, a multiple of 16 of them. Nothing on older architectures.
__device__ __forceinline__ void prefetchToL2(const uint8_t* from, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#else
  (void)from, (void)bytes;
#endif
}

}  // namespace ds4::cuda
