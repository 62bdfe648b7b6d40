// Activations to int8, one scale per 32 columns, rounded to nearest even as on the CPU (cpu/isa/quantize_impl.h, whose
// compilers fuse the multiplication and the rounding sum wherever the processor can).
// A warp per 128 columns of a row. Moves 4 bytes in and 1.5 out per value; short beside the products it feeds.
#include "cuda/matrix.cuh"

namespace ds4::cuda {

// Columns beyond the last are zeros, so that copies of whole 128-column pieces find defined bytes.
extern "C" __global__ void quantize_rows(const float* x, uint8_t* quantized, int rows, int cols) {
  const Input view{x, quantized, rows, cols};
  const int pieces = view.stride() / 128;
  const int64_t task = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (task >= static_cast<int64_t>(rows) * pieces) return;
  const int row = static_cast<int>(task / pieces), lane = static_cast<int>(threadIdx.x) & 31;
  const int col = static_cast<int>(task % pieces) * 128 + 4 * lane;
  float4 values = make_float4(0, 0, 0, 0);
  if (col < cols) values = *reinterpret_cast<const float4*>(x + static_cast<int64_t>(row) * cols + col);
  const float v[4] = {values.x, values.y, values.z, values.w};
  int largestBits = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) largestBits = max(largestBits, __float_as_int(v[i]) & 0x7fffffff);
#pragma unroll
  for (int step = 1; step < 8; step *= 2) largestBits = max(largestBits, __shfl_xor_sync(0xffffffffu, largestBits, step));
  const float largest = __int_as_float(largestBits);
  const float scale = __fdiv_rn(largest, 127.0f);
  const float inverse = scale > 0 ? __fdiv_rn(127.0f, largest) : 0;
  constexpr int kMagicBits = 0x4b400000;  // 1.5 * 2^23: a sum with it has the rounded number in its low bits
  uint32_t packed = 0;
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int quant = __float_as_int(__fmaf_rn(v[i], inverse, __int_as_float(kMagicBits))) - kMagicBits;
    const int8_t narrow = static_cast<int8_t>(quant);
    packed |= static_cast<uint32_t>(static_cast<uint8_t>(narrow)) << (8 * i);
    sum += narrow;
  }
#pragma unroll
  for (int step = 1; step < 4; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  *reinterpret_cast<uint32_t*>(const_cast<uint8_t*>(view.quants(row)) + col) = packed;
  if (lane % 4 == 0) const_cast<float*>(view.sums(row))[col / 16] = scale * static_cast<float>(sum);
  if (lane % 8 == 0) const_cast<float*>(view.scales(row))[col / 32] = scale;
}

}  // namespace ds4::cuda
