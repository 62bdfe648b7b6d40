#include "emulation/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "emulation/launch.h"

namespace emulation {

namespace {

constexpr size_t kAlignment = 256;
constexpr uint8_t kGuard = 0xa5;

struct Allocation {
  uint8_t* mapping;
  size_t mappingBytes, bytes;
};

std::map<uintptr_t, Allocation> allocations;

size_t pageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

bool isGuard(const uint8_t* from, const uint8_t* end) {
  while (from < end && *from == kGuard) from++;
  return from == end;
}

Failure writtenBeside(const char* side, const Allocation& allocation) {
  return {kIllegalAddress, std::string("bytes ") + side + " an allocation of " + std::to_string(allocation.bytes) +
                               " bytes were written"};
}

Failure checkBehind(uintptr_t address, const Allocation& allocation) {
  const uint8_t* end = reinterpret_cast<uint8_t*>(address) + allocation.bytes;
  if (isGuard(end, allocation.mapping + allocation.mappingBytes - pageBytes())) return {};
  return writtenBeside("behind", allocation);
}

}  // namespace

uintptr_t allocateDevice(size_t bytes) {
  const size_t page = pageBytes(), rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const size_t inside = (rounded + page - 1) / page * page;
  void* memory = mmap(nullptr, inside + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return 0;
  uint8_t* mapping = static_cast<uint8_t*>(memory);
  if (mprotect(mapping + page, inside, PROT_READ | PROT_WRITE) != 0) {
    munmap(memory, inside + 2 * page);
    return 0;
  }
  uint8_t* data = mapping + page + inside - rounded;
  memset(mapping + page, kGuard, inside - rounded);
  memset(data, kPoison, bytes);
  memset(data + bytes, kGuard, rounded - bytes);
  allocations[reinterpret_cast<uintptr_t>(data)] = {mapping, inside + 2 * page, bytes};
  return reinterpret_cast<uintptr_t>(data);
}

bool freeDevice(uintptr_t address, Failure& failure) {
  const auto at = allocations.find(address);
  if (at == allocations.end()) return false;
  const Allocation& allocation = at->second;
  failure = checkBehind(address, allocation);
  if (!isGuard(allocation.mapping + pageBytes(), reinterpret_cast<uint8_t*>(address))) {
    failure = writtenBeside("before", allocation);
  }
  munmap(allocation.mapping, allocation.mappingBytes);
  allocations.erase(at);
  return true;
}

void freeAllDevice() {
  for (const auto& [address, allocation] : allocations) munmap(allocation.mapping, allocation.mappingBytes);
  allocations.clear();
}

Failure checkDeviceMemory() {
  for (const auto& [address, allocation] : allocations) {
    if (Failure failure = checkBehind(address, allocation); failure.result != kSuccess) return failure;
  }
  return {};
}

bool isDeviceMemory(uintptr_t address, size_t bytes) {
  auto at = allocations.upper_bound(address);
  if (at == allocations.begin()) return false;
  --at;
  return address + bytes <= at->first + at->second.bytes;
}

}  // namespace emulation
