// Decode of one token: weights streamed once, by warps that always have the next piece under way.
//
// A task is a pair of panels (32 weight rows) or a part of its columns. The eight warps of a block take the task's units
// (runs of columns) in turn and hold two of them in registers: one that is multiplied, one that is being read, the first of
// the next task included. A block therefore keeps 8 warps x 2 units (70 KB of Q8_0) in flight without a pause between tasks;
// sums meet in shared memory once per task, and one warp finishes the task while the others go on.
//
// The block's first unit is read before the kernel waits for the one before it (`begin`): only inputs need that one.
#pragma once
#include "cuda/float-rows.cuh"
#include "cuda/int-weights.cuh"
#include "cuda/overlap.cuh"

namespace ds4::cuda {

constexpr int kStreamWarps = 8;
constexpr int kStreamThreads = 32 * kStreamWarps;
constexpr int kStreamCopies = 32;

/// Input rows of one length in shared memory, padded with zeros to 128 columns: int8 form as of quantize.cu, and float32.
struct StagedRows {
  uint8_t* quants;
  float *scales, *sums, *values;
  int stride;
};

/// Bytes: 1.375 per column for the int8 form, 4 for float32.
__device__ __forceinline__ StagedRows stagedRows(uint8_t* room, int rows, int cols, bool quantized) {
  const int stride = (cols + 127) / 128 * 128;
  float* scales = reinterpret_cast<float*>(room + rows * stride);
  float* sums = scales + rows * (stride / 32);
  float* values = quantized ? sums + rows * (stride / 16) : reinterpret_cast<float*>(room);
  return {room, scales, sums, values, stride};
}

/// Int8 form of four columns of a lane; a warp has 128. The same arithmetic as quantize_rows.
__device__ __forceinline__ void quantizeFour(const float4& values, const StagedRows& rows, int at, int lane) {
  const float v[4] = {values.x, values.y, values.z, values.w};
  int largestBits = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) largestBits = max(largestBits, __float_as_int(v[i]) & 0x7fffffff);
#pragma unroll
  for (int step = 1; step < 8; step *= 2) largestBits = max(largestBits, __shfl_xor_sync(0xffffffffu, largestBits, step));
  const float largest = __int_as_float(largestBits);
  const float scale = __fdiv_rn(largest, 127.0f);
  const float inverse = scale > 0 ? __fdiv_rn(127.0f, largest) : 0;
  constexpr int kMagicBits = 0x4b400000;
  uint32_t packed = 0;
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int quant = __float_as_int(__fmaf_rn(v[i], inverse, __int_as_float(kMagicBits))) - kMagicBits;
    const int8_t narrow = static_cast<int8_t>(quant);
    packed |= static_cast<uint32_t>(static_cast<uint8_t>(narrow)) << (8 * i);
    sum += narrow;
  }
#pragma unroll
  for (int step = 1; step < 4; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  *reinterpret_cast<uint32_t*>(rows.quants + at) = packed;
  if (lane % 4 == 0) rows.sums[at / 16] = scale * static_cast<float>(sum);
  if (lane % 8 == 0) rows.scales[at / 32] = scale;
}

/// Copies row `row` of the staged rows from x [cols], times weight [cols] (null: 1) and factor. A barrier must follow.
__device__ __forceinline__ void stageRow(const float* x, int cols, const StagedRows& rows, int row, bool quants,
                                         bool values, const float* weight = nullptr, float factor = 1.0f) {
  constexpr int kAhead = 4;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int pieces = rows.stride / 128;
  for (int first = warp; first < pieces; first += kAhead * kStreamWarps) {
    float4 four[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; i++) {
      const int col = (first + i * kStreamWarps) * 128 + 4 * lane;
      four[i] = make_float4(0, 0, 0, 0);
      if (col < cols) four[i] = __ldcg(reinterpret_cast<const float4*>(x + col));
    }
#pragma unroll
    for (int i = 0; i < kAhead; i++) {
      const int piece = first + i * kStreamWarps, col = piece * 128 + 4 * lane;
      if (piece < pieces && weight != nullptr && col < cols) {
        const float4 w = loadConstant<float4>(weight + col);
        four[i] = make_float4(four[i].x * factor * w.x, four[i].y * factor * w.y, four[i].z * factor * w.z,
                              four[i].w * factor * w.w);
      }
      if (piece < pieces && quants) quantizeFour(four[i], rows, row * rows.stride + col, lane);
      if (piece < pieces && values) *reinterpret_cast<float4*>(rows.values + row * rows.stride + col) = four[i];
    }
  }
}

/// Units of 128 columns of an int8 type.
template <int Type>
struct IntStream {
  static constexpr int kUnitCols = 32 * kChunkSubs;
  IntChunk<Type> weights;

  __device__ __forceinline__ void load(const uint8_t* panel, int unit, int cols, const Lane& lane) {
    weights.load(panel, unit, cols / 32, lane);
  }
  /// Adds the unit's products with row `row`, times factor.
  __device__ __forceinline__ void add(int unit, const Lane& lane, const StagedRows& x, int row, float factor,
                                      const uint8_t* tables, float (&total)[8]) const {
    const SharedLattice<kStreamCopies> lattice(tables);
    const int first = row * x.stride + unit * kUnitCols;
    const float4 four = *reinterpret_cast<const float4*>(x.scales + first / 32);
#pragma unroll
    for (int s = 0; s < kChunkSubs; s++) {
      const uint2 quants = *reinterpret_cast<const uint2*>(x.quants + first + 32 * s + 8 * lane.pair);
      const float scales[2] = {factor * (s == 0 ? four.x : s == 1 ? four.y : s == 2 ? four.z : four.w), 0};
      float2 sums[2] = {};
      if (IntChunk<Type>::kMins) {
        sums[0] = *reinterpret_cast<const float2*>(x.sums + first / 16 + 2 * s);
        sums[0].x *= factor;
        sums[0].y *= factor;
      }
      IntSub sub;
      weights.unpack(s, unit, lane, lattice, sub);
      addSub<IntChunk<Type>::kMins, 1>(sub, quants, scales, sums, total);
    }
  }
  /// The warp's sums of 32 rows.
  static __device__ __forceinline__ void store(const float (&total)[8], const Lane& lane, float* sums) {
    if (lane.pair != 0) return;
    *reinterpret_cast<float4*>(sums + 16 * lane.panel + 4 * lane.quad) =
        make_float4(total[0], total[2], total[4], total[6]);
  }
};

/// Units of 64 columns of F16 and BF16, 32 of F32.
template <int Type>
struct FloatStream {
  static constexpr int kLanes = Type == kF32 ? 4 : 2, kRows = Type == kF32 ? 4 : 8;
  static constexpr int kStep = 16 / kLanes, kPieces = 8, kUnitCols = kPieces * kStep;
  uint4 pieces[kPieces];

  __device__ __forceinline__ void load(const uint8_t* panel, int unit, int cols, const Lane& lane) {
    const int lane16 = lane.lane & 15;
#pragma unroll
    for (int i = 0; i < kPieces; i++) {
      const int col = min(unit * kUnitCols + i * kStep + lane16 / kLanes, cols - 1);
      pieces[i] = loadStream16(panel + (static_cast<int64_t>(col) * kLanes + lane16 % kLanes) * 16);
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

/// Sums of two tasks by all warps.
constexpr int kStreamPartialBytes = 2 * kStreamWarps * 32 * 4;

/// Tasks first, first + step, ... below end. `source` says what a task is:
///   Place place(task)              where its panels lie; place.units: its units, shared by all warps
///   fetch(place, unit, stream)     starts reading a unit
///   add(place, unit, stream, sums) multiplies it
/// begin() runs once all warps have started to read, before inputs are touched; it ends with a barrier. finish(task, sum) runs
/// in one warp, lane i with the sum of row i. Returns with nothing outstanding and all warps together.
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
  int task = first, unit = lane.warp, count = 0;
  auto place = source.place(task);
  bool valid = unit < place.units;
  if (valid) source.fetch(place, unit, now, lane);
  begin();
  float total[8] = {};
  while (true) {
    auto nextPlace = place;
    int nextTask = task, nextUnit = unit + kStreamWarps;
    if (nextUnit >= place.units) {
      nextTask = task + step;
      nextUnit = lane.warp;
      if (nextTask < end) nextPlace = source.place(nextTask);
    }
    const bool more = nextTask < end, nextValid = more && nextUnit < nextPlace.units;
    if (nextValid) source.fetch(nextPlace, nextUnit, ahead, lane);
    if (valid) source.add(place, unit, now, lane, total);
    if (nextTask != task) {
      float* sums = partial + count % 2 * (kStreamWarps * 32);
      Stream::store(total, lane, sums + lane.warp * 32);
#pragma unroll
      for (int i = 0; i < 8; i++) total[i] = 0;
      __syncthreads();
      if (count % kStreamWarps == lane.warp) {
        float sum = 0;
#pragma unroll
        for (int warp = 0; warp < kStreamWarps; warp++) sum += sums[warp * 32 + lane.lane];
        finish(task, sum);
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

/// Calls run(StreamTag<...>) for a type; other types take the kernels of multiply-rows.cu.
template <class Run>
__device__ __forceinline__ void withStream(int type, Run&& run) {
  switch (type) {
    case kQ80: run(StreamTag<IntStream<kQ80>>()); break;
    case kQ4K: run(StreamTag<IntStream<kQ4K>>()); break;
    case kQ2K: run(StreamTag<IntStream<kQ2K>>()); break;
    case kIq2Xxs: run(StreamTag<IntStream<kIq2Xxs>>()); break;
    case kF32: run(StreamTag<FloatStream<kF32>>()); break;
    case kF16: run(StreamTag<FloatStream<kF16>>()); break;
    case kBf16: run(StreamTag<FloatStream<kBf16>>()); break;
    default: break;
  }
}

}  // namespace ds4::cuda
