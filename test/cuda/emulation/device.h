// The device that is emulated: Hopper's limits, few multiprocessors. The environment gives it those of another.
#pragma once
#include <cstddef>

namespace emulation __attribute__((visibility("default"))) {

constexpr int kComputeCapability = 90;
constexpr size_t kFreeSharedBytes = 48 * 1024;
constexpr unsigned kMostThreads = 1024, kMostGridYZ = 65535;

/// DS4_EMULATED_MULTIPROCESSORS (1 to 32), or 4.
unsigned multiprocessors();
/// DS4_EMULATED_SHARED_KIB (64 to 228), or 228.
size_t sharedBytesOfMultiprocessor();
/// With permission: what the driver does not keep.
size_t mostSharedBytesOfBlock();
/// Blocks that one multiprocessor holds at once, at 128 registers a thread.
unsigned residentBlocks(unsigned threads, size_t sharedBytes);

}  // namespace emulation
