// Floats as numbers that compare alike.
#pragma once
#include <cstdint>

namespace ds4::cuda {

/// A number for each float, in their order; -0 below 0. NaN is not expected.
__device__ __forceinline__ uint32_t orderOf(float value) {
  const uint32_t bits = __float_as_uint(value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

}  // namespace ds4::cuda
