// Says that code runs on a device at all, and which: what `cuda:check` launches first. And how many products its tensor
// cores do: what `cuda:bench` compares with.
// Bytes moved: none worth measuring.
#include "cuda/intrinsics.cuh"
#include "cuda/tensor_core.cuh"

/// out[0] = architecture that the running code was compiled for (900 for sm_90a), out[1 + i] = i + addend for i < count.
extern "C" __global__ void probeDevice(int32_t* out, int32_t count, int32_t addend) {
#ifdef __CUDA_ARCH__
  const int32_t index = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (index == 0) out[0] = __CUDA_ARCH__;
  if (index < count) out[1 + index] = index + addend;
#endif
}

/// What the tensor cores do at most: `rounds` times eight products per warp, out of registers alone. 256 threads, any grid.
/// 2 * 16 * 8 * 16 operations per product of halves; twice that of bytes. `out` is never written, which the compiler cannot see.
extern "C" __global__ void __launch_bounds__(256) probe_half_products(float* out, int32_t rounds) {
  float sums[8][4] = {};
  const uint32_t a = threadIdx.x & 1, b = threadIdx.x >> 8;
  for (int round = 0; round < rounds; round++) {
#pragma unroll
    for (int i = 0; i < 8; i++) ds4::cuda::multiplyHalf(sums[i], a, a, a, a, b, b);
  }
  float total = 0;
  for (const auto& sum : sums) total += sum[0] + sum[1] + sum[2] + sum[3];
  if (total == -1.0f) out[0] = total;
}

extern "C" __global__ void __launch_bounds__(256) probe_byte_products(float* out, int32_t rounds) {
  int sums[8][4] = {};
  const uint32_t a = threadIdx.x & 1, b = threadIdx.x >> 8;
  for (int round = 0; round < rounds; round++) {
#pragma unroll
    for (int i = 0; i < 8; i++) ds4::cuda::multiplyTile(sums[i], a, a, a, a, b, b);
  }
  int total = 0;
  for (const auto& sum : sums) total += sum[0] + sum[1] + sum[2] + sum[3];
  if (total == -1) out[0] = 1.0f;
}
