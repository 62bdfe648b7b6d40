#include "emulation/workers.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "emulation/faults.h"

namespace emulation {

namespace {

struct Pool {
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::function<void()>> tasks;
  size_t free = 0;
};

/// Never destroyed: workers wait in it when the process ends.
Pool& pool() {
  static Pool& only = *new Pool;
  return only;
}

void workForever() {
  reportFaultsOfThisThread();
  Pool& own = pool();
  std::unique_lock lock(own.mutex);
  while (true) {
    own.wake.wait(lock, [&] { return !own.tasks.empty(); });
    const std::function<void()> task = std::move(own.tasks.back());
    own.tasks.pop_back();
    own.free--;
    lock.unlock();
    task();
    lock.lock();
    own.free++;
  }
}

}  // namespace

void runOnWorker(std::function<void()> task) {
  Pool& own = pool();
  const std::lock_guard lock(own.mutex);
  own.tasks.push_back(std::move(task));
  if (own.tasks.size() > own.free) {
    std::thread(workForever).detach();
    own.free++;
  }
  own.wake.notify_one();
}

}  // namespace emulation
