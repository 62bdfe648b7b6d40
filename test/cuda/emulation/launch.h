// A launch: its blocks, run by as many threads of the operating system as there are cores, in the order of their numbers.
// A block that waits for others lets one more start, up to as many as the device would hold at once: so kernels that meet
// across the grid run, and one whose blocks would not all be resident is found.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "emulation/block.h"
#include "emulation/device.h"

namespace emulation __attribute__((visibility("default"))) {

/// NaN in float32 and float16: what memory holds that nobody has written.
constexpr unsigned char kPoison = 0xff;
constexpr size_t kSharedAlignment = 128;

struct Shape {
  Dim grid;
  unsigned threads = 1;
  size_t sharedBytes = 0;
};

struct Kernel;

class Launch {
 public:
  Launch(const Kernel& kernel, const Shape& shape, std::function<void()> body);
  /// Runs all blocks; what went wrong, if anything.
  Failure run();

  const Kernel& kernel;
  const Shape shape;
  const std::function<void()> body;

  /// The first failure counts.
  void fail(Failure failure);
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  /// "kernel NAME, block (x, y, z), thread n".
  std::string place(const Dim& block, const Thread* thread) const;
  void poisonSharedVariables() const;

  /// A block has nothing to do until others have done something. `idle`: it looked before, in vain. False: the launch failed.
  bool waitForOthers(bool idle);
  /// A block became idle (1), or is no longer (-1).
  void countIdle(int change);
  /// Something happened that another block may wait for.
  void noteProgress();

 private:
  void startWorker();
  void work();
  bool allWait() const;

  const unsigned total_;
  const unsigned most_;  // blocks that the device would hold
  std::atomic<unsigned> next_{0};
  std::atomic<int> idle_{0};
  std::atomic<int64_t> naps_{0};  // of all blocks, since something happened last
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  std::atomic<unsigned> workers_{0};
  Failure failure_;
};

}  // namespace emulation
