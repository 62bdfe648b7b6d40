// How much of a file the operating system keeps in its page cache.
#pragma once
#include <cstdint>

namespace ds4 {

/// Bytes of whole pages, or a negative errno. Linux tells owners of a file only; for others every page counts.
int64_t cachedBytes(int descriptor);

}  // namespace ds4
