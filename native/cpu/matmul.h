// The product at the heart of the CPU backend: packed weights times prepared activations, for every tensor
// type. What lies behind this header (layouts, instruction sets) is nobody else's business.
//
// Layout rule, known to the planner: a slice [rows, cols] takes alignUp(rows, 16) * rowBytes(type, cols) bytes,
// the same bytes per weight as the file. Rows are interleaved in panels of 16 (see packed_layout.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/thread_pool.h"

namespace ds4 {

/// ggml type ids, as in the file.
enum class TensorType : int32_t {
  F32 = 0, F16 = 1, Q8_0 = 8, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14,
  IQ2_XXS = 16, IQ2_XS = 17, IQ3_XXS = 18, IQ4_XS = 23, I32 = 26, BF16 = 30, MXFP4 = 39,
};

/// A weight tensor [slices, rows, cols] in kernel layout. Does not own its memory (the arena does).
struct PackedMatrix {
  TensorType type;
  int64_t slices;  // experts; 1 for a plain matrix
  int64_t rows;    // outputs
  int64_t cols;    // inputs
  const uint8_t* data;
  size_t sliceBytes;
};

/// True when matrices of this type can be packed and multiplied here.
bool isPackable(TensorType type);

/// Bytes of one slice in kernel layout. `cols` must be a multiple of the type's block.
size_t packedSliceBytes(TensorType type, int64_t rows, int64_t cols);

/// Bytes of one row in file layout, 0 when the type is unknown or `cols` splits a block.
size_t fileRowBytes(TensorType type, int64_t cols);

/// Repacks rows [rowBegin, rowBegin + rowCount) of one slice from file layout. rowBegin is a multiple of 16,
/// rowCount too unless it reaches the last row (the panel is then filled up with zeros). `target` is the start of the slice.
void packRows(TensorType type, int64_t cols, int64_t rowBegin, int64_t rowCount,
              const uint8_t* source, uint8_t* target);

/// Decodes one row of a packed slice to float32 (embedding lookup, tests).
void unpackRow(const PackedMatrix& weight, int64_t slice, int64_t row, float* out);

/// True when products with this type read float32 activations (F32, F16, BF16, MXFP4 and the rarer types:
/// exact); false when they read int8 ones (Q8_0, Q2_K, Q4_K, IQ2_XXS).
bool usesFloatInput(TensorType type);

/// Activation rows, prepared once for all products that read them. Reuses its buffers.
class PreparedInput {
 public:
  /// `x` is row-major [rows, cols] with `stride` floats between rows; it must stay valid while float products
  /// run. `needInt8`: also quantize (in parallel on the pool); cols is then a multiple of 32.
  void prepare(const float* x, int64_t rows, int64_t cols, int64_t stride, bool needInt8, ThreadPool& pool);

  /// Bytes in use by the int8 form.
  /// Room for `values` int8 values, without anything prepared.
  void reserve(int64_t values);

  size_t bytes() const {
    const size_t words = scales.size() + sums16.size() + sums32.size() + offsets128.size() + offsets43.size();
    return quants.size() + 4 * words;
  }

  const float* x = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
  // int8 form, one scale per 32 columns (finer than ggml's 256 for K types: closer to float32 at no cost here).
  std::vector<int8_t> quants;       // [rows, cols]
  std::vector<float> scales;        // [rows, cols / 32]
  std::vector<float> sums16;        // [rows, cols / 16], in real units: for the mins of Q2_K
  std::vector<float> sums32;        // [rows, cols / 32], in real units: for the mins of Q4_K
  std::vector<int32_t> offsets128;  // [rows, cols / 32], -128 * sum of quants: undoes Q8_0's unsigned form
  std::vector<int32_t> offsets43;   // likewise for IQ2_XXS
};

/// out[i, 0 .. rowEnd-rowBegin) = weight.slice[rowBegin..rowEnd) * input.row(inputRows ? inputRows[i] : i)
struct MatmulJob {
  const PackedMatrix* weight;
  int64_t slice = 0;
  int64_t rowBegin = 0, rowEnd = 0;  // weight rows; multiples of 16 except rowEnd == rows
  const PreparedInput* input;
  const int32_t* inputRows = nullptr;  // gather list, length `count`
  int64_t count = 0;                   // activation rows
  float* out;                          // row i at out + i * outStride
  int64_t outStride = 0;
};

/// Runs all jobs in one parallel region, work split by panels over all of them: decode's many small expert
/// products cost one synchronisation. A row's results do not depend on the thread count, nor on which other rows are
/// computed with it: a conversation reads the same alone and beside others, however its prompt was cut.
void runMatmuls(const MatmulJob* jobs, size_t jobCount, ThreadPool& pool);

/// Name of the instruction-set level in use: "generic", "avx2", "avx512", "neon".
const char* kernelLevelName();

}  // namespace ds4
