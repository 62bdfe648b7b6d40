#include "emulation/device.h"

#include <algorithm>
#include <cstdlib>

namespace emulation {

namespace {
constexpr unsigned kRegisters = 65536, kRegistersOfThread = 128;
constexpr size_t kReservedSharedBytes = 1024;  // per block
constexpr int kMostMultiprocessors = 32;         // a resident block is a thread of the operating system
}  // namespace

unsigned multiprocessors() {
  const char* text = getenv("DS4_EMULATED_MULTIPROCESSORS");
  return text == nullptr ? 4 : static_cast<unsigned>(std::clamp(atoi(text), 1, kMostMultiprocessors));
}

unsigned residentBlocks(unsigned threads, size_t sharedBytes) {
  const unsigned byRegisters = kRegisters / kRegistersOfThread / std::max(threads, 1u);
  const size_t byShared = kSharedBytesOfMultiprocessor / (sharedBytes + kReservedSharedBytes);
  return std::max(1u, std::min(byRegisters, static_cast<unsigned>(byShared)));
}

}  // namespace emulation
