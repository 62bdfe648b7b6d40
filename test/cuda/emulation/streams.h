// Streams whose work is done at once, unless it is being captured for a graph.
#pragma once
#include <functional>
#include <vector>

#include "emulation/results.h"

namespace emulation {

/// Copies, fills and launches, in order.
using Work = std::function<Result()>;

struct Graph {
  std::vector<Work> work;
};

struct Stream {
  bool capturing = false;
  Graph captured;
};

/// Whether the driver gave out this stream and it was not destroyed.
bool isStream(const Stream* stream);
/// Does the work, or records it.
Result enqueue(Stream* stream, Work work);
/// Does the work of a graph.
Result replay(Stream* stream, const Graph& graph);

}  // namespace emulation
