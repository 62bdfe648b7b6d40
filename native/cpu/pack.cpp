// File layout to panels and back. Bytes only move: every packed weight is the file's own bits in another place.
#include <algorithm>
#include <cstring>
#include <vector>

#include "common/half.h"
#include "common/load.h"
#include "cpu/decode.h"
#include "cpu/matmul.h"
#include "cpu/packed_layout.h"
#include "cpu/rare_types.h"

namespace ds4 {

namespace {

struct BlockShape {
  int cols;
  int bytes;
};

BlockShape shapeOf(TensorType type) {
  switch (type) {
    case TensorType::F32: case TensorType::I32: return {1, 4};
    case TensorType::F16: case TensorType::BF16: return {1, 2};
    case TensorType::Q8_0: return {32, 34};
    case TensorType::MXFP4: return {32, 17};
    case TensorType::Q2_K: return {256, 84};
    case TensorType::Q3_K: return {256, 110};
    case TensorType::Q4_K: return {256, 144};
    case TensorType::Q5_K: return {256, 176};
    case TensorType::Q6_K: return {256, 210};
    case TensorType::IQ2_XXS: return {256, 66};
    case TensorType::IQ2_XS: return {256, 74};
    case TensorType::IQ3_XXS: return {256, 98};
    case TensorType::IQ4_XS: return {256, 136};
  }
  return {0, 0};
}

uint32_t word(const uint8_t* from) { return loadAs<uint32_t>(from); }

void putWord(uint8_t* to, uint32_t value) { std::memcpy(to, &value, 4); }

void packQ80(const uint8_t* block, int row, uint8_t* panel) {
  std::memcpy(panel + 2 * row, block, 2);
  uint8_t* target = panel + q80_panel::kQuants + 4 * row;
  for (int group = 0; group < 8; group++) putWord(target + 64 * group, word(block + 2 + 4 * group) ^ 0x80808080u);
}

void packMxfp4(const uint8_t* block, int row, uint8_t* panel) {
  panel[row] = block[0];
  for (int i = 0; i < 16; i++) panel[mxfp4_panel::kCodes + 16 * i + row] = block[1 + i];
}

// In the file a byte's four 2-bit fields are 32 columns apart, here 4. Sixteen bytes of the file hold the columns of
// four sub-blocks; four columns at a time are one word.
void packQ2K(const uint8_t* block, int row, uint8_t* panel) {
  std::memcpy(panel + 2 * row, block + 80, 2);
  std::memcpy(panel + 32 + 2 * row, block + 82, 2);
  for (int pair = 0; pair < 8; pair++) std::memcpy(panel + q2k_panel::kScales + 32 * pair + 2 * row, block + 2 * pair, 2);
  constexpr uint32_t kField = 0x03030303;
  for (int part = 0; part < 4; part++) {
    const uint8_t* from = block + 16 + 16 * part;
    const uint32_t a = word(from), b = word(from + 4), c = word(from + 8), d = word(from + 12);
    for (int field = 0; field < 4; field++) {
      const int shift = 2 * field, sub = 8 * (part / 2) + 2 * field + part % 2;
      const uint32_t packed = (a >> shift & kField) | (b >> shift & kField) << 2 | (c >> shift & kField) << 4 |
                              (d >> shift & kField) << 6;
      putWord(panel + q2k_panel::kQuants + 64 * sub + 4 * row, packed);
    }
  }
}

// In the file a byte's nibbles are 32 columns apart, here 4.
void packQ4K(const uint8_t* block, int row, uint8_t* panel) {
  std::memcpy(panel + 2 * row, block, 2);
  std::memcpy(panel + 32 + 2 * row, block + 2, 2);
  uint32_t high = 0;
  for (int j = 0; j < 8; j++) {
    const ScaleMin sm = q4kScaleMin(block + 4, j);
    panel[q4k_panel::kLow + 16 * j + row] = static_cast<uint8_t>((sm.scale & 15) | (sm.min & 15) << 4);
    high |= static_cast<uint32_t>(sm.scale >> 4) << (2 * j) | static_cast<uint32_t>(sm.min >> 4) << (16 + 2 * j);
  }
  putWord(panel + q4k_panel::kHigh + 4 * row, high);
  constexpr uint32_t kLow = 0x0f0f0f0f, kTop = 0xf0f0f0f0;
  for (int chunk = 0; chunk < 4; chunk++) {
    for (int eight = 0; eight < 4; eight++) {
      const uint8_t* from = block + 16 + 32 * chunk + 8 * eight;
      const uint32_t even = word(from), odd = word(from + 4);
      uint8_t* target = panel + q4k_panel::kQuants + 64 * (8 * chunk + eight) + 4 * row;
      putWord(target, (even & kLow) | (odd & kLow) << 4);
      putWord(target + 4 * 64, (even & kTop) >> 4 | (odd & kTop));
    }
  }
}

void packIq2xxs(const uint8_t* block, int row, uint8_t* panel) {
  std::memcpy(panel + 2 * row, block, 2);
  for (int sub = 0; sub < 8; sub++) {
    uint8_t* target = panel + iq2xxs_panel::kSubs + iq2xxs_panel::kSubBytes * sub + 4 * row;
    std::memcpy(target, block + 2 + 8 * sub, 4);
    std::memcpy(target + 64, block + 6 + 8 * sub, 4);
  }
}

// Columns [begin, end) of a row.
template <int Bytes>
void packPlain(const uint8_t* source, int row, int64_t begin, int64_t end, uint8_t* panel) {
  for (int64_t col = begin; col < end; col++) std::memcpy(panel + (col * 16 + row) * Bytes, source + col * Bytes, Bytes);
}

bool isPlain(TensorType type) { return type == TensorType::F32 || type == TensorType::F16 || type == TensorType::BF16; }

void packBlock(TensorType type, const uint8_t* block, int row, uint8_t* panel) {
  switch (type) {
    case TensorType::Q8_0: return packQ80(block, row, panel);
    case TensorType::MXFP4: return packMxfp4(block, row, panel);
    case TensorType::Q2_K: return packQ2K(block, row, panel);
    case TensorType::Q4_K: return packQ4K(block, row, panel);
    case TensorType::IQ2_XXS: return packIq2xxs(block, row, panel);
    default: {  // rare types keep the file's blocks; others are refused by isPackable
      const int bytes = shapeOf(type).bytes;
      std::memcpy(panel + row * bytes, block, bytes);
    }
  }
}

// All 16 rows of one block before the next: what is written stays in the first-level cache until it is complete.
void packPanel(TensorType type, int64_t cols, const uint8_t* const (&rows)[kPanelRows], uint8_t* panel) {
  if (isPlain(type)) {
    constexpr int64_t kCols = 128;
    for (int64_t col = 0; col < cols; col += kCols) {
      const int64_t end = std::min(cols, col + kCols);
      for (int row = 0; row < kPanelRows; row++) {
        if (type == TensorType::F32) packPlain<4>(rows[row], row, col, end, panel);
        else packPlain<2>(rows[row], row, col, end, panel);
      }
    }
    return;
  }
  const BlockShape shape = shapeOf(type);
  for (int64_t block = 0; block < cols / shape.cols; block++) {
    for (int row = 0; row < kPanelRows; row++) {
      packBlock(type, rows[row] + block * shape.bytes, row, panel + block * shape.bytes * kPanelRows);
    }
  }
}

}  // namespace

bool isPackable(TensorType type) {
  return isPlain(type) || type == TensorType::MXFP4 || !usesFloatInput(type) || isRareType(type);
}

bool usesFloatInput(TensorType type) {
  return !(type == TensorType::Q8_0 || type == TensorType::Q2_K || type == TensorType::Q4_K || type == TensorType::IQ2_XXS);
}

size_t fileRowBytes(TensorType type, int64_t cols) {
  const BlockShape shape = shapeOf(type);
  if (shape.cols == 0 || cols <= 0 || cols % shape.cols != 0) return 0;
  return static_cast<size_t>(cols / shape.cols) * shape.bytes;
}

size_t packedSliceBytes(TensorType type, int64_t rows, int64_t cols) {
  return static_cast<size_t>((rows + kPanelRows - 1) / kPanelRows) * kPanelRows * fileRowBytes(type, cols);
}

void packRows(TensorType type, int64_t cols, int64_t rowBegin, int64_t rowCount, const uint8_t* source,
              uint8_t* target) {
  const size_t bytes = fileRowBytes(type, cols);
  const std::vector<uint8_t> zeros(rowCount % kPanelRows != 0 ? bytes : 0);  // the last panel's missing rows
  for (int64_t first = 0; first < rowCount; first += kPanelRows) {
    const uint8_t* panelRows[kPanelRows];
    for (int64_t i = 0; i < kPanelRows; i++) {
      panelRows[i] = first + i < rowCount ? source + (first + i) * bytes : zeros.data();
    }
    packPanel(type, cols, panelRows, target + static_cast<size_t>(rowBegin + first) * bytes);
  }
}

void unpackRow(const PackedMatrix& weight, int64_t slice, int64_t row, float* out) {
  const size_t bytes = fileRowBytes(weight.type, weight.cols);
  const uint8_t* panel = weight.data + slice * weight.sliceBytes + static_cast<size_t>(row / kPanelRows) * kPanelRows * bytes;
  FloatTile tile;
  for (int64_t col = 0; col < weight.cols; col += kBlockCols) {
    const int count = static_cast<int>(std::min<int64_t>(kBlockCols, weight.cols - col));
    decodePanel(weight.type, panel, col, count, tile);
    for (int i = 0; i < count; i++) out[col + i] = tile.weights[i][row % kPanelRows];
  }
}

}  // namespace ds4
