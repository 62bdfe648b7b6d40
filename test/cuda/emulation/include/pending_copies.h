// Asynchronous copies of one thread: they come when they are waited for, and the place holds NaN until then.
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

}  // namespace emulation
