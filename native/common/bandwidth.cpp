#include "common/bandwidth.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace ds4 {

namespace {

// Eight independent sums, so that the loop waits for memory and not for the adder.
uint64_t sumWords(const uint64_t* words, size_t count) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; lane++) sums[lane] += words[i + lane];
  }
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

double measureReadBandwidth(size_t bytes, int threads, int rounds) {
  const size_t wordsPerThread = bytes / sizeof(uint64_t) / threads / 8 * 8;
  std::unique_ptr<uint64_t[]> memory(new uint64_t[wordsPerThread * threads]);
  // Written first: untouched pages would all be the one zero page, which stays in the cache.
  std::memset(memory.get(), 1, wordsPerThread * threads * sizeof(uint64_t));
  std::atomic<uint64_t> sink{0};
  double best = 0;
  for (int round = 0; round < rounds; round++) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> team;
    for (int t = 0; t < threads; t++) {
      team.emplace_back([&, t] { sink += sumWords(memory.get() + t * wordsPerThread, wordsPerThread); });
    }
    for (std::thread& worker : team) worker.join();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const double rate = static_cast<double>(wordsPerThread * threads * sizeof(uint64_t)) / seconds.count();
    if (rate > best) best = rate;
  }
  // Uses the sums, so that the compiler cannot drop the reads.
  return sink.load() == 42 ? best + 1 : best;
}

}  // namespace ds4
