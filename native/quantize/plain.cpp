// The types without a search: floats, Q8_0 and MXFP4. Limited by memory, not by arithmetic.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "quantize/block_weights.h"
#include "quantize/quantize.h"

namespace ds4 {

void quantizeF32(const float* values, const float*, int64_t blocks, uint8_t* out) {
  std::memcpy(out, values, static_cast<size_t>(blocks) * sizeof(float));
}

void quantizeF16(const float* values, const float*, int64_t blocks, uint8_t* out) {
  for (int64_t i = 0; i < blocks; i++) {
    const uint16_t half = floatToHalf(values[i]);
    std::memcpy(out + 2 * i, &half, 2);
  }
}

void quantizeBf16(const float* values, const float*, int64_t blocks, uint8_t* out) {
  for (int64_t i = 0; i < blocks; i++) {
    const uint16_t bits = floatToBfloat(values[i]);
    std::memcpy(out + 2 * i, &bits, 2);
  }
}

void quantizeQ8_0(const float* values, const float*, int64_t blocks, uint8_t* out) {
  for (int64_t b = 0; b < blocks; b++, values += kSmallBlock) {
    BlockQ8_0 block;
    const float d = std::min(largestMagnitude(values, kSmallBlock) / 127.0f, kLargestHalf);
    // The reciprocal is taken before d is rounded to half, like every other writer of this format.
    const float inverse = d >= std::numeric_limits<float>::min() ? 1.0f / d : 0.0f;
    block.d = floatToHalf(d);
    for (int i = 0; i < kSmallBlock; i++) {
      const float q = std::min(std::floor(std::fabs(values[i] * inverse) + 0.5f), 127.0f);
      block.q[i] = static_cast<int8_t>(std::copysign(q, values[i]));
    }
    std::memcpy(out + b * sizeof(block), &block, sizeof(block));
  }
}

/// Nearest e2m1 code, ties to the even code, magnitudes above 6 saturate.
static uint8_t nearestE2m1(double value) {
  static constexpr double kMidpoints[7] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
  const double magnitude = std::fabs(value);
  uint8_t code = 0;
  for (int i = 0; i < 7; i++) code += (i & 1) ? magnitude >= kMidpoints[i] : magnitude > kMidpoints[i];
  return value < 0 && code > 0 ? code | 8 : code;
}

/// The scale with the least squared error among the two that hold the largest magnitude without much clipping.
static uint8_t bestExponent(const float* values) {
  const float largest = largestMagnitude(values, kSmallBlock);
  if (largest == 0) return 0;
  const int floor = std::ilogb(largest) - 2 + 127;  // the OCP rule: the largest binade maps to 4..6
  int best = 0;
  double bestError = std::numeric_limits<double>::infinity();
  for (int candidate = floor; candidate <= floor + 1; candidate++) {
    const int e = std::clamp(candidate, 0, 254);
    const double scale = std::ldexp(1.0, e - 127);
    double error = 0;
    for (int i = 0; i < kSmallBlock; i++) {
      const double off = values[i] - scale * kE2m1Values[nearestE2m1(values[i] / scale)];
      error += off * off;
    }
    if (error < bestError) {
      best = e;
      bestError = error;
    }
  }
  return static_cast<uint8_t>(best);
}

void quantizeMxfp4(const float* values, const float*, int64_t blocks, uint8_t* out) {
  for (int64_t b = 0; b < blocks; b++, values += kSmallBlock) {
    BlockMxfp4 block;
    block.e = bestExponent(values);
    const double inverse = std::ldexp(1.0, 127 - block.e);
    for (int j = 0; j < 16; j++) {
      block.q[j] = static_cast<uint8_t>(nearestE2m1(values[j] * inverse) | nearestE2m1(values[j + 16] * inverse) << 4);
    }
    std::memcpy(out + b * sizeof(block), &block, sizeof(block));
  }
}

}  // namespace ds4
