// CUDA's words for C++ compilers: what nvcc knows by itself. A kernel is a plain function that one thread of a block calls,
// a `__shared__` variable one of the thread of the operating system that runs the whole block.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "arithmetic.h"
#include "atomics.h"
#include "emulation/block.h"
#include "emulation/launch.h"
#include "vector_types.h"
#include "warp.h"

// Keywords of the language: nothing but the preprocessor can give them a meaning.
#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static thread_local
#define threadIdx (emulation::current->index)
#define blockIdx (emulation::block->index)
#define blockDim (emulation::blockExtent())
#define gridDim (emulation::block->launch->shape.grid)

namespace emulation {

inline Dim blockExtent() { return {block->launch->shape.threads, 1, 1}; }

}  // namespace emulation

inline void __syncthreads() { emulation::block->meetAll("__syncthreads"); }

inline bool __syncthreads_or(bool vote) {
  emulation::block->meetAll("__syncthreads_or", vote);
  return emulation::block->voteResult();
}
