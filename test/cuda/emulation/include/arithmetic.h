// Arithmetic under CUDA's names. What a GPU only approximates (__expf, __fdividef) is exact here.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

using std::isfinite;
using std::isinf;
using std::isnan;

inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float value) { return 1.0f / value; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float value) { return std::exp(value); }
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
inline int __popc(uint32_t bits) { return std::popcount(bits); }
inline int __ffs(int bits) { return bits == 0 ? 0 : std::countr_zero(static_cast<uint32_t>(bits)) + 1; }
inline int __clz(int bits) { return std::countl_zero(static_cast<uint32_t>(bits)); }

/// The upper word of (high, low) shifted left by the last five bits of `count`.
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t count) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<uint32_t>(both << (count & 31) >> 32);
}
