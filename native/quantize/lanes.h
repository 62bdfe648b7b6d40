// Sixteen blocks' worth of numbers side by side: the searches treat sixteen sub-blocks at once, lane by lane, so that
// nothing is ever summed across lanes and every instruction set gives the same bytes (compile with ISO floating
// point: no contraction to fused multiply-add).
#pragma once
#include <cstdint>
#include <cstring>

#define DS4_LANE_INLINE inline __attribute__((always_inline))

/// Compiles a function once per x86 level and picks one at load; elsewhere the plain build's vectors are used.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__)
#define DS4_LEVELS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DS4_LEVELS
#endif

namespace ds4 {

inline constexpr int kLanes = 16;

typedef float Lanes __attribute__((vector_size(64)));
typedef int32_t IntLanes __attribute__((vector_size(64)));

DS4_LANE_INLINE Lanes allLanes(float value) { return Lanes{} + value; }
DS4_LANE_INLINE Lanes minimum(Lanes a, Lanes b) { return a < b ? a : b; }
DS4_LANE_INLINE Lanes maximum(Lanes a, Lanes b) { return a > b ? a : b; }

/// Nearest whole number, ties to even, for |x| < 2^22: the sum has no room for a fraction.
DS4_LANE_INLINE Lanes nearest(Lanes x) { return (x + 12582912.0f) - 12582912.0f; }

DS4_LANE_INLINE Lanes clampLanes(Lanes x, float low, float high) {
  return minimum(maximum(x, allLanes(low)), allLanes(high));
}

/// a / b, and 0 where b is not positive.
DS4_LANE_INLINE Lanes safeRatio(Lanes a, Lanes b) {
  const Lanes zero{};
  return b > zero ? a / (b > zero ? b : allLanes(1.0f)) : zero;
}

}  // namespace ds4
