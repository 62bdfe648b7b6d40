// Decode of one token: the chosen experts, and the shared one's down.
//
// Bytes moved: the packed weights once. The products of down are summed with their weights where they are made, and what follows the
// block's output happens there too.
#pragma once
#include "cuda/chain-block.cuh"
#include "cuda/gated-source.cuh"
#include "cuda/hyper-tail.cuh"

namespace ds4::cuda {

constexpr int kMostUsedExperts = 32;

/// The int8 form of h [used, gate.rows] of the experts ids [used]. gate.rows is a multiple of 128.
struct DecodeUp {
  Matrix gate, up;
  const float* x;
  const uint8_t* quantized;  // of x
  const int32_t* ids;
  float* h;
  uint8_t* hQuantized;
  float limit;
  int used;
};

/// Blocks take `perBlock` tasks each.
__device__ __forceinline__ void expertsUp(const DecodeUp& u, ChainBlock& own, int perBlock) {
  const StreamRoom& shared = own.room;
  if (shared.tableBytes > 0) SharedLattice<kStreamCopies>::fill(StreamRoom::tables());
  const StagedRows rows = stagedRows(shared.rows(), 1, u.gate.cols, true);
  // Which experts: from the step before.
  own.barrier.wait();
  __shared__ int experts[kMostUsedExperts];
  if (static_cast<int>(threadIdx.x) < u.used) experts[threadIdx.x] = __ldcg(u.ids + threadIdx.x);
  __syncthreads();
  const int first = static_cast<int>(blockIdx.x) * perBlock, end = min(first + perBlock, u.used * (u.gate.rows / 16));
  const GatedSource source(u.gate, u.up, experts, rows, 0);
  const auto stage = [&] {
    stageBytes(u.quantized, rows.quants, quantizedBytes(rows.stride));
    __syncthreads();
  };
  const auto finish = [&](int task, float sum) {
    const int all = u.used * u.gate.rows;
    finishGated(sum, u.limit, {u.h, {u.hQuantized, all}, all}, task);
  };
  streamTasks(source, own.ring, first, end, 1, shared.sums(), stage, finish);
}

/// The block's output, shared + sum over slots of weight times expert, through `tail`.
struct DecodeDown {
  Matrix down, sharedDown;
  HyperTail tail;
  const uint8_t *h, *sharedH;  // int8 forms of [used, down.cols], [sharedDown.cols]
  const int32_t* ids;
  const float* weights;
  int used, shift, sharedShift, padding;  // tasks per pair of panels are 2^shift
};

/// Units of a task that are still to come: of one expert after another.
struct DownPlace {
  int slot, at, left;  // the next unit is number `at` of the expert in `slot`
};

/// Pairs of panels of all chosen experts, one after another along the columns: their sums are one sum.
struct DownSource {
  using Place = DownPlace;
  const uint8_t* data;
  int64_t sliceBytes;
  int panelBytes, lastPanel, cols, type, used, shift;
  StagedRows rows;
  const int* experts;    // [used] in shared memory
  const float* weights;  // [used] in shared memory

  __device__ __forceinline__ int perExpert() const { return cols >> unitShiftOf(type); }
  __device__ __forceinline__ DownPlace place(int task) const {
    const int split = task & ((1 << shift) - 1), per = perExpert(), all = used * per;
    const int unit = all * split >> shift, slot = unit / per;
    return {slot, unit - slot * per, (all * (split + 1) >> shift) - unit};
  }
  // A stage ends with its expert.
  __device__ __forceinline__ int units(const DownPlace& place) const {
    return min(min(place.left, perExpert() - place.at), kStreamWarps);
  }
  static __device__ __forceinline__ int offsetUnits(const DownPlace& place) { return place.at; }
  __device__ __forceinline__ void next(DownPlace& place) const {
    const int taken = units(place);
    place.left -= taken;
    place.at += taken;
    if (place.at < perExpert()) return;
    place.at = 0;
    place.slot++;
  }
  static __device__ __forceinline__ bool ends(const DownPlace& place) { return place.left <= 0; }
  __device__ __forceinline__ void panels(int task, const DownPlace& place, const uint8_t*& first, const uint8_t*& second) const {
    const int panel = 2 * (task >> shift);
    first = data + experts[place.slot] * sliceBytes + static_cast<int64_t>(panel) * panelBytes;
    second = panel < lastPanel ? first + panelBytes : first;
  }
  __device__ __forceinline__ void input(const DownPlace& place, int& first, float& times) const {
    first = place.slot * rows.stride + (ownUnit(place.at) << unitShiftOf(type));
    times = weights[place.slot];
  }
  __device__ __forceinline__ void add(const uint8_t* block, const Lane& lane, int first, float times, float (&total)[8]) const {
    addIntUnit(type, block, lane, rows, first, times, total);
  }
};

/// The shared expert's tasks, which need no more than the step before the last, then those of the chosen experts: the first
/// `expertBlocks` blocks take them in turn, the shared expert's are taken from the last block on. Rows: those of one, then of the others.
__device__ __forceinline__ void expertsDown(const DecodeDown& d, ChainBlock& own, int expertBlocks) {
  const StreamRoom& shared = own.room;
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x), pairs = (d.down.rows + 31) / 32;
  const int shift = d.shift, sharedShift = d.sharedShift, shares = (1 << shift) + (1 << sharedShift);
  const auto put = [&](int pair, int share, float sum) {
    if (addShare(pair * shares, share, shares, sum)) own.finished.add(pair, sum);
  };
  own.barrier.waitForKernel();
  if (shared.tableBytes > 0) SharedLattice<kStreamCopies>::fill(StreamRoom::tables());
  // Chosen two steps before.
  __shared__ int experts[kMostUsedExperts];
  __shared__ float weights[kMostUsedExperts];
  if (static_cast<int>(threadIdx.x) < d.used) {
    experts[threadIdx.x] = __ldcg(d.ids + threadIdx.x);
    weights[threadIdx.x] = __ldcg(d.weights + threadIdx.x);
  }
  __syncthreads();
  const int sharedFirst = blocks - 1 - block, sharedTasks = pairs << sharedShift;
  if (sharedFirst < sharedTasks) {
    const float one = 1.0f;
    const StagedRows rows = stagedRows(shared.rows(), 1, d.sharedDown.cols, true);
    const PairSource<true> source(d.sharedDown, rows, one, sharedShift);
    const auto stage = [&] {
      stageBytes(d.sharedH, rows.quants, quantizedBytes(rows.stride));
      __syncthreads();
    };
    prefetchColumns(d.tail, sharedFirst >> sharedShift);
    streamTasks(source, own.ring, sharedFirst, sharedTasks, blocks, shared.sums(), stage, [&](int task, float sum) {
      const int pair = task >> sharedShift;
      put(pair, (1 << shift) + task - (pair << sharedShift), sum);
    });
  }
  const int expertFirst = block < expertBlocks ? block : pairs << shift;
  const StagedRows rows = stagedRows(shared.rows(), d.used, d.down.cols, true);
  const DownSource source{d.down.data, d.down.sliceBytes, d.down.panelBytes, (d.down.rows + 15) / 16 - 1, d.down.cols,
                          d.down.type, d.used, shift, rows, experts, weights};
  const auto stage = [&] {
    own.barrier.wait();
    stageBytes(d.h, rows.quants, quantizedBytes(d.used * rows.stride));
    __syncthreads();
  };
  if (expertFirst < pairs << shift) prefetchColumns(d.tail, expertFirst >> shift);
  streamTasks(source, own.ring, expertFirst, pairs << shift, expertBlocks, shared.sums(), stage, [&](int task, float sum) {
    const int pair = task >> shift;
    put(pair, task - (pair << shift), sum);
  });
  own.finished.finish(d.tail);
}

}  // namespace ds4::cuda
