// Weights of the int8 types for one activation row: 128 columns of two panels at a time, in registers between reading and use.
//
// As in matrix.cuh a lane reads the rows 4 * quad .. + 3 of its panel, in every run of 32 columns those of its pair. All four
// lanes of a quad get the products of all four runs; each of them scales and adds only the run of its pair, so that a unit
// costs four scales and sums per lane instead of sixteen. Columns are a multiple of 128.
#pragma once
#include "cuda/int-weights.cuh"

namespace ds4::cuda {

/// What a lane's own run of 32 columns is multiplied by: value = scale * byte - min (of each 16 columns).
struct OwnScales {
  float scale[4];
  float mins[2][4];
};

__device__ __forceinline__ uint32_t pickRun(const uint32_t (&runs)[4], int pair) {
  const uint32_t low = (pair & 1) != 0 ? runs[1] : runs[0], high = (pair & 1) != 0 ? runs[3] : runs[2];
  return (pair & 2) != 0 ? high : low;
}

template <int Type>
struct IntUnit;

template <>
struct IntUnit<kQ80> {
  static constexpr bool kMins = false;
  uint4 low[4], high[4];
  uint2 d;

  __device__ __forceinline__ void load(const uint8_t* panel, int unit, const Lane& lane) {
    const uint8_t* from = panel + static_cast<int64_t>(unit) * (4 * static_cast<int>(q80_panel::kBytes));
    const uint8_t* quants = from + q80_panel::kQuants + 128 * lane.pair + 16 * lane.quad;
#pragma unroll
    for (int s = 0; s < 4; s++) {
      low[s] = loadStream16(quants + s * q80_panel::kBytes);
      high[s] = loadStream16(quants + s * q80_panel::kBytes + kGroupBytes);
    }
    d = loadConstant<uint2>(from + lane.pair * static_cast<int>(q80_panel::kBytes) + 8 * lane.quad);
  }
  template <class Lattice>
  __device__ __forceinline__ void bytes(int s, const Lane&, const Lattice&, uint32_t (&lowBytes)[4],
                                        uint32_t (&highBytes)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      lowBytes[i] = wordOf(low[s], i) ^ 0x80808080u;
      highBytes[i] = wordOf(high[s], i) ^ 0x80808080u;
    }
  }
  __device__ __forceinline__ void scales(int, const Lane&, OwnScales& own) const {
#pragma unroll
    for (int i = 0; i < 4; i++) own.scale[i] = halfOf(d, i);
  }
};

template <>
struct IntUnit<kQ4K> {
  static constexpr bool kMins = true;
  uint4 quants[4], high;
  uint32_t low;
  uint2 d, dmin;

  __device__ __forceinline__ void load(const uint8_t* panel, int unit, const Lane& lane) {
    const uint8_t* from = panel + static_cast<int64_t>(unit >> 1) * static_cast<int>(q4k_panel::kBytes);
    const int first = (unit & 1) * 4;
    const uint8_t* at = from + q4k_panel::kQuants + 256 * first + 64 * lane.pair + 16 * lane.quad;
#pragma unroll
    for (int s = 0; s < 4; s++) quants[s] = loadStream16(at + 256 * s);
    low = loadConstant<uint32_t>(from + q4k_panel::kLow + 16 * (first + lane.pair) + 4 * lane.quad);
    high = loadConstant<uint4>(from + q4k_panel::kHigh + 16 * lane.quad);
    d = loadConstant<uint2>(from + 8 * lane.quad);
    dmin = loadConstant<uint2>(from + 32 + 8 * lane.quad);
  }
  template <class Lattice>
  __device__ __forceinline__ void bytes(int s, const Lane&, const Lattice&, uint32_t (&lowBytes)[4],
                                        uint32_t (&highBytes)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      lowBytes[i] = wordOf(quants[s], i) & 0x0f0f0f0fu;
      highBytes[i] = wordOf(quants[s], i) >> 4 & 0x0f0f0f0fu;
    }
  }
  __device__ __forceinline__ void scales(int unit, const Lane& lane, OwnScales& own) const {
    const int j = (unit & 1) * 4 + lane.pair;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t top = wordOf(high, i) >> (2 * j), bottom = low >> (8 * i);
      own.scale[i] = halfOf(d, i) * smallFloat((bottom & 15) | (top & 3) << 4);
      own.mins[0][i] = halfOf(dmin, i) * smallFloat((bottom >> 4 & 15) | (top >> 16 & 3) << 4);
      own.mins[1][i] = own.mins[0][i];
    }
  }
};

template <>
struct IntUnit<kQ2K> {
  static constexpr bool kMins = true;
  uint4 quants[4];
  uint2 scale[4], d, dmin;

  __device__ __forceinline__ void load(const uint8_t* panel, int unit, const Lane& lane) {
    const uint8_t* from = panel + static_cast<int64_t>(unit >> 1) * static_cast<int>(q2k_panel::kBytes);
    const int first = (unit & 1) * 4;
    const uint8_t* at = from + q2k_panel::kQuants + 128 * first + 64 * (lane.pair >> 1) + 16 * lane.quad;
    const uint8_t* scales = from + q2k_panel::kScales + 32 * first + 8 * lane.quad;
#pragma unroll
    for (int s = 0; s < 4; s++) {
      quants[s] = loadStream16(at + 128 * s);
      scale[s] = loadConstant<uint2>(scales + 32 * s);
    }
    d = loadConstant<uint2>(from + 8 * lane.quad);
    dmin = loadConstant<uint2>(from + 32 + 8 * lane.quad);
  }
  // Quant times scale (0..45) stays below 128: one multiplication serves four columns.
  template <class Lattice>
  __device__ __forceinline__ void bytes(int s, const Lane& lane, const Lattice&, uint32_t (&lowBytes)[4],
                                        uint32_t (&highBytes)[4]) const {
    const int shift = 4 * (lane.pair & 1), byte = lane.pair >> 1;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t factor = pickBytes(i < 2 ? scale[s].x : scale[s].y, 0, 0x4440 | (2 * (i & 1) + byte)) & 15;
      const uint32_t fields = wordOf(quants[s], i) >> shift;
      lowBytes[i] = (fields & 0x03030303u) * factor;
      highBytes[i] = (fields >> 2 & 0x03030303u) * factor;
    }
  }
  __device__ __forceinline__ void scales(int, const Lane& lane, OwnScales& own) const {
    const uint32_t x[4] = {scale[0].x, scale[1].x, scale[2].x, scale[3].x};
    const uint32_t y[4] = {scale[0].y, scale[1].y, scale[2].y, scale[3].y};
    const uint2 ofRun = make_uint2(pickRun(x, lane.pair), pickRun(y, lane.pair));
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t both = (i < 2 ? ofRun.x : ofRun.y) >> (16 * (i & 1));
      own.scale[i] = halfOf(d, i);
      own.mins[0][i] = halfOf(dmin, i) * smallFloat(both >> 4 & 15);
      own.mins[1][i] = halfOf(dmin, i) * smallFloat(both >> 12 & 15);
    }
  }
};

template <>
struct IntUnit<kIq2Xxs> {
  static constexpr bool kMins = false;
  uint4 grid[4], signs[4];
  uint2 d;

  __device__ __forceinline__ void load(const uint8_t* panel, int unit, const Lane& lane) {
    const uint8_t* from = panel + static_cast<int64_t>(unit >> 1) * static_cast<int>(iq2xxs_panel::kBytes);
    const uint8_t* at = from + iq2xxs_panel::kSubs + (unit & 1) * 4 * static_cast<int>(iq2xxs_panel::kSubBytes) + 16 * lane.quad;
#pragma unroll
    for (int s = 0; s < 4; s++) {
      grid[s] = loadStream16(at + iq2xxs_panel::kSubBytes * s);
      signs[s] = loadStream16(at + iq2xxs_panel::kSubBytes * s + 64);
    }
    d = loadConstant<uint2>(from + 8 * lane.quad);
  }
  template <class Lattice>
  __device__ __forceinline__ void bytes(int s, const Lane& lane, const Lattice& lattice, uint32_t (&lowBytes)[4],
                                        uint32_t (&highBytes)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t selector = lattice.selectorAt(wordOf(grid[s], i), wordOf(signs[s], i), lane.pair);
      lowBytes[i] = pickBytes(kLatticePlus, kLatticeMinus, selector);
      highBytes[i] = pickBytes(kLatticePlus, kLatticeMinus, selector >> 16);
    }
  }
  __device__ __forceinline__ void scales(int, const Lane& lane, OwnScales& own) const {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t runs[4] = {wordOf(signs[0], i), wordOf(signs[1], i), wordOf(signs[2], i), wordOf(signs[3], i)};
      own.scale[i] = halfOf(d, i) * 0.125f * smallFloat(pickRun(runs, lane.pair) >> 27 | 1);
    }
  }
};

}  // namespace ds4::cuda
