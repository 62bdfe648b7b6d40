// Weights on their way through shared memory: every warp has a few stages of its own, filled by the copy engine (or, before
// Hopper, by asynchronous copies) while it multiplies others. What is under way costs no registers and no instructions.
#pragma once
#include "cuda/copies.cuh"

namespace ds4::cuda {

constexpr int kMostStages = 8;

/// The stages of one warp. A stage holds the same run of columns of two panels, one after the other. Lanes 0-15 speak for the
/// first panel, 16-31 for the second.
struct Ring {
  uint8_t* stages;
  uint64_t* barriers;  // one per stage
  int stageBytes, count;
  int at;           // the stage that is used next
  uint32_t parity;  // bit i: which completion of stage i is waited for

  /// `room`: warps * count * stageBytes of shared memory, a multiple of 128 each; `barriers` [warps][kMostStages].
  __device__ __forceinline__ Ring(uint8_t* room, uint64_t (*all)[kMostStages], int bytes, int stageCount)
      : stageBytes(bytes), count(stageCount), at(0), parity(0) {
    const int warp = static_cast<int>(threadIdx.x) >> 5, lane = static_cast<int>(threadIdx.x) & 31;
    stages = room + warp * count * bytes;
    barriers = all[warp];
    if (lane < count) {
      openCopyBarrier(barriers + lane);
      publishCopyBarriers();
    }
    __syncwarp();
  }
  /// Starts to fill a stage with `bytes` (a multiple of 16) of each panel, from this lane's panel on. All lanes must have read
  /// what was there.
  __device__ __forceinline__ void fill(int stage, const uint8_t* from, int bytes) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    fillHalf(stages + stage * stageBytes + (lane >> 4) * bytes, from, bytes, barriers + stage, lane);
  }
  /// Waits for the next stage; where it lies.
  __device__ __forceinline__ const uint8_t* take() {
    const int stage = at;
    waitForStage(barriers + stage, parity >> stage & 1);
    parity ^= 1u << stage;
    at = stage + 1 == count ? 0 : stage + 1;
    return stages + stage * stageBytes;
  }
};

}  // namespace ds4::cuda
