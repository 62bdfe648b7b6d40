// Threads of the operating system that run blocks. They stay for the next launch.
#pragma once
#include <functional>

namespace emulation {

/// Runs a task on a thread that has nothing to do, or a new one.
void runOnWorker(std::function<void()> task);

}  // namespace emulation
