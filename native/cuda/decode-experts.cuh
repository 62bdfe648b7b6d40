// Decode of one token: the chosen experts, and the shared one's down.
//
// Bytes moved: the packed weights once. The products of down are summed with their weights where they are made, and what follows the
// block's output happens there too.
#pragma once
#include "cuda/decode-route.cuh"
#include "cuda/gated-source.cuh"
#include "cuda/hyper-tail.cuh"

namespace ds4::cuda {

/// The int8 form of h [used, gate.rows] of the chosen experts. gate.rows is a multiple of 128.
struct DecodeUp {
  Matrix gate, up;
  const uint8_t* quantized;  // of x
  float* h;
  uint8_t* hQuantized;
  float limit;
  int used;
};

/// Blocks choose the experts each for itself from the scores of the step before, which takes less time than one choice that all wait for; then they
/// take `perBlock` tasks each.
template <int Known>
__device__ __forceinline__ void expertsUp(const DecodeUp& u, const DecodeRoute& route, ChainBlock& own, int perBlock) {
  const StreamRoom& shared = own.room;
  if (mayNeedTables(Known) && shared.tableBytes > 0) SharedLattice<kStreamCopies>::fill(StreamRoom::tables());
  const StagedRows rows = stagedRows(shared.rows(), 1, u.gate.cols, true);
  const int thread = static_cast<int>(threadIdx.x);
  const ExpertScores scores(route.choice, shared.sums());
  if (thread < 32) scores.stageBias(route.choice.bias);
  own.barrier.wait();
  if (thread < 32) chooseHere(route, scores, own.chosen);
  else stageBytes(u.quantized, rows.quants, quantizedBytes(rows.stride), thread - 32, kStreamThreads - 32);
  __syncthreads();
  const int first = static_cast<int>(blockIdx.x) * perBlock, end = min(first + perBlock, u.used * (u.gate.rows / 16));
  const GatedSource<Known> source(u.gate, u.up, own.chosen.ids, rows, 0);
  const auto finish = [&](int task, float sum) {
    const int all = u.used * u.gate.rows;
    finishGated(sum, u.limit, u.h, u.hQuantized, all, task);
  };
  streamTasks(source, own.ring, first, end, 1, shared.sums(), [] {}, finish);
}

/// The block's output, shared + sum over slots of weight times expert, through `tail`.
struct DecodeDown {
  Matrix down, sharedDown;
  HyperTail tail;
  const uint8_t *h, *sharedH;  // int8 forms of [used, down.cols], [sharedDown.cols]
  int used, shift, sharedShift, padding;  // tasks per pair of panels are 2^shift
};

/// Units of a task that are still to come for a warp: of one expert after another.
struct DownPlace {
  int slot, at, left;  // the next unit is number `at` of the expert in `slot`; `left` units of all warps from it on
};

/// Pairs of panels of all chosen experts, one after another along the columns: their sums are one sum.
template <int Known>
struct DownSource {
  using Place = DownPlace;
  const uint8_t* data;
  int64_t sliceBytes;
  int panelBytes, lastPanel, cols;
  StreamType<Known> type;
  int used, shift;
  StagedRows rows;
  const ChosenExperts& chosen;

  __device__ __forceinline__ DownSource(const Matrix& down, const ChosenExperts& experts, const StagedRows& staged,
                                        int usedExperts, int splitShift)
      : data(down.data), sliceBytes(down.sliceBytes), panelBytes(down.panelBytes), lastPanel((down.rows + 15) / 16 - 1),
        cols(down.cols), type(down.type), used(usedExperts), shift(splitShift), rows(staged), chosen(experts) {}

  __device__ __forceinline__ int perExpert() const { return cols >> unitShiftOf(type); }
  __device__ __forceinline__ DownPlace place(int task) const {
    const int split = task & ((1 << shift) - 1), all = used * perExpert(), warp = static_cast<int>(threadIdx.x) / 32;
    const int first = (all * split >> shift) + warp;
    DownPlace place{0, first, (all * (split + 1) >> shift) - first};
    wrap(place);
    return place;
  }
  __device__ __forceinline__ void next(DownPlace& place) const {
    place.left -= kStreamWarps;
    place.at += kStreamWarps;
    wrap(place);
  }
  static __device__ __forceinline__ bool ends(const DownPlace& place) { return place.left <= 0; }
  __device__ __forceinline__ void panels(int task, const DownPlace& place, const uint8_t*& first, const uint8_t*& second) const {
    const int panel = 2 * (task >> shift);
    first = data + chosen.ids[place.slot] * sliceBytes + static_cast<int64_t>(panel) * panelBytes +
            place.at * unitBytesOf(type);
    second = panel < lastPanel ? first + panelBytes : first;
  }
  __device__ __forceinline__ void input(const DownPlace& place, int& first, float& times) const {
    first = place.slot * rows.stride + (place.at << unitShiftOf(type));
    times = chosen.weights[place.slot];
  }
  __device__ __forceinline__ void add(const uint8_t* block, const Lane& lane, int first, float times, float (&total)[8]) const {
    addUnit<Known>(type, block, lane, rows, first, times, total);
  }

 private:
  __device__ __forceinline__ void wrap(DownPlace& place) const {
    const int each = perExpert();
#pragma unroll 1
    for (; place.at >= each; place.at -= each) place.slot++;
  }
};

/// The shared expert's tasks, which need no more than the step before the last, then those of the chosen experts: the first
/// `expertBlocks` blocks take them in turn, the shared expert's are taken from the last block on. Rows: those of one, then of the others.
template <int Known, int KnownShared>
__device__ __forceinline__ void expertsDown(const DecodeDown& d, ChainBlock& own, int expertBlocks) {
  const StreamRoom& shared = own.room;
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x), pairs = (d.down.rows + 31) / 32;
  const int shift = d.shift, sharedShift = d.sharedShift, shares = (1 << shift) + (1 << sharedShift);
  const auto put = [&](int pair, int share, float sum) {
    const WholeSum whole = addShare(pair * shares, share, shares, sum);
    if (whole.is) own.finished.add(pair, whole.sum);
  };
  if ((mayNeedTables(Known) || mayNeedTables(KnownShared)) && shared.tableBytes > 0) {
    SharedLattice<kStreamCopies>::fill(StreamRoom::tables());
    __syncthreads();
  }
  const int sharedFirst = blocks - 1 - block, sharedTasks = pairs << sharedShift;
  if (sharedFirst < sharedTasks) {
    const float one = 1.0f;
    const StagedRows rows = stagedRows(shared.rows(), 1, d.sharedDown.cols, true);
    const PairSource<KnownShared> source(d.sharedDown, rows, one, sharedShift);
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
  const DownSource<Known> source(d.down, own.chosen, rows, d.used, shift);
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
