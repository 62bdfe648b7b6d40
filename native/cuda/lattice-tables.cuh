// IQ2_XXS in nibbles: a grid entry is eight digits (0, 1, 2 for 8, 25, 43) and a sign index eight flags (bit 2 of the
// nibble), so that "digits | flags" picks signed values out of one eight-byte table, four per instruction. Both tables lie in
// shared memory, once per bank: lanes look up different entries without conflicts.
#pragma once
#include "common/lattice-digits.h"
#include "cuda/intrinsics.cuh"

namespace ds4::cuda {

struct LatticeTables {
  uint32_t grid[256 + 128];  // 256 entries of the grid, then 128 of signs
};

constexpr LatticeTables makeLatticeTables() {
  LatticeTables tables{};
  for (int entry = 0; entry < 256; entry++) {
    for (int j = 0; j < 8; j++) {
      tables.grid[entry] |= static_cast<uint32_t>(kIq2XxsDigits[8 * entry + j] - '0') << (4 * j);
    }
  }
  for (int index = 0; index < 128; index++) {
    int minuses = 0;
    for (int j = 0; j < 7; j++) {
      minuses += index >> j & 1;
      tables.grid[256 + index] |= static_cast<uint32_t>(index >> j & 1) << (4 * j + 2);
    }
    tables.grid[256 + index] |= static_cast<uint32_t>(minuses & 1) << 30;
  }
  return tables;
}

__device__ const LatticeTables kLatticeTables = makeLatticeTables();

/// 8, 25, 43, 0, -8, -25, -43, 0 as bytes.
constexpr uint32_t kLatticePlus = 0x002b1908, kLatticeMinus = 0x00d5e7f8;

/// Views of the tables in shared memory, each word `Copies` times side by side.
template <int Copies>
struct SharedLattice {
  static constexpr int kBytes = Copies * (256 + 128) * 4;
  const uint8_t* tables;
  uint32_t own;  // offset of this lane in a row

  /// Fills `shared` by the whole block, of whole warps; a barrier must follow.
  static __device__ __forceinline__ void fill(uint8_t* shared) {
    uint32_t* to = reinterpret_cast<uint32_t*>(shared);
    const int lane = static_cast<int>(threadIdx.x) & 31, warps = static_cast<int>(blockDim.x) / 32;
    const uint32_t* from = kLatticeTables.grid;  // the signs follow
#pragma unroll 1
    for (int first = static_cast<int>(threadIdx.x) / 32 * 32; first < 384; first += 32 * warps) {
      const uint32_t own = from[first + lane];
#pragma unroll 4
      for (int i = 0; i < 32; i++) {
        const uint32_t word = __shfl_sync(0xffffffffu, own, i);
        if (lane < Copies) to[(first + i) * Copies + lane] = word;
      }
    }
  }
  __device__ __forceinline__ explicit SharedLattice(const uint8_t* shared)
      : tables(shared), own(opaque((threadIdx.x & (Copies - 1)) * 4)) {}
  /// Of the 8-bit grid index `pair` of four in a word and the 7-bit sign index `pair` of four. Rotating brings an index to
  /// where it is the offset of its row already.
  __device__ __forceinline__ uint32_t selectorAt(uint32_t grids, uint32_t signs, int pair) const {
    constexpr int kShift = Copies == 32 ? 7 : Copies == 16 ? 6 : Copies == 8 ? 5 : 4;
    static_assert(Copies << 2 == 1 << kShift, "a row of the tables is a power of two");
    const uint32_t grid = (__funnelshift_l(grids, grids, (kShift - 8 * pair) & 31) & 255u << kShift) | own;
    const uint32_t sign = (__funnelshift_l(signs, signs, (kShift - 7 * pair) & 31) & 127u << kShift) | own;
    return *reinterpret_cast<const uint32_t*>(tables + grid) |
           *reinterpret_cast<const uint32_t*>(tables + (256 << kShift) + sign);
  }
};

}  // namespace ds4::cuda
