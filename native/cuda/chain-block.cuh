// What a block keeps from step to step while one token is decoded (decode-chain.cu).
#pragma once
#include "cuda/hyper-join.cuh"
#include "cuda/stream-rows.cuh"

namespace ds4::cuda {

/// The parts of a block that all steps use.
struct ChainBlock {
  Ring& ring;
  GridBarrier& barrier;
  StreamRoom room;

  /// Waits for the step before; where this step's input is joined first, for that too.
  __device__ __forceinline__ void ready(const HyperJoin& join) const {
    if (join.streams == nullptr) barrier.wait();
    else joinStreams(join, joinRoom(), barrier);
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
