// Asynchronous copies to shared memory that end on a barrier there: one instruction of the bulk copy engine from Hopper on,
// 16 bytes per thread before. Tests replace this file to run kernels on a processor.
#pragma once
#include "cuda/intrinsics.cuh"

namespace ds4::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool kBulkCopies = true;
#else
constexpr bool kBulkCopies = false;
#endif

__device__ __forceinline__ uint32_t sharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

/// Makes a barrier for the copies of one warp; by one thread.
__device__ __forceinline__ void openCopyBarrier(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(kBulkCopies ? 1 : 32) : "memory");
}

/// Shows the copy engine what threads did in shared memory: barriers that were made, places that were written and will be filled.
__device__ __forceinline__ void publishToCopies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ __forceinline__ void copyBulk(uint8_t* to, const uint8_t* from, int bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(sharedAddress(to)),
               "l"(from), "r"(bytes), "r"(sharedAddress(barrier))
               : "memory");
}
#endif

/// Starts to copy `bytes` from each of two places to shared memory, by one warp; the barrier completes when all have come.
__device__ __forceinline__ void fillStage(uint8_t* to, const uint8_t* from, uint8_t* secondTo, const uint8_t* secondFrom,
                                          int bytes, uint64_t* barrier) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (lane == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(2 * bytes)
                 : "memory");
    copyBulk(to, from, bytes, barrier);
    copyBulk(secondTo, secondFrom, bytes, barrier);
  }
  __syncwarp();
#else
#pragma unroll 1
  for (int at = 16 * lane; at < bytes; at += 512) {
    copyAsync16(to + at, from + at);
    copyAsync16(secondTo + at, secondFrom + at);
  }
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(sharedAddress(barrier)) : "memory");
#endif
}

/// Waits until the copies of the barrier's phase have come; phases alternate between parity 0 and 1.
__device__ __forceinline__ void waitForStage(uint64_t* barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(sharedAddress(barrier)), "r"(parity)
        : "memory");
#else
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(sharedAddress(barrier)), "r"(parity)
                 : "memory");
#endif
  }
}

}  // namespace ds4::cuda
