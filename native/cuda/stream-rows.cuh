// Decode of one token: weights streamed once through shared memory.
//
// A task is a pair of panels (32 weight rows) or a part of its columns. The eight warps of a block take every eighth unit (a run
// of columns) of it, each out of stages of its own (ring.cuh), which are filled far ahead, across tasks, while it multiplies. Sums
// meet in shared memory, eight tasks at a time, and a warp each finishes them: a warp alone runs so slowly that the others
// would wait for it at the next task, and all eight take no longer than one.
//
// Before a step waits for the one before it (`begin`), its stages are filling: only inputs need that one. (Asking the second-level
// cache for what follows as well, for all of it or for what the stages have no room for, made decode 8 to 12 % slower on an H200.)
//
// Code counts: what does not stay in the instruction cache from layer to layer is read anew in every step, which costs more than running
// it. So kernels are compiled for the types of published files (StreamType); the one for all types is three times as large.
#pragma once
#include "cuda/float-rows.cuh"
#include "cuda/overlap.cuh"
#include "cuda/ring.cuh"
#include "cuda/staged-rows.cuh"
#include "cuda/stream-units.cuh"

namespace ds4::cuda {

constexpr int kStreamCopies = 32;
/// Sums of eight tasks by all warps.
constexpr int kStreamPartialBytes = kStreamWarps * kStreamWarps * 32 * 4;

/// Where the dynamic shared memory of a launch goes: tables of IQ2_XXS (first: their addresses are constants), sums, stages of all
/// warps, rows. Mirrored by decode-plans.ts.
struct StreamRoom {
  int tableBytes, stageBytes, stages;

  static __device__ __forceinline__ uint8_t* tables() { return dynamicShared(); }
  __device__ __forceinline__ float* sums() const { return reinterpret_cast<float*>(tables() + tableBytes); }
  __device__ __forceinline__ uint8_t* ring() const { return tables() + tableBytes + kStreamPartialBytes; }
  __device__ __forceinline__ uint8_t* rows() const { return ring() + stages * stageBytes; }
};

/// total[i] += products of a unit's 128 columns with a staged row, times factor; first: of the row's columns.
template <int Type>
__device__ __forceinline__ void addInts(const uint8_t* block, int half, const Lane& lane, const StagedRows& x, int first,
                                        float factor, float (&total)[8]) {
  using Unit = IntUnit<Type>;
  Unit weights;
  weights.load(block, half, lane);
  const SharedLattice<kStreamCopies> lattice(StreamRoom::tables());
  uint32_t dots[4][4];  // [row][run]
#pragma unroll
  for (int s = 0; s < 4; s++) {
    uint2 quants;
    if (Unit::kNeighbours) {
      quants = *reinterpret_cast<const uint2*>(x.quants + first + 32 * s + 8 * lane.pair);
    } else {
      quants.x = *reinterpret_cast<const uint32_t*>(x.quants + first + 32 * s + 4 * lane.pair);
      quants.y = *reinterpret_cast<const uint32_t*>(x.quants + first + 32 * s + 4 * lane.pair + 16);
    }
    uint32_t low[4], high[4];
    weights.bytes(s, lane, lattice, low, high);
#pragma unroll
    for (int m = 0; m < 2; m++) {
      int dot[4];
      multiplyTileAlone(dot, low[2 * m], low[2 * m + 1], high[2 * m], high[2 * m + 1], quants.x, quants.y);
      dots[2 * m][s] = static_cast<uint32_t>(dot[0]);
      dots[2 * m + 1][s] = static_cast<uint32_t>(dot[2]);
    }
  }
  OwnScales own;
  weights.scales(half, lane, own);
  const float scale = Unit::kFactor * factor * x.scales[(first >> 5) + lane.pair];
  float2 sums = make_float2(0, 0);
  if (Unit::kMins) sums = *reinterpret_cast<const float2*>(x.sums + (first >> 4) + 2 * lane.pair);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    total[i] += static_cast<float>(static_cast<int>(pickRun(dots[i], lane.pair))) * (own.scale[i] * scale);
    if (Unit::kMins) total[i] -= factor * (own.mins[0][i] * sums.x + own.mins[1][i] * sums.y);
  }
}

/// The same for F16 and BF16 (64 columns), F32 (32): a piece of 16 bytes for every lane, 16 lanes one after another.
template <int Type>
__device__ __forceinline__ void addFloats(const uint8_t* panel, const Lane& lane, const StagedRows& x, int first,
                                          float factor, float (&total)[8]) {
  constexpr int kLanes = Type == kF32 ? 4 : 2, kRows = Type == kF32 ? 4 : 8;
  constexpr int kStep = 16 / kLanes, kPieces = 8;
  const int lane16 = lane.lane & 15;
  const float* values = x.values + first + lane16 / kLanes;
#pragma unroll 4
  for (int i = 0; i < kPieces; i++) {
    float weights[8];
    widen<Type>(sharedPiece(panel + 256 * i + 16 * lane16), weights);
    const float value = factor * values[i * kStep];
#pragma unroll
    for (int r = 0; r < kRows; r++) total[r] += weights[r] * value;
  }
}

/// The warp's sums of 32 rows: of ints over the lanes of a quad, of floats over those that have the same rows of other columns.
__device__ __forceinline__ void storeSums(int type, const float (&total)[8], const Lane& lane, float* sums) {
  sums += 16 * lane.panel;
  const int lane16 = lane.lane & 15;
  if (usesInt8(type)) {
    float all[4];
#pragma unroll
    for (int i = 0; i < 4; i++) all[i] = sumLanes(total[i], 1, 4);
    if (lane.pair == 0) *reinterpret_cast<float4*>(sums + 4 * lane.quad) = make_float4(all[0], all[1], all[2], all[3]);
    return;
  }
  const int lanes = type == kF32 ? 4 : 2, rows = type == kF32 ? 4 : 8;
#pragma unroll
  for (int r = 0; r < 8; r++) {
    const float sum = sumLanes(type == kF32 ? total[r] : sumLanes(total[r], 2, 4), 4, 16);
    if (r < rows && lane16 < lanes) sums[rows * lane16 + r] = sum;
  }
}

/// Tasks first, first + step, ... below end. `source` says what a task is:
///   type                          of its weights
///   Place place(task)             the first unit that this warp takes
///   next(place), ends(place)      its next one; whether there is none
///   panels(task, place, a, b)     where the unit begins in both panels
///   input(place, first, factor)   what it is multiplied by: a place in staged rows, and a factor
///   add(block, lane, first, factor, total)   multiplies it
/// begin() runs once the stages have started to fill, before inputs are touched; it ends with a barrier. finish(task, sum) runs
/// in one warp, lane i with the sum of row i: eight tasks side by side. Returns with nothing outstanding and all warps together.
template <class Source, class Begin, class Finish>
__device__ __forceinline__ void streamTasks(const Source& source, Ring& ring, int first, int end, int step, float* partial,
                                            Begin&& begin, Finish&& finish) {
  if (first >= end) {
    begin();
    return;
  }
  const Lane lane = ownLane();
  const int bytes = unitBytesOf(source.type);
  int aheadTask = first;
  auto ahead = source.place(first);
  const auto fillNext = [&](int stage) {
    // A task may have fewer units than warps.
    while (source.ends(ahead)) {
      aheadTask += step;
      if (aheadTask >= end) return;
      ahead = source.place(aheadTask);
    }
    const uint8_t *firstPanel, *secondPanel;
    source.panels(aheadTask, ahead, firstPanel, secondPanel);
    ring.fill(stage, firstPanel, secondPanel, bytes);
    source.next(ahead);
  };
#pragma unroll 1
  for (int stage = 0; stage < ring.count; stage++) fillNext((ring.at + stage) % ring.count);
  begin();
  int task = first;
#pragma unroll 1
  while (true) {
    int count = 0;
#pragma unroll 1
    for (; count < kStreamWarps && task < end; count++, task += step) {
      float total[8] = {};
      auto place = source.place(task);
#pragma unroll 1
      for (; !source.ends(place); source.next(place)) {
        int column;
        float factor;
        source.input(place, column, factor);
        source.add(ring.take() + lane.panel * bytes, lane, column, factor, total);
        fillNext(ring.release());
      }
      storeSums(source.type, total, lane, partial + (count * kStreamWarps + lane.warp) * 32);
    }
    __syncthreads();
    if (lane.warp < count) {
      const float* sums = partial + lane.warp * (kStreamWarps * 32) + lane.lane;
      float sum = 0;
#pragma unroll
      for (int warp = 0; warp < kStreamWarps; warp++) sum += sums[warp * 32];
      finish(task - (count - lane.warp) * step, sum);
    }
    __syncthreads();
    if (task >= end) return;
  }
}

/// Known only when the kernel runs: any of the types, any of the int8 types.
constexpr int kAnyType = -1, kAnyInt = -2;

/// The type of a matrix, where the kernel is compiled for one.
template <int Known>
struct StreamType {
  static constexpr int kKnown = Known;
  __device__ __forceinline__ explicit StreamType(int) {}
  __device__ __forceinline__ constexpr operator int() const { return Known; }
};
template <int Known>
struct AnyStreamType {
  static constexpr int kKnown = Known;
  int type;
  __device__ __forceinline__ explicit AnyStreamType(int value) : type(value) {}
  __device__ __forceinline__ operator int() const { return type; }
};
template <>
struct StreamType<kAnyType> : AnyStreamType<kAnyType> {
  using AnyStreamType::AnyStreamType;
};
template <>
struct StreamType<kAnyInt> : AnyStreamType<kAnyInt> {
  using AnyStreamType::AnyStreamType;
};

/// Whether weights of a known type may need the tables of IQ2_XXS.
constexpr __device__ __forceinline__ bool mayNeedTables(int known) {
  return known == kIq2Xxs || known == kAnyInt || known == kAnyType;
}

/// Multiplies a unit of one of the int8 types: 128 or 256 columns.
__device__ __forceinline__ void addIntUnit(int type, const uint8_t* block, const Lane& lane, const StagedRows& x, int first,
                                           float factor, float (&total)[8]) {
  if (type == kQ80) {
    addInts<kQ80>(block, 0, lane, x, first, factor, total);
    return;
  }
#pragma unroll 1
  for (int half = 0; half < 2; half++) {
    switch (type) {
      case kQ4K: addInts<kQ4K>(block, half, lane, x, first + 128 * half, factor, total); break;
      case kQ2K: addInts<kQ2K>(block, half, lane, x, first + 128 * half, factor, total); break;
      default: addInts<kIq2Xxs>(block, half, lane, x, first + 128 * half, factor, total); break;
    }
  }
}

/// The same for all types; others take the kernels of multiply-rows.cu.
template <int Known>
__device__ __forceinline__ void addUnit(int type, const uint8_t* block, const Lane& lane, const StagedRows& x, int first,
                                        float factor, float (&total)[8]) {
  if constexpr (Known == kAnyInt) {
    addIntUnit(type, block, lane, x, first, factor, total);
  } else if constexpr (Known == kAnyType) {
    switch (type) {
      case kF32: addFloats<kF32>(block, lane, x, first, factor, total); break;
      case kF16: addFloats<kF16>(block, lane, x, first, factor, total); break;
      case kBf16: addFloats<kBf16>(block, lane, x, first, factor, total); break;
      default: addIntUnit(type, block, lane, x, first, factor, total); break;
    }
  } else if constexpr (!usesInt8(Known)) {
    addFloats<Known>(block, lane, x, first, factor, total);
  } else {
    // A unit's halves one after another: side by side their operands would not fit in the registers.
#pragma unroll 1
    for (int half = 0; half < (Known == kQ80 ? 1 : 2); half++) {
      addInts<Known>(block, half, lane, x, first + 128 * half, factor, total);
    }
  }
}

}  // namespace ds4::cuda
