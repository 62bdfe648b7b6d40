// Says that code runs on a device at all, and which: what `cuda:check` launches first.
// Bytes moved: none worth measuring.
#include <cstdint>

/// out[0] = architecture that the running code was compiled for (900 for sm_90a), out[1 + i] = i + addend for i < count.
extern "C" __global__ void probeDevice(int32_t* out, int32_t count, int32_t addend) {
#ifdef __CUDA_ARCH__
  const int32_t index = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (index == 0) out[0] = __CUDA_ARCH__;
  if (index < count) out[1 + index] = index + addend;
#endif
}
