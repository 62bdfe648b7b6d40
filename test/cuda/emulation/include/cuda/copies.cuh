// In place of native/cuda/copies.cuh, which says what each of these does. A copy comes when its barrier is waited for, so that
// whoever reads too early reads NaN. A barrier holds how many of its phases are complete.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "pending_copies.h"

namespace ds4::cuda {

inline void openCopyBarrier(uint64_t* barrier) { *barrier = 0; }
inline void publishCopyBarriers() {}
inline void publishToCopies() {}

inline void fillHalf(uint8_t* to, const uint8_t* from, int bytes, uint64_t* barrier, int lane) {
  if ((lane & 15) == 0) emulation::startBulkCopy(to, from, bytes, barrier);
  __syncwarp();
}

inline void fillStage(uint8_t* to, const uint8_t* from, uint8_t* secondTo, const uint8_t* secondFrom, int bytes,
                      uint64_t* barrier) {
  if (emulation::current->lane == 0) {
    emulation::startBulkCopy(to, from, bytes, barrier);
    emulation::startBulkCopy(secondTo, secondFrom, bytes, barrier);
  }
  __syncwarp();
}

inline void waitForStage(uint64_t* barrier, uint32_t parity) {
  while ((*barrier & 1) == parity) {
    if (emulation::finishBulkCopies(barrier)) ++*barrier;
    else emulation::block->sleep("a copy that nobody began");
  }
}

}  // namespace ds4::cuda
