// Sums and maxima over a warp or a block. Orders are fixed: the same input gives the same bits.
#pragma once
#include <cstdint>

__device__ inline float warpSum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

__device__ inline float warpMax(float value) {
  for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

/// The sum over the block, in every thread. All threads call it; the block is a multiple of 32, at most 1024.
/// `room` [32] is shared and may be used again after the call.
__device__ inline float blockSum(float value, float* room) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const float own = warpSum(value);
  if (lane == 0) room[warp] = own;
  __syncthreads();
  const float total = warpSum(lane < warps ? room[lane] : 0.0f);
  __syncthreads();
  return total;
}

__device__ inline float dot4(float4 a) { return a.x * a.x + a.y * a.y + a.z * a.z + a.w * a.w; }
