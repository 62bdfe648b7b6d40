// Device memory: the host's, with pages around each allocation that may not be touched, and bytes up to them that are
// looked at: whoever reads or writes beyond an allocation is found.
#pragma once
#include <cstddef>
#include <cstdint>

#include "emulation/results.h"

namespace emulation {

/// An address that is a multiple of 256, or 0. The memory holds NaN.
uintptr_t allocateDevice(size_t bytes);
/// False when it is no allocation. `failure`: where bytes beside it were written.
bool freeDevice(uintptr_t address, Failure& failure);
/// All that is left, unlooked at.
void freeAllDevice();
/// kSuccess, or what was written behind which allocation.
Failure checkDeviceMemory();
/// Whether all of `bytes` from `address` on belong to one allocation.
bool isDeviceMemory(uintptr_t address, size_t bytes);

}  // namespace emulation
