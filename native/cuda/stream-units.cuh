// Weights of the int8 types for one activation row, out of a stage in shared memory: 128 columns of two panels at a time.
//
// As in matrix.cuh a lane reads the rows 4 * quad .. + 3 of its panel, in every run of 32 columns those of its pair. All four
// lanes of a quad get the products of all four runs; each of them scales and adds only the run of its pair, so that 128 columns
// cost four scales and sums per lane instead of sixteen.
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

template <class Value>
__device__ __forceinline__ Value sharedValue(const uint8_t* from) {
  return *reinterpret_cast<const Value*>(from);
}
__device__ __forceinline__ uint4 sharedPiece(const uint8_t* from) { return sharedValue<uint4>(from); }

/// Columns of a unit, what a stage holds of two panels: a power of two.
__device__ __forceinline__ int unitShiftOf(int type) {
  return type == kF32 ? 5 : type == kF16 || type == kBf16 ? 6 : type == kQ80 ? 7 : 8;
}

/// Bytes of a unit in one panel.
__device__ __forceinline__ int unitBytesOf(int type) {
  switch (type) {
    case kQ80: return 4 * static_cast<int>(q80_panel::kBytes);
    case kQ4K: return static_cast<int>(q4k_panel::kBytes);
    case kQ2K: return static_cast<int>(q2k_panel::kBytes);
    case kIq2Xxs: return static_cast<int>(iq2xxs_panel::kBytes);
    default: return 2048;
  }
}

/// load(block, half): from a unit of a panel, its columns 128 * half and on.
template <int Type>
struct IntUnit;  // kNeighbours: bytes() gives columns 8 * pair .. + 3 and + 4 .. + 7, else 4 * pair .. + 3 and + 16 ..

template <>
struct IntUnit<kQ80> {
  static constexpr bool kMins = false, kNeighbours = false;
  static constexpr float kFactor = 1.0f;
  uint4 low[4], high[4];
  uint2 d;

  // Columns 4 * pair .. + 3 and 16 more: two lanes meet in a bank, with neighbouring groups it would be four.
  __device__ __forceinline__ void load(const uint8_t* from, int, const Lane& lane) {
    const uint8_t* quants = from + q80_panel::kQuants + kGroupBytes * lane.pair + 16 * lane.quad;
#pragma unroll
    for (int s = 0; s < 4; s++) {
      low[s] = sharedPiece(quants + s * q80_panel::kBytes);
      high[s] = sharedPiece(quants + s * q80_panel::kBytes + 4 * kGroupBytes);
    }
    d = sharedValue<uint2>(from + lane.pair * static_cast<int>(q80_panel::kBytes) + 8 * lane.quad);
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
  static constexpr bool kMins = true, kNeighbours = true;
  static constexpr float kFactor = 1.0f;
  uint4 quants[4], high;
  uint32_t low;
  uint2 d, dmin;

  __device__ __forceinline__ void load(const uint8_t* from, int half, const Lane& lane) {
    const int first = half * 4;
    const uint8_t* at = from + q4k_panel::kQuants + 256 * first + 64 * lane.pair + 16 * lane.quad;
#pragma unroll
    for (int s = 0; s < 4; s++) quants[s] = sharedPiece(at + 256 * s);
    low = sharedValue<uint32_t>(from + q4k_panel::kLow + 16 * (first + lane.pair) + 4 * lane.quad);
    high = sharedValue<uint4>(from + q4k_panel::kHigh + 16 * lane.quad);
    d = sharedValue<uint2>(from + 8 * lane.quad);
    dmin = sharedValue<uint2>(from + 32 + 8 * lane.quad);
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
  __device__ __forceinline__ void scales(int half, const Lane& lane, OwnScales& own) const {
    const int j = half * 4 + lane.pair;
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
  static constexpr bool kMins = true, kNeighbours = true;
  static constexpr float kFactor = 1.0f;
  uint4 quants[4];
  uint2 scale[4], d, dmin;

  __device__ __forceinline__ void load(const uint8_t* from, int half, const Lane& lane) {
    const int first = half * 4;
    const uint8_t* at = from + q2k_panel::kQuants + 128 * first + 64 * (lane.pair >> 1) + 16 * lane.quad;
    const uint8_t* scales = from + q2k_panel::kScales + 32 * first + 8 * lane.quad;
#pragma unroll
    for (int s = 0; s < 4; s++) {
      quants[s] = sharedPiece(at + 128 * s);
      scale[s] = sharedValue<uint2>(scales + 32 * s);
    }
    d = sharedValue<uint2>(from + 8 * lane.quad);
    dmin = sharedValue<uint2>(from + 32 + 8 * lane.quad);
  }
  // Quant times scale (0..45) stays below 128: one multiplication serves four columns.
  template <class Lattice>
  __device__ __forceinline__ void bytes(int s, const Lane& lane, const Lattice&, uint32_t (&lowBytes)[4],
                                        uint32_t (&highBytes)[4]) const {
    const int shift = 4 * (lane.pair & 1), byte = lane.pair >> 1;
    const uint32_t factors[2] = {scale[s].x & 0x0f0f0f0fu, scale[s].y & 0x0f0f0f0fu};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t factor = pickBytes(factors[i >> 1], 0, 0x4440 | (2 * (i & 1) + byte));
      lowBytes[i] = (wordOf(quants[s], i) >> shift & 0x03030303u) * factor;
      highBytes[i] = (wordOf(quants[s], i) >> (shift + 2) & 0x03030303u) * factor;
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
  static constexpr bool kMins = false, kNeighbours = true;
  static constexpr float kFactor = 0.125f;
  uint4 grid[4], signs[4];
  uint2 d;

  __device__ __forceinline__ void load(const uint8_t* from, int half, const Lane& lane) {
    const uint8_t* at = from + iq2xxs_panel::kSubs + half * 4 * static_cast<int>(iq2xxs_panel::kSubBytes) + 16 * lane.quad;
#pragma unroll
    for (int s = 0; s < 4; s++) {
      grid[s] = sharedPiece(at + iq2xxs_panel::kSubBytes * s);
      signs[s] = sharedPiece(at + iq2xxs_panel::kSubBytes * s + 64);
    }
    d = sharedValue<uint2>(from + 8 * lane.quad);
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
      own.scale[i] = halfOf(d, i) * smallFloat(pickRun(runs, lane.pair) >> 27 | 1);
    }
  }
};

}  // namespace ds4::cuda
