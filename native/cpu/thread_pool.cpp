#include "cpu/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#define DS4_PAUSE() _mm_pause()
#elif defined(__aarch64__)
#define DS4_PAUSE() asm volatile("yield")
#else
#define DS4_PAUSE()
#endif

namespace ds4 {

namespace {

// A decode step is a chain of regions some microseconds apart: spinning that long keeps workers ready, parking
// after it leaves the cores to others between requests.
constexpr int kSpinRounds = 20000;

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> workers;
  std::atomic<uint64_t> generation{0};  // one more per region; the workers' signal
  std::atomic<int64_t> next{0};
  std::atomic<int> running{0};
  std::atomic<int> parked{0};
  std::atomic<bool> stopping{false};
  int64_t count = 0;
  const std::function<void(int64_t, int)>* body = nullptr;
  std::mutex mutex;
  std::condition_variable wake;

  void drain(int thread) {
    for (;;) {
      const int64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= count) return;
      (*body)(index, thread);
    }
  }

  void work(int thread) {
    uint64_t seen = 0;
    for (;;) {
      int spins = 0;
      while (generation.load(std::memory_order_acquire) == seen) {
        if (++spins < kSpinRounds) {
          DS4_PAUSE();
          continue;
        }
        std::unique_lock<std::mutex> lock(mutex);
        parked.fetch_add(1);
        wake.wait(lock, [&] { return generation.load(std::memory_order_acquire) != seen; });
        parked.fetch_sub(1);
      }
      seen++;
      if (stopping.load(std::memory_order_acquire)) return;
      drain(thread);
      running.fetch_sub(1, std::memory_order_release);
    }
  }

  void signal() {
    generation.fetch_add(1, std::memory_order_seq_cst);
    if (parked.load(std::memory_order_seq_cst) == 0) return;
    // Taking the lock closes the gap between a worker's last look and its wait.
    { std::lock_guard<std::mutex> lock(mutex); }
    wake.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  for (int thread = 1; thread < threads; thread++) {
    state_->workers.emplace_back([state = state_.get(), thread] { state->work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true, std::memory_order_release);
  state_->generation.fetch_add(1, std::memory_order_seq_cst);
  { std::lock_guard<std::mutex> lock(state_->mutex); }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::size() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::run(int64_t count, const std::function<void(int64_t, int)>& body) {
  if (count <= 0) return;
  if (count == 1 || state_->workers.empty()) {
    for (int64_t index = 0; index < count; index++) body(index, 0);
    return;
  }
  State& state = *state_;
  state.count = count;
  state.body = &body;
  state.next.store(0, std::memory_order_relaxed);
  state.running.store(static_cast<int>(state.workers.size()), std::memory_order_relaxed);
  state.signal();
  state.drain(0);
  while (state.running.load(std::memory_order_acquire) != 0) DS4_PAUSE();
}

}  // namespace ds4
