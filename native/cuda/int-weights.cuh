// Weights of the int8 types on their way from panels to operands of multiplyTile, 128 columns at a time. Reading and
// unpacking are apart, so that all loads of a chunk are under way before the first is used.
#pragma once
#include "cuda/lattice-tables.cuh"
#include "cuda/matrix.cuh"

namespace ds4::cuda {

constexpr int kChunkSubs = 4;  // runs of 32 columns in a chunk

/// 32 columns of a lane's four rows: signed bytes of columns 8b .. 8b + 3 and 8b + 4 .. 8b + 7, value = scale * byte - min.
/// `mins`: of the first and the second 16 columns; the same number twice where one holds for 32.
struct IntSub {
  uint32_t low[4], high[4];
  float scale[4];
  float mins[2][4];
};

__device__ __forceinline__ uint32_t wordOf(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/// Half i (0..3) of four.
__device__ __forceinline__ float halfOf(const uint2& v, int i) {
  return halfBits((i < 2 ? v.x : v.y) >> (16 * (i & 1)) & 0xffff);
}

/// An integer of 0 .. 2^23 - 1 as float, without the conversion unit.
__device__ __forceinline__ float smallFloat(uint32_t value) { return __uint_as_float(value | 0x4b000000u) - 8388608.0f; }

template <int Type>
struct IntChunk;

template <>
struct IntChunk<kQ80> {
  static constexpr bool kMins = false;
  uint4 low[kChunkSubs], high[kChunkSubs];
  uint2 d[kChunkSubs];

  __device__ __forceinline__ void load(const uint8_t* panel, int chunk, int subs, const Lane& lane) {
#pragma unroll
    for (int s = 0; s < kChunkSubs; s++) {
      const uint8_t* from = panel + static_cast<int64_t>(min(chunk * kChunkSubs + s, subs - 1)) * q80_panel::kBytes;
      const uint8_t* quants = from + q80_panel::kQuants + 128 * lane.pair + 16 * lane.quad;
      low[s] = loadStream16(quants);
      high[s] = loadStream16(quants + kGroupBytes);
      d[s] = loadConstant<uint2>(from + 8 * lane.quad);
    }
  }
  template <class Lattice>
  __device__ __forceinline__ void unpack(int s, int, const Lane&, const Lattice&, IntSub& sub) const {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      sub.low[i] = wordOf(low[s], i) ^ 0x80808080u;
      sub.high[i] = wordOf(high[s], i) ^ 0x80808080u;
      sub.scale[i] = halfOf(d[s], i);
    }
  }
};

template <>
struct IntChunk<kQ4K> {
  static constexpr bool kMins = true;
  uint4 quants[kChunkSubs], high;
  uint32_t low[kChunkSubs];
  uint2 d, dmin;

  __device__ __forceinline__ void load(const uint8_t* panel, int chunk, int, const Lane& lane) {
    const uint8_t* from = panel + static_cast<int64_t>(chunk / 2) * q4k_panel::kBytes;
    const int first = chunk % 2 * kChunkSubs;
#pragma unroll
    for (int s = 0; s < kChunkSubs; s++) {
      quants[s] = loadStream16(from + q4k_panel::kQuants + 256 * (first + s) + 64 * lane.pair + 16 * lane.quad);
      low[s] = loadConstant<uint32_t>(from + q4k_panel::kLow + 16 * (first + s) + 4 * lane.quad);
    }
    high = loadConstant<uint4>(from + q4k_panel::kHigh + 16 * lane.quad);
    d = loadConstant<uint2>(from + 8 * lane.quad);
    dmin = loadConstant<uint2>(from + 32 + 8 * lane.quad);
  }
  template <class Lattice>
  __device__ __forceinline__ void unpack(int s, int chunk, const Lane&, const Lattice&, IntSub& sub) const {
    const int j = chunk % 2 * kChunkSubs + s;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t word = wordOf(quants[s], i), top = wordOf(high, i) >> (2 * j), bottom = low[s] >> (8 * i);
      sub.low[i] = word & 0x0f0f0f0fu;
      sub.high[i] = word >> 4 & 0x0f0f0f0fu;
      sub.scale[i] = halfOf(d, i) * smallFloat((bottom & 15) | (top & 3) << 4);
      sub.mins[0][i] = halfOf(dmin, i) * smallFloat((bottom >> 4 & 15) | (top >> 16 & 3) << 4);
      sub.mins[1][i] = sub.mins[0][i];
    }
  }
};

template <>
struct IntChunk<kQ2K> {
  static constexpr bool kMins = true;
  uint4 quants[kChunkSubs];
  uint2 scales[kChunkSubs], d, dmin;

  __device__ __forceinline__ void load(const uint8_t* panel, int chunk, int, const Lane& lane) {
    const uint8_t* from = panel + static_cast<int64_t>(chunk / 2) * q2k_panel::kBytes;
    const int first = chunk % 2 * kChunkSubs;
#pragma unroll
    for (int s = 0; s < kChunkSubs; s++) {
      quants[s] = loadStream16(from + q2k_panel::kQuants + 128 * (first + s) + 64 * (lane.pair / 2) + 16 * lane.quad);
      scales[s] = loadConstant<uint2>(from + q2k_panel::kScales + 32 * (first + s) + 8 * lane.quad);
    }
    d = loadConstant<uint2>(from + 8 * lane.quad);
    dmin = loadConstant<uint2>(from + 32 + 8 * lane.quad);
  }
  // Quant times scale (0..45) stays below 128: one multiplication serves four columns.
  template <class Lattice>
  __device__ __forceinline__ void unpack(int s, int, const Lane& lane, const Lattice&, IntSub& sub) const {
    const int shift = 4 * (lane.pair & 1);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t both = (i < 2 ? scales[s].x : scales[s].y) >> (16 * (i & 1));  // scale and min of two sub-blocks
      const uint32_t scale = both >> (8 * (lane.pair >> 1)) & 15;
      const uint32_t fields = wordOf(quants[s], i) >> shift;
      sub.low[i] = (fields & 0x03030303u) * scale;
      sub.high[i] = (fields >> 2 & 0x03030303u) * scale;
      sub.scale[i] = halfOf(d, i);
      sub.mins[0][i] = halfOf(dmin, i) * smallFloat(both >> 4 & 15);
      sub.mins[1][i] = halfOf(dmin, i) * smallFloat(both >> 12 & 15);
    }
  }
};

template <>
struct IntChunk<kIq2Xxs> {
  static constexpr bool kMins = false;
  uint4 grid[kChunkSubs], signs[kChunkSubs];
  uint2 d;

  __device__ __forceinline__ void load(const uint8_t* panel, int chunk, int, const Lane& lane) {
    const uint8_t* from = panel + static_cast<int64_t>(chunk / 2) * iq2xxs_panel::kBytes;
    const uint8_t* first = from + iq2xxs_panel::kSubs + chunk % 2 * kChunkSubs * iq2xxs_panel::kSubBytes;
#pragma unroll
    for (int s = 0; s < kChunkSubs; s++) {
      grid[s] = loadStream16(first + iq2xxs_panel::kSubBytes * s + 16 * lane.quad);
      signs[s] = loadStream16(first + iq2xxs_panel::kSubBytes * s + 64 + 16 * lane.quad);
    }
    d = loadConstant<uint2>(from + 8 * lane.quad);
  }
  template <class Lattice>
  __device__ __forceinline__ void unpack(int s, int, const Lane& lane, const Lattice& lattice, IntSub& sub) const {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t sign = wordOf(signs[s], i);
      const uint32_t selector = lattice.selectorAt(wordOf(grid[s], i), sign, lane.pair);
      sub.low[i] = pickBytes(kLatticePlus, kLatticeMinus, selector);
      sub.high[i] = pickBytes(kLatticePlus, kLatticeMinus, selector >> 16);
      sub.scale[i] = halfOf(d, i) * 0.125f * smallFloat(sign >> 27 | 1);
    }
  }
};

/// Adds 32 columns to the sums of one tile of 8 activation rows: sums[4m + c] belongs to row 2m + c / 2 of the quad and to
/// activation row 2b + c % 2. `scales` and `mins` (sums of 16 columns) of these two rows; Rows 1: only of the first.
template <bool Mins, int Rows>
__device__ __forceinline__ void addSub(const IntSub& sub, const uint2& x, const float (&scales)[2],
                                       const float2 (&mins)[2], float (&sums)[8]) {
#pragma unroll
  for (int m = 0; m < 2; m++) {
    int dot[4] = {0, 0, 0, 0};
    multiplyTile(dot, sub.low[2 * m], sub.low[2 * m + 1], sub.high[2 * m], sub.high[2 * m + 1], x.x, x.y);
#pragma unroll
    for (int c = 0; c < 4; c++) {
      if (c % 2 >= Rows) continue;
      const int row = 2 * m + c / 2;
      float& sum = sums[4 * m + c];
      sum += static_cast<float>(dot[c]) * (sub.scale[row] * scales[c % 2]);
      if (Mins) sum -= sub.mins[0][row] * mins[c % 2].x + sub.mins[1][row] * mins[c % 2].y;
    }
  }
}

}  // namespace ds4::cuda
