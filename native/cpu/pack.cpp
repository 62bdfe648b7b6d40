// File layout to panels and back. Bytes only move: every packed weight is the file's own bits in another place.
#include <algorithm>
#include <cstring>
#include <vector>

#include "common/half.h"
#include "common/load.h"
#include "cpu/decode.h"
#include "cpu/matmul.h"
#include "cpu/packed_layout.h"

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

void packQ80(const uint8_t* block, int row, uint8_t* panel) {
  std::memcpy(panel + 2 * row, block, 2);
  for (int i = 0; i < 32; i++) panel[q80_panel::kQuants + 64 * (i / 4) + 4 * row + i % 4] = block[2 + i] ^ 0x80;
}

void packMxfp4(const uint8_t* block, int row, uint8_t* panel) {
  panel[row] = block[0];
  for (int i = 0; i < 16; i++) panel[mxfp4_panel::kCodes + 16 * i + row] = block[1 + i];
}

// Column `col` of a Q2_K block as a 2-bit number.
int q2kQuant(const uint8_t* block, int col) {
  return block[16 + 32 * (col / 128) + col % 32] >> (2 * (col % 128 / 32)) & 3;
}

void packQ2K(const uint8_t* block, int row, uint8_t* panel) {
  std::memcpy(panel + 2 * row, block + 80, 2);
  std::memcpy(panel + 32 + 2 * row, block + 82, 2);
  for (int j = 0; j < 16; j++) {
    panel[q2k_panel::kScales + 32 * (j / 2) + 2 * row + j % 2] = block[j];
    for (int i = 0; i < 4; i++) {
      int byte = 0;
      for (int group = 0; group < 4; group++) byte |= q2kQuant(block, 16 * j + 4 * group + i) << (2 * group);
      panel[q2k_panel::kQuants + 64 * j + 4 * row + i] = static_cast<uint8_t>(byte);
    }
  }
}

int q4kQuant(const uint8_t* block, int col) { return block[16 + 32 * (col / 64) + col % 32] >> (4 * (col / 32 % 2)) & 15; }

void packQ4K(const uint8_t* block, int row, uint8_t* panel) {
  std::memcpy(panel + 2 * row, block, 2);
  std::memcpy(panel + 32 + 2 * row, block + 2, 2);
  uint32_t high = 0;
  for (int j = 0; j < 8; j++) {
    const ScaleMin sm = q4kScaleMin(block + 4, j);
    panel[q4k_panel::kLow + 16 * j + row] = static_cast<uint8_t>((sm.scale & 15) | (sm.min & 15) << 4);
    high |= static_cast<uint32_t>(sm.scale >> 4) << (2 * j) | static_cast<uint32_t>(sm.min >> 4) << (16 + 2 * j);
  }
  std::memcpy(panel + q4k_panel::kHigh + 4 * row, &high, 4);
  for (int pair = 0; pair < 32; pair++) {
    for (int i = 0; i < 4; i++) {
      const int low = q4kQuant(block, 8 * pair + i), top = q4kQuant(block, 8 * pair + 4 + i);
      panel[q4k_panel::kQuants + 64 * pair + 4 * row + i] = static_cast<uint8_t>(low | top << 4);
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

template <int Bytes>
void packPlain(const uint8_t* source, int row, int64_t cols, uint8_t* panel) {
  for (int64_t col = 0; col < cols; col++) std::memcpy(panel + (col * 16 + row) * Bytes, source + col * Bytes, Bytes);
}

bool isPlain(TensorType type) { return type == TensorType::F32 || type == TensorType::F16 || type == TensorType::BF16; }

void packRow(TensorType type, int64_t cols, const uint8_t* source, int row, uint8_t* panel) {
  const BlockShape shape = shapeOf(type);
  if (type == TensorType::F32) return packPlain<4>(source, row, cols, panel);
  if (isPlain(type)) return packPlain<2>(source, row, cols, panel);
  const int64_t blocks = cols / shape.cols;
  for (int64_t block = 0; block < blocks; block++) {
    const uint8_t* from = source + block * shape.bytes;
    uint8_t* to = panel + block * shape.bytes * 16;
    switch (type) {
      case TensorType::Q8_0: packQ80(from, row, to); break;
      case TensorType::MXFP4: packMxfp4(from, row, to); break;
      case TensorType::Q2_K: packQ2K(from, row, to); break;
      case TensorType::Q4_K: packQ4K(from, row, to); break;
      case TensorType::IQ2_XXS: packIq2xxs(from, row, to); break;
      default: return;  // refused by isPackable
    }
  }
}

}  // namespace

bool isPackable(TensorType type) {
  return isPlain(type) || type == TensorType::MXFP4 || !usesFloatInput(type);
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

void packRows(TensorType type, int64_t rows, int64_t cols, int64_t rowBegin, int64_t rowCount, const uint8_t* source,
              uint8_t* target) {
  const size_t bytes = fileRowBytes(type, cols);
  const int64_t padded = rowBegin + rowCount == rows ? (rowCount + kPanelRows - 1) / kPanelRows * kPanelRows : rowCount;
  const std::vector<uint8_t> zeros(padded > rowCount ? bytes : 0);
  for (int64_t i = 0; i < padded; i++) {
    const int64_t row = rowBegin + i;
    uint8_t* panel = target + static_cast<size_t>(row / kPanelRows) * kPanelRows * bytes;
    packRow(type, cols, i < rowCount ? source + i * bytes : zeros.data(), static_cast<int>(row % kPanelRows), panel);
  }
}

void unpackRow(const PackedMatrix& weight, int64_t slice, int64_t row, float* out) {
  const size_t bytes = fileRowBytes(weight.type, weight.cols);
  const uint8_t* panel = weight.data + slice * weight.sliceBytes + static_cast<size_t>(row / kPanelRows) * kPanelRows * bytes;
  FloatTile tile;
  for (int64_t col = 0; col < weight.cols; col += kBlockCols) {
    const int count = static_cast<int>(std::min<int64_t>(kBlockCols, weight.cols - col));
    decodePanel(weight.type, panel, weight.cols, col, count, tile);
    for (int i = 0; i < count; i++) out[col + i] = tile.weights[i][row % kPanelRows];
  }
}

}  // namespace ds4
