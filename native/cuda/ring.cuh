// Weights on their way through shared memory: every warp has a few stages of its own, filled by the copy engine (or, before
// Hopper, by asynchronous copies) while it multiplies others. What is under way costs no registers, and no warp waits for another.
#pragma once
#include "cuda/copies.cuh"
#include "cuda/staged-rows.cuh"

namespace ds4::cuda {

constexpr int kMostStages = 8;

/// Shared memory beside the stages.
struct RingRoom {
  uint64_t full[kMostStages][kStreamWarps];  // barriers
};

/// The stages of a warp. A stage holds the same run of columns of two panels, one after the other.
struct Ring {
  RingRoom& room;
  uint8_t* own;  // where this warp's begin
  int stageBytes, count;
  int at;           // the stage that is used next
  uint32_t parity;  // bit i: which completion of stage i is waited for

  /// By the whole block. A barrier must follow. The ring has no stages yet.
  __device__ __forceinline__ explicit Ring(RingRoom& shared)
      : room(shared), own(nullptr), stageBytes(0), count(0), at(0), parity(0) {
    if (threadIdx.x < kMostStages * kStreamWarps) openCopyBarrier(&room.full[0][0] + threadIdx.x);
  }
  /// Gives the empty rings of a block other stages: `all` of them, `bytes` (a multiple of 16) of shared memory each, for all warps
  /// together; the first warps have one more where they cannot all have as many. The whole block has come by since anything was
  /// written there.
  __device__ __forceinline__ void lay(uint8_t* memory, int bytes, int all) {
    const int warp = static_cast<int>(threadIdx.x) / 32, more = all % kStreamWarps;
    stageBytes = bytes;
    count = all / kStreamWarps + (warp < more ? 1 : 0);
    own = memory + (all / kStreamWarps * warp + min(warp, more)) * bytes;
    at = 0;
    publishToCopies();
  }
  /// Starts to fill a stage with `bytes` (a multiple of 16) of each panel, by the warp.
  __device__ __forceinline__ void fill(int stage, const uint8_t* first, const uint8_t* second, int bytes) const {
    uint8_t* to = own + stage * stageBytes;
    fillStage(to, first, to + bytes, second, bytes, &room.full[stage][threadIdx.x / 32]);
  }
  /// Waits for the next stage; where it lies.
  __device__ __forceinline__ const uint8_t* take() const {
    waitForStage(&room.full[at][threadIdx.x / 32], parity >> at & 1);
    return own + at * stageBytes;
  }
  /// Gives it back, by the warp; which it was.
  __device__ __forceinline__ int release() {
    const int stage = at;
    parity ^= 1u << stage;
    at = stage + 1 == count ? 0 : stage + 1;
    __syncwarp();
    return stage;
  }
};

}  // namespace ds4::cuda
