// Measures how fast memory can be read: the ceiling that decode speed is judged against.
#pragma once
#include <cstddef>

namespace ds4 {

/// Bytes per second of plain sequential reads over `bytes` of fresh memory by `threads` threads, best of `rounds`.
/// `bytes` should be several times the last-level cache. Throws std::bad_alloc.
double measureReadBandwidth(size_t bytes, int threads, int rounds);

}  // namespace ds4
