// In place of native/cuda/copies.cuh, which says what each of these does. A copy comes when its barrier is waited for, so
// that whoever reads too early reads NaN. A barrier holds its phases that were begun; of waits, it sees the last one begun.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "pending_copies.h"

namespace ds4::cuda {

inline void openCopyBarrier(uint64_t* barrier) { *barrier = 0; }
inline void publishCopyBarriers() {}
inline void publishToCopies() {}

inline void fillHalf(uint8_t* to, const uint8_t* from, int bytes, uint64_t* barrier, int lane) {
  for (const void* each : {static_cast<const void*>(to), static_cast<const void*>(from)}) {
    emulation::checkAlignment(each, 16, "a bulk copy");
  }
  if (bytes <= 0 || bytes % 16 != 0) {
    emulation::block->fail(emulation::kMisalignedAddress, "a bulk copy of %d bytes, expected a multiple of 16", bytes);
  }
  if (lane == 0) ++*barrier;
  __syncwarp();
  if ((lane & 15) != 0) return;
  memset(to, emulation::kPoison, static_cast<size_t>(bytes));
  emulation::block->bulkCopies.push_back({barrier, {to, from, static_cast<size_t>(bytes)}});
}

inline void waitForStage(uint64_t* barrier, uint32_t parity) {
  if (((*barrier - 1) & 1) != parity) {
    emulation::block->fail(emulation::kLaunchFailed, "waits for parity %u of a barrier after %llu phases", parity,
                           static_cast<unsigned long long>(*barrier));
  }
  std::erase_if(emulation::block->bulkCopies, [&](const auto& each) {
    if (each.first == barrier) emulation::finish(each.second);
    return each.first == barrier;
  });
}

}  // namespace ds4::cuda
