// What every search needs of one 256-value block before it starts: its magnitude and the weight of each value's error.
#pragma once
#include <algorithm>
#include <cmath>

#include "common/block-layouts.h"
#include "common/half.h"

namespace ds4 {

/// Below this magnitude a block is stored as zeros: no half scale reaches it.
inline constexpr float kSmallestMagnitude = 1e-12f;
inline constexpr float kLargestHalf = 65504.0f;

inline float largestMagnitude(const float* x, int count) {
  float largest = 0;
  for (int i = 0; i < count; i++) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

/// Nearest half within the finite range.
inline uint16_t finiteHalf(float value) { return floatToHalf(std::clamp(value, -kLargestHalf, kLargestHalf)); }

/// weights[i] = importance[i] · √(σ² + x[i]²) for the normalised `x` of a 256-value block; σ² is `spread` times its
/// mean square. Importance is taken relative to the block's mean and floored at 1e-4 of it, so that an input column
/// that was never active still decides ties; null or all zero: 1.
inline void blockWeights(const float* x, const float* importance, float spread, float* weights) {
  float squares = 0, sum = 0;
  for (int i = 0; i < kSuperBlock; i++) squares += x[i] * x[i];
  if (importance != nullptr) {
    const float largest = largestMagnitude(importance, kSuperBlock);
    const float inverse = largest > 1e-30f ? 1.0f / largest : 0.0f;
    for (int i = 0; i < kSuperBlock; i++) sum += weights[i] = importance[i] * inverse;
  }
  const float inverseMean = sum > 0 ? kSuperBlock / sum : 0.0f;
  const float variance = spread * squares / kSuperBlock;
  for (int i = 0; i < kSuperBlock; i++) {
    const float relative = sum > 0 ? std::max(weights[i] * inverseMean, 1e-4f) : 1.0f;
    weights[i] = relative * std::sqrt(variance + x[i] * x[i]);
  }
}

}  // namespace ds4
