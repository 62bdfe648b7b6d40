// The device that is emulated: Hopper's limits, few multiprocessors.
#pragma once
#include <cstddef>

namespace emulation __attribute__((visibility("default"))) {

constexpr int kComputeCapability = 90;
constexpr size_t kMostSharedBytes = 227 * 1024, kFreeSharedBytes = 48 * 1024, kSharedBytesOfMultiprocessor = 228 * 1024;
constexpr unsigned kMostThreads = 1024, kMostGridYZ = 65535;

/// DS4_EMULATED_MULTIPROCESSORS (1 to 32), or 4.
unsigned multiprocessors();
/// Blocks that one multiprocessor holds at once, at 128 registers a thread.
unsigned residentBlocks(unsigned threads, size_t sharedBytes);

}  // namespace emulation
