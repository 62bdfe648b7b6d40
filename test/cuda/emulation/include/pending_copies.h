// Asynchronous copies: they come when they are waited for, and the place holds NaN until then.
#pragma once
#include <cstring>
#include <vector>

#include "emulation/block.h"
#include "emulation/launch.h"

namespace emulation {

inline void finish(const PendingCopy& copy) {
  if (copy.from == nullptr) memset(copy.to, 0, copy.bytes);
  else memcpy(copy.to, copy.from, copy.bytes);
}

/// `from` null: zeros.
inline void startCopy16(void* to, const void* from) {
  constexpr size_t kBytes = 16;
  checkAlignment(to, kBytes, "an asynchronous copy");
  checkAlignment(from, kBytes, "an asynchronous copy");
  memset(to, kPoison, kBytes);
  current->copies.push_back({to, from, kBytes});
}

inline void closeGroup() { current->copies.push_back({nullptr, nullptr, 0}); }

/// All copies but those of the last `pending` closed groups have come.
inline void finishGroups(int pending) {
  std::vector<PendingCopy>& copies = current->copies;
  size_t end = copies.size();
  while (end > 0 && copies[end - 1].bytes != 0) end--;  // of no group yet
  for (int kept = 0; end > 0 && kept < pending; kept++) {
    end--;
    while (end > 0 && copies[end - 1].bytes != 0) end--;
  }
  for (size_t i = 0; i < end; i++) {
    if (copies[i].bytes != 0) finish(copies[i]);
  }
  copies.erase(copies.begin(), copies.begin() + static_cast<ptrdiff_t>(end));
}

/// Copies that complete on a barrier in shared memory.
inline void startBulkCopy(void* to, const void* from, int bytes, uint64_t* barrier) {
  constexpr size_t kUnit = 16;
  checkAlignment(to, kUnit, "a bulk copy");
  checkAlignment(from, kUnit, "a bulk copy");
  if (bytes <= 0 || bytes % kUnit != 0) {
    block->fail(kMisalignedAddress, "a bulk copy of %d bytes, expected a multiple of %zu", bytes, kUnit);
  }
  memset(to, kPoison, static_cast<size_t>(bytes));
  block->bulkCopies.push_back({barrier, {to, from, static_cast<size_t>(bytes)}});
  block->wake();
}

/// All copies of a barrier have come. False: none was begun.
inline bool finishBulkCopies(const uint64_t* barrier) {
  return std::erase_if(block->bulkCopies, [&](const auto& each) {
           if (each.first == barrier) finish(each.second);
           return each.first == barrier;
         }) > 0;
}

}  // namespace emulation
