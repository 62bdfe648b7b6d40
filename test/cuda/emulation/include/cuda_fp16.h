// Halves, as far as the kernels use them.
#pragma once
#include <cuda_runtime.h>

#include "common/half.h"

struct __half {
  uint16_t bits;
};

struct alignas(4) __half2 {
  __half x, y;
};

inline float __half2float(__half value) { return ds4::halfToFloat(value.bits); }
inline __half __float2half_rn(float value) { return {ds4::floatToHalf(value)}; }
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline __half2 __floats2half2_rn(float low, float high) { return {__float2half_rn(low), __float2half_rn(high)}; }
inline float __low2float(__half2 both) { return __half2float(both.x); }
inline float __high2float(__half2 both) { return __half2float(both.y); }
