// Rows of a sequence's caches and values beside them as sums of halves. One part: float16. Two: 22 bits, and nothing below
// 2^-25 of it is kept.
#pragma once
#include "cuda/tensor_core.cuh"

namespace ds4::cuda {

/// What two floats have beyond `high`, their halves.
__device__ __forceinline__ uint32_t lowHalves(float a, float b, uint32_t high) {
  const __half2 taken = *reinterpret_cast<const __half2*>(&high);
  return packHalves(a - __low2float(taken), b - __high2float(taken));
}

/// Two floats as the halves of each part.
template <int PARTS>
__device__ __forceinline__ void splitPair(uint32_t (&parts)[PARTS], float a, float b) {
  parts[0] = packHalves(a, b);
  if constexpr (PARTS == 2) parts[1] = lowHalves(a, b, parts[0]);
}

/// Values i and i + 1 (i even) of a row: parts * dim halves, first those that hold the values, then with two parts what
/// they lack.
__device__ __forceinline__ void storeParts(__half* row, int dim, int parts, int i, float a, float b) {
  uint32_t split[2];
  splitPair(split, a, b);
  *reinterpret_cast<uint32_t*>(row + i) = split[0];
  if (parts == 2) *reinterpret_cast<uint32_t*>(row + dim + i) = split[1];
}

}  // namespace ds4::cuda
