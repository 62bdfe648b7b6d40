// Activations to int8, one scale per 32 columns, rounded to nearest even as on the CPU (cpu/isa/quantize_impl.h, whose
// compilers fuse the multiplication and the rounding sum wherever the processor can).
// A warp per 128 columns of a row. Moves 4 bytes in and 1.5 out per value; short beside the products it feeds.
#include "cuda/staged-rows.cuh"

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
  const StagedRows target{const_cast<uint8_t*>(view.quants(row)), const_cast<float*>(view.scales(row)),
                          const_cast<float*>(view.sums(row)), nullptr, view.stride()};
  quantizeFour(values, target, col, lane);
}

}  // namespace ds4::cuda
