#include "emulation/launch.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "emulation/kernel-table.h"
#include "emulation/workers.h"

namespace emulation {

namespace {

/// Naps of each block, all of which wait for each other with nothing happening: about two seconds. Counted, not timed: a machine
/// that stands still is no deadlock.
constexpr int64_t kPatienceNaps = 20'000;
constexpr auto kNap = std::chrono::microseconds(50);

}  // namespace

Launch::Launch(const Kernel& which, const Shape& how, std::function<void()> call)
    : kernel(which), shape(how), body(std::move(call)), total_(how.grid.x * how.grid.y * how.grid.z),
      most_(multiprocessors() * residentBlocks(how.threads, how.sharedBytes)) {}

Failure Launch::run() {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const unsigned first = std::min({cores, total_, most_});
  for (unsigned i = 0; i < first; i++) startWorker();
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return workers_ == 0; });
  return failure_;
}

void Launch::startWorker() {
  workers_++;
  noteProgress();
  runOnWorker([this] { work(); });
}

void Launch::work() {
  thread_local Block own;
  while (!failed()) {
    const unsigned n = next_++;
    if (n >= total_) break;
    own.run(*this, {n % shape.grid.x, n / shape.grid.x % shape.grid.y, n / shape.grid.x / shape.grid.y});
    noteProgress();
  }
  const std::lock_guard lock(mutex_);
  workers_--;
  ended_.notify_all();
}

void Launch::fail(Failure failure) {
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  failure_ = std::move(failure);
  failed_ = true;
}

std::string Launch::place(const Dim& at, const Thread* thread) const {
  std::string text = std::string("kernel ") + kernel.name + ", block (" + std::to_string(at.x) + ", " +
                     std::to_string(at.y) + ", " + std::to_string(at.z) + ")";
  if (thread != nullptr) text += ", thread " + std::to_string(thread->index.x);
  return text;
}

void Launch::poisonSharedVariables() const {
  const SharedVariables shared = kernel.module->sharedVariables();
  memset(shared.data, kPoison, shared.bytes);
}

bool Launch::allWait() const {
  const bool startable = next_ < total_ && workers_ < most_;
  return !startable && idle_ >= static_cast<int>(workers_.load());
}

void Launch::countIdle(int change) {
  idle_ += change;
  noteProgress();
}

void Launch::noteProgress() { naps_ = 0; }

bool Launch::waitForOthers(bool idle) {
  if (!idle) {
    std::this_thread::yield();
    return !failed();
  }
  {
    // Two that see room for one more would start two.
    const std::lock_guard lock(mutex_);
    if (next_ < total_ && workers_ < most_) startWorker();
  }
  std::this_thread::sleep_for(kNap);
  if (!allWait() || ++naps_ < kPatienceNaps * static_cast<int64_t>(workers_.load())) return !failed();
  fail({kLaunchTimeout, std::string("kernel ") + kernel.name + ": deadlock: " + std::to_string(workers_) + " of " +
                            std::to_string(total_) + " blocks wait for others; the device holds " +
                            std::to_string(most_) + " at once"});
  return false;
}

}  // namespace emulation
