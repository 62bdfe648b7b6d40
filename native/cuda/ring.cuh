// Weights on their way through shared memory: a block has a few stages, filled by the copy engine (or, before Hopper, by
// asynchronous copies) while its warps multiply others. What is under way costs no registers and no instructions.
#pragma once
#include "cuda/copies.cuh"
#include "cuda/staged-rows.cuh"

namespace ds4::cuda {

constexpr int kMostStages = 8;

/// Shared memory beside the stages.
struct RingRoom {
  uint64_t full[kMostStages];      // barriers
  unsigned int used[kMostStages];  // warps that have read a stage
};

/// The stages of a block. A stage holds the same run of columns of two panels, one panel after the other: a unit of both for every
/// warp. All warps take all stages in turn; whoever gives one back last fills it again.
struct Ring {
  RingRoom& room;
  uint8_t* stages;
  int stageBytes, count;
  int at;           // the stage that is used next
  uint32_t parity;  // bit i: which completion of stage i is waited for

  /// By the whole block. A barrier must follow. The ring has no stages yet.
  __device__ __forceinline__ explicit Ring(RingRoom& shared)
      : room(shared), stages(nullptr), stageBytes(0), count(0), at(0), parity(0) {
    if (threadIdx.x >= kMostStages) return;
    openCopyBarrier(room.full + threadIdx.x);
    room.used[threadIdx.x] = 0;
  }
  /// Gives an empty ring other stages: stageCount * bytes of shared memory, a multiple of 128 each. The whole block has come by
  /// since anything was written there.
  __device__ __forceinline__ void lay(uint8_t* memory, int bytes, int stageCount) {
    stages = memory;
    stageBytes = bytes;
    count = stageCount;
    at = 0;
    publishToCopies();
  }
  /// Starts to fill a stage with `bytes` (a multiple of 16) of each panel, the second `apart` bytes behind the first; by one warp.
  __device__ __forceinline__ void fill(int stage, const uint8_t* first, const uint8_t* second, int bytes, int apart) {
    uint8_t* to = stages + stage * stageBytes;
    fillStage(to, first, to + apart, second, bytes, room.full + stage);
  }
  /// Waits for the next stage; where it lies.
  __device__ __forceinline__ const uint8_t* take() const {
    waitForStage(room.full + at, parity >> at & 1);
    return stages + at * stageBytes;
  }
  /// Gives it back, by each warp. Which stage it was where this warp was the last, else -1.
  __device__ __forceinline__ int release() {
    const int stage = at;
    parity ^= 1u << stage;
    at = stage + 1 == count ? 0 : stage + 1;
    __syncwarp();
    unsigned int before = 0;
    if (threadIdx.x % 32 == 0) before = countInBlock(room.used + stage, kStreamWarps - 1);
    before = __shfl_sync(0xffffffffu, before, 0);
    return before == kStreamWarps - 1 ? stage : -1;
  }
};

}  // namespace ds4::cuda
