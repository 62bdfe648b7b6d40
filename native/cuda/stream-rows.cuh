// Decode of one token: weights streamed once, by warps that always have the next piece under way.
//
// A task is a pair of panels (32 weight rows) or a part of its columns. The eight warps of a block take the task's units
// (runs of columns) in turn and hold two of them in registers: one that is multiplied, one that is being read, the first of
// the next task included. A block therefore keeps 8 warps x 2 units (70 KB of Q8_0) in flight without a pause between tasks;
// sums meet in shared memory once per task, and one warp finishes the task while the others go on.
//
// Before the kernel waits for the one before it (`begin`), its blocks read their first units and ask the second-level cache
// for what follows: only inputs need the kernel before.
#pragma once
#include "cuda/float-rows.cuh"
#include "cuda/overlap.cuh"
#include "cuda/staged-rows.cuh"
#include "cuda/stream-units.cuh"

namespace ds4::cuda {

constexpr int kStreamCopies = 32;
/// Most bytes that a block asks the second-level cache for before it waits.
constexpr int kPrefetchBytes = 160 * 1024;

/// Units of 128 columns of an int8 type.
template <int Type>
struct IntStream {
  static constexpr int kUnitCols = 128;
  IntUnit<Type> weights;

  __device__ __forceinline__ void load(const uint8_t* panel, int unit, const Lane& lane) {
    weights.load(panel, unit, lane);
  }
  /// Adds the unit's products with row `row`, times factor.
  __device__ __forceinline__ void add(int unit, const Lane& lane, const StagedRows& x, int row, float factor,
                                      const uint8_t* tables, float (&total)[8]) const {
    const SharedLattice<kStreamCopies> lattice(tables);
    const int first = row * x.stride + unit * kUnitCols;
    uint32_t dots[4][4];  // [row][run]
#pragma unroll
    for (int s = 0; s < 4; s++) {
      const uint2 quants = *reinterpret_cast<const uint2*>(x.quants + first + 32 * s + 8 * lane.pair);
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
    weights.scales(unit, lane, own);
    const float scale = factor * x.scales[first / 32 + lane.pair];
    float2 sums = make_float2(0, 0);
    if (IntUnit<Type>::kMins) sums = *reinterpret_cast<const float2*>(x.sums + first / 16 + 2 * lane.pair);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      total[i] += static_cast<float>(static_cast<int>(pickRun(dots[i], lane.pair))) * (own.scale[i] * scale);
      if (IntUnit<Type>::kMins) total[i] -= factor * (own.mins[0][i] * sums.x + own.mins[1][i] * sums.y);
    }
  }
  /// The warp's sums of 32 rows.
  static __device__ __forceinline__ void store(const float (&total)[8], const Lane& lane, float* sums) {
    float all[4];
#pragma unroll
    for (int i = 0; i < 4; i++) all[i] = sumLanes(total[i], 1, 4);
    if (lane.pair != 0) return;
    *reinterpret_cast<float4*>(sums + 16 * lane.panel + 4 * lane.quad) = make_float4(all[0], all[1], all[2], all[3]);
  }
};

/// Units of 64 columns of F16 and BF16, 32 of F32.
template <int Type>
struct FloatStream {
  static constexpr int kLanes = Type == kF32 ? 4 : 2, kRows = Type == kF32 ? 4 : 8;
  static constexpr int kStep = 16 / kLanes, kPieces = 8, kUnitCols = kPieces * kStep;
  uint4 pieces[kPieces];

  // A piece of 16 bytes for every lane, 16 lanes one after another: kStep columns.
  __device__ __forceinline__ void load(const uint8_t* panel, int unit, const Lane& lane) {
    const uint8_t* from = panel + static_cast<int64_t>(unit) * (kPieces * 256) + 16 * (lane.lane & 15);
#pragma unroll
    for (int i = 0; i < kPieces; i++) {
      pieces[i] = loadStream16(from + 256 * i);
    }
  }
  __device__ __forceinline__ void add(int unit, const Lane& lane, const StagedRows& x, int row, float factor,
                                      const uint8_t*, float (&total)[8]) const {
    const float* values = x.values + row * x.stride + unit * kUnitCols + (lane.lane & 15) / kLanes;
#pragma unroll
    for (int i = 0; i < kPieces; i++) {
      float weights[8];
      widen<Type>(pieces[i], weights);
      const float value = factor * values[i * kStep];
#pragma unroll
      for (int r = 0; r < kRows; r++) total[r] += weights[r] * value;
    }
  }
  static __device__ __forceinline__ void store(const float (&total)[8], const Lane& lane, float* sums) {
    const int lane16 = lane.lane & 15;
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      const float sum = sumLanes(total[r], kLanes, 16);
      if (lane16 < kLanes) sums[16 * lane.panel + kRows * lane16 + r] = sum;
    }
  }
};

/// Asks the second-level cache for a part of `bytes` at `from`: part `part` of `parts`.
__device__ __forceinline__ void prefetchPart(const uint8_t* from, int bytes, int part, int parts) {
  const int each = (bytes / parts + 15) & ~15, at = part * each;
  if (at < bytes) prefetchToL2(from + at, min(each, bytes - at) & ~15);
}

/// Sums of eight tasks by all warps.
constexpr int kStreamPartialBytes = kStreamWarps * kStreamWarps * 32 * 4;

/// Tasks first, first + step, ... below end. `source` says what a task is:
///   Place place<Stream>(task)      where its panels lie; place.units: its units, shared by all warps
///   fetch(place, unit, stream)     starts reading a unit
///   add(place, unit, stream, sums) multiplies it
/// begin() runs once all warps have started to read, before inputs are touched; it ends with a barrier. finish(task, sum) runs
/// in one warp, lane i with the sum of row i, while the others go on. Returns with nothing outstanding and all warps together.
///
/// Kernels of this kind run for some microseconds, with all their code read anew: what is not the loop over units has to be
/// short (no divisions, no unrolling), it costs more to read than to run.
template <class Stream, class Source, class Begin, class Finish>
__device__ __forceinline__ void streamTasks(const Source& source, int first, int end, int step, float* partial,
                                            Begin&& begin, Finish&& finish) {
  if (first >= end) {
    begin();
    return;
  }
  const Lane lane = ownLane();
  // Initialized: registers that are only written under a condition would be kept across the caller's loops, for every type.
  Stream now{}, ahead{};
  auto place = source.template place<Stream>(first);
  int task = first, unit = lane.warp, count = 0;
  bool valid = unit < place.units;
  if (valid) source.fetch(place, unit, now, lane);
  begin();
  float total[8] = {};
#pragma unroll 1
  while (true) {
    // One unit, while the next is being read.
    auto nextPlace = place;
    int nextTask = task, nextUnit = unit + kStreamWarps;
    if (nextUnit >= place.units) {
      nextTask = task + step;
      nextUnit = lane.warp;
      if (nextTask < end) nextPlace = source.template place<Stream>(nextTask);
    }
    const bool more = nextTask < end, nextValid = more && nextUnit < nextPlace.units;
    if (nextValid) source.fetch(nextPlace, nextUnit, ahead, lane);
    if (valid) source.add(place, unit, now, lane, total);
    if (nextTask != task) {
      // Sums of a task go to one of eight places; the warp whose turn it is waits for the others there and finishes the task.
      // By the time a place is used again every warp has had such a turn after the one that emptied it.
      const int turn = count % kStreamWarps;
      float* sums = partial + turn * (kStreamWarps * 32);
      Stream::store(total, lane, sums + lane.warp * 32);
#pragma unroll
      for (int i = 0; i < 8; i++) total[i] = 0;
      __syncwarp();
      if (turn == lane.warp) {
        waitAt(1 + turn, kStreamThreads);
        float sum = 0;
#pragma unroll
        for (int warp = 0; warp < kStreamWarps; warp++) sum += sums[warp * 32 + lane.lane];
        finish(task, sum);
        __syncwarp();
      } else {
        arriveAt(1 + turn, kStreamThreads);
      }
      count++;
    }
    if (!more) break;
    now = ahead;
    place = nextPlace;
    task = nextTask;
    unit = nextUnit;
    valid = nextValid;
  }
  __syncthreads();
}

/// Names a stream type.
template <class Stream>
struct StreamTag {
  using type = Stream;
};

/// The same for the int8 types alone.
template <class Run>
__device__ __forceinline__ void withIntStream(int type, Run&& run) {
  switch (type) {
    case kQ80: run(StreamTag<IntStream<kQ80>>()); break;
    case kQ4K: run(StreamTag<IntStream<kQ4K>>()); break;
    case kQ2K: run(StreamTag<IntStream<kQ2K>>()); break;
    case kIq2Xxs: run(StreamTag<IntStream<kIq2Xxs>>()); break;
    default: break;
  }
}

/// Calls run(StreamTag<...>) for a type; other types take the kernels of multiply-rows.cu.
template <class Run>
__device__ __forceinline__ void withStream(int type, Run&& run) {
  switch (type) {
    case kF32: run(StreamTag<FloatStream<kF32>>()); break;
    case kF16: run(StreamTag<FloatStream<kF16>>()); break;
    case kBf16: run(StreamTag<FloatStream<kBf16>>()); break;
    default: withIntStream(type, run); break;
  }
}

}  // namespace ds4::cuda
