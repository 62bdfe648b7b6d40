// One value at a time of the tensor types without kernels of their own (file blocks, see common/block-layouts.h), and of the
// float types. Slow and simple: these types are rare, and exact results are all that is asked.
#pragma once
#include "common/lattice-digits.h"
#include "cuda/lattice-tables.cuh"
#include "cuda/matrix.cuh"

namespace ds4::cuda {

struct RareTables {
  uint16_t iq2xs[512];  // two bits per value
  uint32_t iq3xxs[256];
  int8_t iq4[16];
};

constexpr RareTables makeRareTables() {
  constexpr uint8_t eight[8] = {4, 12, 20, 28, 36, 44, 52, 62};
  constexpr int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  RareTables tables{};
  for (int entry = 0; entry < 512; entry++) {
    for (int j = 0; j < 8; j++) {
      tables.iq2xs[entry] = static_cast<uint16_t>(tables.iq2xs[entry] | (kIq2XsDigits[8 * entry + j] - '0') << (2 * j));
    }
  }
  for (int entry = 0; entry < 256; entry++) {
    for (int j = 0; j < 4; j++) {
      tables.iq3xxs[entry] |= static_cast<uint32_t>(eight[kIq3XxsDigits[4 * entry + j] - '0']) << (8 * j);
    }
  }
  for (int i = 0; i < 16; i++) tables.iq4[i] = iq4[i];
  return tables;
}

__device__ const RareTables kRareTables = makeRareTables();

__device__ __forceinline__ uint32_t halfWord(const uint8_t* from) { return from[0] | from[1] << 8; }

__device__ __forceinline__ float signedLattice(float scale, float magnitude, uint32_t index, int i) {
  const uint32_t minus = (i < 7 ? index >> i : static_cast<uint32_t>(__popc(index))) & 1;
  return scale * (minus ? -magnitude : magnitude);
}

__device__ inline float valueQ3K(const uint8_t* block, int i) {
  const int j = i / 16;
  const int low4 = j < 8 ? block[96 + j] & 15 : block[96 + j - 8] >> 4;
  const int scale = low4 | (block[96 + 8 + j % 4] >> (2 * (j / 4)) & 3) << 4;
  const int low = block[32 + 32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3;
  const int high = block[i % 32] >> (i / 32) & 1;
  return halfBits(halfWord(block + 108)) * static_cast<float>(scale - 32) * static_cast<float>(low - (high ? 0 : 4));
}

__device__ inline float valueQ5K(const uint8_t* block, int i) {
  const int j = i / 32;
  const uint8_t* p = block + 4;
  const int scale = j < 4 ? p[j] & 63 : (p[j + 4] & 15) | (p[j - 4] >> 6) << 4;
  const int min = j < 4 ? p[j + 4] & 63 : p[j + 4] >> 4 | (p[j] >> 6) << 4;
  const int q = (block[48 + 32 * (j / 2) + i % 32] >> (4 * (j % 2)) & 15) | (block[16 + i % 32] >> j & 1) << 4;
  const float subScale = halfBits(halfWord(block)) * static_cast<float>(scale);
  return fmaf(subScale, static_cast<float>(q), -(halfBits(halfWord(block + 2)) * static_cast<float>(min)));
}

__device__ inline float valueQ6K(const uint8_t* block, int i) {
  const int half = i / 128, quarter = i / 32 % 4;
  const int low = block[64 * half + i % 64] >> (quarter < 2 ? 0 : 4) & 15;
  const int high = block[128 + 32 * half + i % 32] >> (2 * quarter) & 3;
  const float scale = halfBits(halfWord(block + 208)) * static_cast<float>(static_cast<int8_t>(block[192 + i / 16]));
  return scale * static_cast<float>((low | high << 4) - 32);
}

__device__ inline float valueIq2Xs(const uint8_t* block, int i) {
  const uint32_t word = halfWord(block + 2 + 2 * (i / 8));
  const int s = block[66 + i / 32] >> (i / 8 & 2 ? 4 : 0) & 15;
  const uint32_t digit = kRareTables.iq2xs[word & 511] >> (2 * (i % 8)) & 3;
  const float magnitude = digit == 0 ? 8.0f : digit == 1 ? 25.0f : 43.0f;
  return signedLattice(halfBits(halfWord(block)) * (0.5f + static_cast<float>(s)) * 0.25f, magnitude, word >> 9, i % 8);
}

__device__ inline float valueIq3Xxs(const uint8_t* block, int i) {
  const uint8_t* at = block + 66 + 4 * (i / 32);
  const uint32_t word = halfWord(at) | halfWord(at + 2) << 16;
  const float scale = halfBits(halfWord(block)) * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
  const float magnitude = static_cast<float>(kRareTables.iq3xxs[block[2 + i / 4]] >> (8 * (i % 4)) & 255);
  return signedLattice(scale, magnitude, word >> (7 * (i / 8 % 4)) & 127, i % 8);
}

__device__ inline float valueIq4Xs(const uint8_t* block, int i) {
  const int part = i / 32;
  const int low = block[4 + part / 2] >> (4 * (part % 2)) & 15;
  const int high = halfWord(block + 2) >> (2 * part) & 3;
  const int code = block[8 + 16 * part + i % 16] >> (i % 32 < 16 ? 0 : 4) & 15;
  return halfBits(halfWord(block)) * static_cast<float>((low | high << 4) - 32) * static_cast<float>(kRareTables.iq4[code]);
}

/// 2^(e - 127); 255 is NaN.
__device__ __forceinline__ float e8m0(uint32_t e) {
  return __uint_as_float(e == 0 ? 0x00400000u : e == 255 ? 0x7fc00000u : e << 23);
}

/// Twice an e2m1 code's value.
__device__ __forceinline__ float e2m1Twice(uint32_t code) {
  // Bytes 0 1 2 3 4 6 8 12 by the low three bits.
  const uint32_t magnitude = pickBytes(0x03020100u, 0x0c080604u, code & 7) & 255;
  const float value = static_cast<float>(magnitude);
  return code & 8 ? -value : value;
}

/// The value at (row 0..15, col) of a panel, for every type with float input.
__device__ inline float floatWeight(int type, const uint8_t* panel, int row, int col) {
  const int64_t at = static_cast<int64_t>(col) * 16 + row;
  switch (type) {
    case kF32: return loadConstant<float>(panel + 4 * at);
    case kF16: return halfBits(loadConstant<uint16_t>(panel + 2 * at));
    case kBf16: return __uint_as_float(static_cast<uint32_t>(loadConstant<uint16_t>(panel + 2 * at)) << 16);
    case kMxfp4: {
      const uint8_t* block = panel + col / 32 * mxfp4_panel::kBytes;
      const uint32_t code = block[mxfp4_panel::kCodes + 16 * (col % 16) + row] >> (col % 32 < 16 ? 0 : 4) & 15;
      return e2m1Twice(code) * 0.5f * e8m0(block[row]);
    }
    default: break;
  }
  const int bytes = panelBytes256(type) / 16;
  const uint8_t* block = panel + static_cast<int64_t>(col / 256) * 16 * bytes + row * bytes;
  const int i = col % 256;
  switch (type) {
    case kQ3K: return valueQ3K(block, i);
    case kQ5K: return valueQ5K(block, i);
    case kQ6K: return valueQ6K(block, i);
    case kIq2Xs: return valueIq2Xs(block, i);
    case kIq3Xxs: return valueIq3Xxs(block, i);
    default: return valueIq4Xs(block, i);
  }
}

/// The value at (row, col) of a panel of the int8 types.
__device__ inline float intWeight(int type, const uint8_t* panel, int row, int col) {
  const int in32 = col % 32, sub = col % 256 / 32;
  if (type == kQ80) {
    const uint8_t* block = panel + static_cast<int64_t>(col / 32) * q80_panel::kBytes;
    const int q = block[q80_panel::kQuants + kGroupBytes * (in32 / 4) + 4 * row + in32 % 4] - 128;
    return halfBits(halfWord(block + 2 * row)) * static_cast<float>(q);
  }
  const uint8_t* block = panel + static_cast<int64_t>(col / 256) * panelBytes256(type);
  const float d = halfBits(halfWord(block + 2 * row)), dmin = halfBits(halfWord(block + 32 + 2 * row));
  if (type == kQ2K) {
    const int j = col % 256 / 16, fields = block[q2k_panel::kQuants + 64 * j + 4 * row + col % 4];
    const int packed = block[q2k_panel::kScales + 32 * (j / 2) + 2 * row + j % 2];
    const int q = (fields >> (2 * (col % 16 / 4)) & 3) * (packed & 15);
    return fmaf(d, static_cast<float>(q), -(dmin * static_cast<float>(packed >> 4)));
  }
  if (type == kQ4K) {
    const uint32_t low = block[q4k_panel::kLow + 16 * sub + row];
    const uint32_t high = loadConstant<uint32_t>(block + q4k_panel::kHigh + 4 * row);
    const float scale = d * static_cast<float>((low & 15) | (high >> (2 * sub) & 3) << 4);
    const float min = dmin * static_cast<float>(low >> 4 | (high >> (16 + 2 * sub) & 3) << 4);
    const int q = block[q4k_panel::kQuants + 64 * (col % 256 / 8) + 4 * row + col % 4] >> (col % 8 < 4 ? 0 : 4) & 15;
    return fmaf(scale, static_cast<float>(q), -min);
  }
  const uint8_t* from = block + iq2xxs_panel::kSubs + iq2xxs_panel::kSubBytes * sub;
  const uint32_t word = loadConstant<uint32_t>(from + 64 + 4 * row);
  const uint32_t index = word >> (7 * (in32 / 8)) & 127;
  const uint32_t digit = kLatticeTables.grid[from[4 * row + in32 / 8]] >> (4 * (in32 % 8)) & 3;
  const float magnitude = digit == 0 ? 8.0f : digit == 1 ? 25.0f : 43.0f;
  return signedLattice(d * 0.125f * static_cast<float>(word >> 27 | 1), magnitude, index, in32 % 8);
}

}  // namespace ds4::cuda
