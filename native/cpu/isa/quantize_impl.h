// Activations to int8, in plain loops that compilers vectorize for each instruction set. Included by ops_impl.h.
// Largest magnitudes are found on the bits, as whole numbers: a maximum of floats would not be reordered.
#pragma once
#include <bit>
#include <cstring>

#include "cpu/isa/op_set.h"

namespace ds4::DS4_LEVEL {

// NaN and infinity make the scale NaN or infinite: they reach the output instead of vanishing.
static void quantizeRow(const float* x, int64_t cols, const QuantizedRow& row) {
  constexpr int kSub = 32;
  constexpr int32_t kMagicBits = 0x4b400000;  // 1.5 * 2^23: a sum with it has the rounded number in its low bits
  const float magic = std::bit_cast<float>(kMagicBits);
  for (int64_t sub = 0; sub < cols / kSub; sub++) {
    int32_t bits[kSub];
    std::memcpy(bits, x + sub * kSub, sizeof(bits));
    int32_t largestBits = 0;
    for (int i = 0; i < kSub; i++) {
      const int32_t magnitude = bits[i] & 0x7fffffff;
      largestBits = magnitude > largestBits ? magnitude : largestBits;
    }
    const float largest = std::bit_cast<float>(largestBits);
    const float scale = largest / 127.0f;
    const float inverse = scale > 0 ? 127.0f / largest : 0;
    int8_t quants[kSub];
    for (int i = 0; i < kSub; i++) {
      quants[i] = static_cast<int8_t>(std::bit_cast<int32_t>(x[sub * kSub + i] * inverse + magic) - kMagicBits);
    }
    int32_t first = 0, last = 0;
    for (int i = 0; i < 16; i++) first += quants[i];
    for (int i = 16; i < kSub; i++) last += quants[i];
    std::memcpy(row.quants + sub * kSub, quants, kSub);
    row.scales[sub] = scale;
    row.sums16[2 * sub] = scale * static_cast<float>(first);
    row.sums16[2 * sub + 1] = scale * static_cast<float>(last);
    row.sums32[sub] = scale * static_cast<float>(first + last);
    row.offsets128[sub] = -128 * (first + last);
    row.offsets43[sub] = -43 * (first + last);
  }
}

}  // namespace ds4::DS4_LEVEL
