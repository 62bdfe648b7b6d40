#include "emulation/device.h"

#include <algorithm>
#include <cstdlib>

namespace emulation {

namespace {
constexpr unsigned kRegisters = 65536, kRegistersOfThread = 128;
constexpr size_t kReservedSharedBytes = 1024;  // per block
constexpr int kMostMultiprocessors = 32;         // a resident block is a thread of the operating system

int fromEnvironment(const char* name, int usual, int least, int most) {
  const char* text = getenv(name);
  return text == nullptr ? usual : std::clamp(atoi(text), least, most);
}
}  // namespace

unsigned multiprocessors() {
  return static_cast<unsigned>(fromEnvironment("DS4_EMULATED_MULTIPROCESSORS", 4, 1, kMostMultiprocessors));
}

size_t sharedBytesOfMultiprocessor() {
  return 1024 * static_cast<size_t>(fromEnvironment("DS4_EMULATED_SHARED_KIB", 228, 64, 228));
}

size_t mostSharedBytesOfBlock() { return sharedBytesOfMultiprocessor() - kReservedSharedBytes; }

unsigned residentBlocks(unsigned threads, size_t sharedBytes) {
  const unsigned byRegisters = kRegisters / kRegistersOfThread / std::max(threads, 1u);
  const size_t byShared = sharedBytesOfMultiprocessor() / (sharedBytes + kReservedSharedBytes);
  return std::max(1u, std::min(byRegisters, static_cast<unsigned>(byShared)));
}

}  // namespace emulation
