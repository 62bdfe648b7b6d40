// Block quantizers: rows of floats to the bytes of a tensor type. Same results as src/blocks/ up to float rounding.
#pragma once
#include <cstdint>

namespace ds4 {

/// Encodes `blocks` consecutive blocks of one row. `importance`: one weight per value or null.
using QuantizeBlocks = void (*)(const float* values, const float* importance, int64_t blocks, uint8_t* out);

void quantizeQ8_0(const float* values, const float* importance, int64_t blocks, uint8_t* out);
void quantizeMxfp4(const float* values, const float* importance, int64_t blocks, uint8_t* out);
void quantizeF16(const float* values, const float* importance, int64_t blocks, uint8_t* out);
void quantizeBf16(const float* values, const float* importance, int64_t blocks, uint8_t* out);
void quantizeF32(const float* values, const float* importance, int64_t blocks, uint8_t* out);
void quantizeQ4K(const float* values, const float* importance, int64_t blocks, uint8_t* out);
void quantizeQ2K(const float* values, const float* importance, int64_t blocks, uint8_t* out);
void quantizeIq2Xxs(const float* values, const float* importance, int64_t blocks, uint8_t* out);

/// How to quantize to one type.
struct Quantizer {
  int32_t typeId;  // as in GGUF files
  int32_t blockValues;
  int32_t blockBytes;
  QuantizeBlocks run;
};

/// Null when the type cannot be written.
const Quantizer* findQuantizer(int32_t typeId);

/// Encodes [rows, cols] values; `cols` is a multiple of the block, `importance` [cols] or null, all finite. Rows are
/// spread over `threads` >= 1 threads, the caller being one, fewer where the system gives fewer.
void quantizeRows(const Quantizer& quantizer, const float* values, int64_t rows, int64_t cols,
                  const float* importance, uint8_t* out, int threads);

}  // namespace ds4
