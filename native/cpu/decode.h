// Panels to numbers in portable code: the definition of the packed layout, used for embedding rows, the rarer
// types, and wherever no instruction-set version exists.
#pragma once
#include <cstdint>

#include "cpu/matmul.h"
#include "cpu/packed_layout.h"

namespace ds4 {

struct ScaleMin {
  int scale, min;
};

/// Scale and min j (0..7) of the 12 packed bytes of Q4_K and Q5_K.
inline ScaleMin q4kScaleMin(const uint8_t* packed, int j) {
  if (j < 4) return {packed[j] & 63, packed[j + 4] & 63};
  return {(packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4, (packed[j + 4] >> 4) | (packed[j] >> 6) << 4};
}

/// Float weights of up to 256 columns of a panel.
struct FloatTile {
  alignas(64) float weights[kBlockCols][kPanelRows];
};

/// Integer weights of up to 256 columns of a panel: value = scale * (quant - offset) - min.
struct IntTile {
  alignas(64) uint8_t storage[kBlockCols / 4][kGroupBytes];
  const uint8_t* quants[8];  // per 32 columns: 8 groups of 64 bytes (in `storage`, or in the panel itself)
  alignas(64) float scales[8][kPanelRows];
  alignas(64) float mins[16][kPanelRows];
  int minCount;  // 0; 8: one per 32 columns; 16: one per 16 columns
  int offset;    // 0, 43 or 128
};

/// Columns [colBegin, colBegin + count) of a panel as floats, exact. colBegin is a multiple of 256.
void decodePanel(TensorType type, const uint8_t* panel, int64_t colBegin, int count, FloatTile& tile);

/// The same as integers, for the types with int8 input. count is a multiple of 32.
void decodePanelInt(TensorType type, const uint8_t* panel, int64_t colBegin, int count, IntTile& tile);

}  // namespace ds4
