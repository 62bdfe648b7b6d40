// What the matrix kernels share: weights in the panels of cpu/packed_layout.h, activations, and which lane owns what.
//
// A warp works on two panels at once (32 weight rows). Of each, the lane with quad a = lane / 4 % 4 reads the rows
// 4a .. 4a + 3 as 16-byte pieces; lanes 0-15 have the first panel, 16-31 the second. pair b = lane % 4 says which
// 8 columns of 32 a lane reads: 8b .. 8b + 7. As operand A of multiplyTile that is row lane / 4 = (panel, quad), with words
// 0 and 1 of the quad as rows of the first product, 2 and 3 as rows of the second, and an inner dimension in the
// order that the activations have in memory. The sums of a lane then belong to its own four rows: no lane needs another's scale.
#pragma once
#include "cpu/packed_layout.h"
#include "cuda/intrinsics.cuh"

namespace ds4::cuda {

/// ggml type ids, as in cpu/matmul.h.
enum Type : int {
  kF32 = 0, kF16 = 1, kQ80 = 8, kQ2K = 10, kQ3K = 11, kQ4K = 12, kQ5K = 13, kQ6K = 14,
  kIq2Xxs = 16, kIq2Xs = 17, kIq3Xxs = 18, kIq4Xs = 23, kBf16 = 30, kMxfp4 = 39,
};

__host__ __device__ constexpr bool usesInt8(int type) {
  return type == kQ80 || type == kQ2K || type == kQ4K || type == kIq2Xxs;
}

/// Bytes of one column of a panel's 16 rows, times 256.
__device__ __forceinline__ int panelBytes256(int type) {
  switch (type) {
    case kF32: return 256 * 64;
    case kF16: case kBf16: return 256 * 32;
    case kQ80: return 8 * static_cast<int>(q80_panel::kBytes);
    case kMxfp4: return 8 * static_cast<int>(mxfp4_panel::kBytes);
    case kQ2K: return static_cast<int>(q2k_panel::kBytes);
    case kQ4K: return static_cast<int>(q4k_panel::kBytes);
    case kIq2Xxs: return static_cast<int>(iq2xxs_panel::kBytes);
    case kQ3K: return 16 * 110;
    case kQ5K: return 16 * 176;
    case kQ6K: return 16 * 210;
    case kIq2Xs: return 16 * 74;
    case kIq3Xxs: return 16 * 98;
    default: return 16 * 136;
  }
}

__device__ __forceinline__ int64_t panelBytes(int type, int cols) {
  return static_cast<int64_t>(panelBytes256(type)) * cols / 256;
}

/// A packed matrix [slices, rows, cols]; mirrored by matrix-steps.ts.
struct Matrix {
  const uint8_t* data;
  int64_t sliceBytes;
  int type, rows, cols;
  int panelBytes;  // of one panel
};

__device__ __forceinline__ const uint8_t* panelOf(const Matrix& matrix, int slice, int panel) {
  return matrix.data + slice * matrix.sliceBytes + panel * panelBytes(matrix.type, matrix.cols);
}

/// Activations: float32 [rows, cols], and their int8 form (quantize.cu): quants [rows, stride], then a scale per 32
/// columns [rows, stride / 32], then sums per 16 columns in real units [rows, stride / 16]; stride = cols to 128.
struct Input {
  const float* x;
  const uint8_t* quantized;
  int rows, cols;

  __device__ __forceinline__ int stride() const { return (cols + 127) / 128 * 128; }
  __device__ __forceinline__ const uint8_t* quants(int row) const { return quantized + static_cast<int64_t>(row) * stride(); }
  __device__ __forceinline__ const float* scales(int row) const {
    return reinterpret_cast<const float*>(quantized + static_cast<int64_t>(rows) * stride()) +
           static_cast<int64_t>(row) * (stride() / 32);
  }
  __device__ __forceinline__ const float* sums(int row) const {
    return reinterpret_cast<const float*>(quantized + static_cast<int64_t>(rows) * stride()) +
           static_cast<int64_t>(rows) * (stride() / 32) + static_cast<int64_t>(row) * (stride() / 16);
  }
};

/// Which input rows a product reads: list[i] where there is a list, else first + i * step.
struct RowList {
  const int* list;
  int first, step, count;

  __device__ __forceinline__ int at(int i) const { return list != nullptr ? list[i] : first + i * step; }
};

struct Lane {
  int warp, lane, panel, quad, pair;
};

__device__ __forceinline__ Lane ownLane() {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  return {static_cast<int>(threadIdx.x) >> 5, lane, lane >> 4, lane >> 2 & 3, lane & 3};
}

/// silu(min(gate, limit)) * clamp(up): as the CPU's.
__device__ __forceinline__ float swiglu(float gate, float up, float limit) {
  const float g = gate < limit ? gate : limit;
  const float below = up < limit ? up : limit;
  const float u = below > -limit ? below : -limit;
  return g / (1.0f + expf(fminf(-g, 87.0f))) * u;
}

}  // namespace ds4::cuda
