// Inputs of the kernels that decode one token: int8 forms made where a value is made, and their way to shared memory.
#pragma once
#include "cuda/matrix.cuh"

namespace ds4::cuda {

constexpr int kStreamWarps = 8;
constexpr int kStreamThreads = 32 * kStreamWarps;
/// Blocks that a multiprocessor's registers must hold: two where its shared memory has room for two.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000)
constexpr int kStreamBlocks = 2;
#else
constexpr int kStreamBlocks = 1;
#endif

/// Input rows of one length in shared memory, padded with zeros to 128 columns: int8 form as of quantize.cu, and float32.
struct StagedRows {
  uint8_t* quants;
  float *scales, *sums, *values;
  int stride;
};

/// Bytes of the int8 form of rows of `stride` columns in all.
__device__ __forceinline__ int quantizedBytes(int stride) { return stride + stride / 8 + stride / 4; }

__device__ __forceinline__ int strideOf(int cols) { return (cols + 127) / 128 * 128; }

/// Views of `room`: the int8 forms, and behind them (where `quantized`) the float32 values.
__device__ __forceinline__ StagedRows stagedRows(uint8_t* room, int rows, int cols, bool quantized) {
  const int stride = strideOf(cols);
  float* scales = reinterpret_cast<float*>(room + rows * stride);
  float* sums = scales + rows * (stride / 32);
  float* values = quantized ? sums + rows * (stride / 16) : reinterpret_cast<float*>(room);
  return {room, scales, sums, values, stride};
}

/// Writes the int8 form of four columns of a lane, from column `at` on; a warp has 128.
__device__ __forceinline__ void quantizeFour(const float4& values, const StagedRows& rows, int at, int lane) {
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
  *reinterpret_cast<uint32_t*>(rows.quants + at) = packed;
  if (lane % 4 == 0) rows.sums[at / 16] = scale * static_cast<float>(sum);
  if (lane % 8 == 0) rows.scales[at / 32] = scale;
}

/// Where a value's int8 form goes: a row of `stride` columns as of quantize.cu.
struct QuantizedRow {
  uint8_t* base;
  int stride;
};

/// Writes the int8 form of 32 columns from `firstCol` (a multiple of 32) on, by one warp: lane l has column l. The same
/// numbers as quantize_rows.
__device__ __forceinline__ void storeQuantized(float value, const QuantizedRow& row, int firstCol) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const float largest = __int_as_float(static_cast<int>(__reduce_max_sync(
      0xffffffffu, static_cast<unsigned int>(__float_as_int(value) & 0x7fffffff))));
  const float scale = __fdiv_rn(largest, 127.0f);
  const float inverse = scale > 0 ? __fdiv_rn(127.0f, largest) : 0;
  constexpr int kMagicBits = 0x4b400000;
  const int quant = __float_as_int(__fmaf_rn(value, inverse, __int_as_float(kMagicBits))) - kMagicBits;
  const int8_t narrow = static_cast<int8_t>(quant);
  int sum = narrow;
#pragma unroll
  for (int step = 1; step < 16; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  row.base[firstCol + lane] = static_cast<uint8_t>(narrow);
  float* scales = reinterpret_cast<float*>(row.base + row.stride);
  float* sums = scales + row.stride / 32;
  if (lane % 16 == 0) sums[firstCol / 16 + lane / 16] = scale * static_cast<float>(sum);
  if (lane == 0) scales[firstCol / 32] = scale;
}

/// Copies `bytes` (a multiple of 16) that an earlier kernel wrote to shared memory, by threads 0 .. count - 1. A barrier must follow.
static __device__ __noinline__ void stageBytes(const uint8_t* from, uint8_t* to, int bytes, int thread, int count) {
  constexpr int kAhead = 4;
#pragma unroll 1
  for (int first = 16 * thread; first < bytes; first += kAhead * 16 * count) {
    uint4 some[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; i++) {
      const int at = first + i * 16 * count;
      some[i] = at < bytes ? __ldcg(reinterpret_cast<const uint4*>(from + at)) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kAhead; i++) {
      const int at = first + i * 16 * count;
      if (at < bytes) *reinterpret_cast<uint4*>(to + at) = some[i];
    }
  }
}

/// The same by the whole block.
__device__ __forceinline__ void stageBytes(const uint8_t* from, uint8_t* to, int bytes) {
  stageBytes(from, to, bytes, static_cast<int>(threadIdx.x), kStreamThreads);
}

/// Fills staged rows in `room`, one of them, from x [cols]: in int8 form or as float32. A barrier must follow.
static __device__ __noinline__ void stageRow(const float* x, int cols, uint8_t* room, bool quants) {
  const StagedRows rows = stagedRows(room, 1, cols, quants);
  constexpr int kAhead = 2;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int pieces = rows.stride / 128;
#pragma unroll 1
  for (int first = warp; first < pieces; first += kAhead * kStreamWarps) {
    float4 four[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; i++) {
      const int col = (first + i * kStreamWarps) * 128 + 4 * lane;
      four[i] = make_float4(0, 0, 0, 0);
      if (col < cols) four[i] = __ldcg(reinterpret_cast<const float4*>(x + col));
    }
#pragma unroll
    for (int i = 0; i < kAhead; i++) {
      const int piece = first + i * kStreamWarps, col = piece * 128 + 4 * lane;
      if (piece < pieces && quants) quantizeFour(four[i], rows, col, lane);
      if (piece < pieces && !quants) *reinterpret_cast<float4*>(rows.values + col) = four[i];
    }
  }
}

}  // namespace ds4::cuda
