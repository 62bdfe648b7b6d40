#include "cpu/rare_types.h"

#include "common/block-layouts.h"
#include "common/half.h"
#include "common/lattice-grids.h"
#include "common/load.h"

namespace ds4 {

namespace {

void decodeQ3K(const BlockQ3K& block, float* out) {
  const float d = halfToFloat(block.d);
  for (int j = 0; j < 16; j++) {
    const float scale = d * static_cast<float>(unpackScaleQ3K(block.scales, j) - 32);
    for (int i = 16 * j; i < 16 * j + 16; i++) {
      const int low = block.q[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3;
      const int high = block.high[i % 32] >> (i / 32) & 1;
      out[i] = scale * static_cast<float>(low - (high ? 0 : 4));
    }
  }
}

void decodeQ5K(const BlockQ5K& block, float* out) {
  const float d = halfToFloat(block.d), dmin = halfToFloat(block.dmin);
  for (int j = 0; j < 8; j++) {
    uint8_t scale, min;
    unpackScaleMin(block.scales, j, scale, min);
    const float subScale = d * static_cast<float>(scale), subMin = dmin * static_cast<float>(min);
    for (int i = 0; i < 32; i++) {
      const int q = (block.q[32 * (j / 2) + i] >> (4 * (j % 2)) & 15) | (block.high[i] >> j & 1) << 4;
      // In double: one rounding, with or without a fused multiply-add.
      out[32 * j + i] = static_cast<float>(static_cast<double>(subScale) * q - subMin);
    }
  }
}

void decodeQ6K(const BlockQ6K& block, float* out) {
  const float d = halfToFloat(block.d);
  for (int i = 0; i < kSuperBlock; i++) {
    const int half = i / 128, quarter = i / 32 % 4;
    const int low = block.low[64 * half + i % 64] >> (quarter < 2 ? 0 : 4) & 15;
    const int high = block.high[32 * half + i % 32] >> (2 * quarter) & 3;
    out[i] = d * static_cast<float>(block.scales[i / 16]) * static_cast<float>((low | high << 4) - 32);
  }
}

// Eight values of a lattice grid entry with their signs.
void placeLattice(float scale, const uint8_t* magnitudes, uint32_t signs, float* out) {
  for (int i = 0; i < 8; i++) {
    const float value = static_cast<float>(magnitudes[i]);
    out[i] = scale * (signs >> i & 1 ? -value : value);
  }
}

void decodeIq2Xs(const BlockIq2Xs& block, float* out) {
  const float d = halfToFloat(block.d);
  for (int group = 0; group < 32; group++) {
    const uint32_t word = block.gridAndSigns[group];
    const int s = block.scales[group / 4] >> (group & 2 ? 4 : 0) & 15;
    const float scale = d * (0.5f + static_cast<float>(s)) * 0.25f;
    uint8_t magnitudes[8];
    std::memcpy(magnitudes, &kIq2XsGrid[word & 511], 8);
    placeLattice(scale, magnitudes, signBits(word >> 9), out + 8 * group);
  }
}

void decodeIq3Xxs(const BlockIq3Xxs& block, float* out) {
  const float d = halfToFloat(block.d);
  for (int group = 0; group < 32; group++) {
    const uint32_t word = block.signsAndScale[group / 4];
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
    uint8_t magnitudes[8];
    std::memcpy(magnitudes, &kIq3XxsGrid[block.grid[2 * group]], 4);
    std::memcpy(magnitudes + 4, &kIq3XxsGrid[block.grid[2 * group + 1]], 4);
    placeLattice(scale, magnitudes, signBits(word >> (7 * (group % 4)) & 127), out + 8 * group);
  }
}

void decodeIq4Xs(const BlockIq4Xs& block, float* out) {
  const float d = halfToFloat(block.d);
  for (int part = 0; part < 8; part++) {
    const int low = block.scalesLow[part / 2] >> (4 * (part % 2)) & 15;
    const int high = block.scalesHigh >> (2 * part) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    for (int j = 0; j < 16; j++) {
      const uint8_t byte = block.q[16 * part + j];
      out[32 * part + j] = scale * static_cast<float>(kIq4Values[byte & 15]);
      out[32 * part + j + 16] = scale * static_cast<float>(kIq4Values[byte >> 4]);
    }
  }
}

}  // namespace

bool isRareType(TensorType type) {
  return type == TensorType::Q3_K || type == TensorType::Q5_K || type == TensorType::Q6_K ||
         type == TensorType::IQ2_XS || type == TensorType::IQ3_XXS || type == TensorType::IQ4_XS;
}

void decodeRareBlock(TensorType type, const uint8_t* block, float* out) {
  switch (type) {
    case TensorType::Q3_K: return decodeQ3K(loadAs<BlockQ3K>(block), out);
    case TensorType::Q5_K: return decodeQ5K(loadAs<BlockQ5K>(block), out);
    case TensorType::Q6_K: return decodeQ6K(loadAs<BlockQ6K>(block), out);
    case TensorType::IQ2_XS: return decodeIq2Xs(loadAs<BlockIq2Xs>(block), out);
    case TensorType::IQ3_XXS: return decodeIq3Xxs(loadAs<BlockIq3Xxs>(block), out);
    case TensorType::IQ4_XS: return decodeIq4Xs(loadAs<BlockIq4Xs>(block), out);
    default: return;
  }
}

}  // namespace ds4
