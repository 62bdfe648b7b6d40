// What a block keeps from step to step while one token is decoded (decode-chain.cu).
#pragma once
#include "cuda/hyper-join.cuh"
#include "cuda/stream-rows.cuh"

namespace ds4::cuda {

/// Tasks of a block whose sums may wait for the end of a step.
constexpr int kMostFinishedPairs = 32;

/// Outputs that one warp each has summed and the whole block finishes, once its other tasks are done: on a warp alone every
/// instruction waits for the one before.
struct FinishedPairs {
  TailRoom room;
  float outputs[kMostFinishedPairs][32];
  int pairs[kMostFinishedPairs];
  int count;

  /// By a warp, lane l with the output of column 32 * pair + l.
  __device__ __forceinline__ void add(int pair, float output) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    int slot = 0;
    if (lane == 0) slot = atomicAdd(&count, 1);
    slot = __shfl_sync(0xffffffffu, slot, 0);
    outputs[slot][lane] = output;
    if (lane == 0) pairs[slot] = pair;
  }
  /// By the block; all have been added.
  __device__ __forceinline__ void finish(const HyperTail& tail) {
    const int all = count;
#pragma unroll 1
    for (int i = 0; i < all; i++) {
      finishBlock(tail, pairs[i], outputs[i][threadIdx.x & 31], room);
      __syncthreads();
    }
    if (all > 0 && threadIdx.x == 0) count = 0;
  }
};

constexpr int kMostUsedExperts = 32;

/// The experts of this layer, in shared memory.
struct ChosenExperts {
  int32_t ids[kMostUsedExperts];
  float weights[kMostUsedExperts];
};

/// The parts of a block that all steps use.
struct ChainBlock {
  Ring& ring;
  GridBarrier& barrier;
  FinishedPairs& finished;
  ChosenExperts& chosen;
  StreamRoom room;

  /// Waits for the step before; where this step's input is joined first, for that too.
  __device__ __forceinline__ void ready(const HyperJoin& join) const {
    if (join.streams == nullptr) barrier.wait();
    else barrier = joinStreams(join, joinRoom(), barrier);
  }
  /// What the last block does beside: what is needed when the output of what reads the joined input is written.
  __device__ __forceinline__ void balance(const HyperJoin& join) const {
    if (join.streams != nullptr && join.comb != nullptr && blockIdx.x == gridDim.x - 1) balanceStreams(join, joinRoom());
  }

 private:
  // Sums of tasks come later, or were before.
  __device__ __forceinline__ JoinRoom& joinRoom() const { return *reinterpret_cast<JoinRoom*>(room.sums()); }
};

}  // namespace ds4::cuda
