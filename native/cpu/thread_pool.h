// A fixed team of threads for short parallel regions; the caller is one of them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace ds4 {

class ThreadPool {
 public:
  /// `threads` >= 1 counts the caller.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  /// Runs body(index) for every index in [0, count), handed out in order from one shared counter, and returns
  /// when all are done. Not reentrant. Workers spin briefly after a region, then sleep.
  void run(int64_t count, const std::function<void(int64_t index, int thread)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ds4
