// What the kernel tests share: seeded random numbers, a count of cases, a comparison with a stated bound.
#pragma once
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace ds4 {

/// splitmix64: the same numbers on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint32_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return static_cast<uint32_t>(z >> 32);
  }

  int below(int count) { return static_cast<int>(bits() % static_cast<uint32_t>(count)); }

  /// In [-1, 1), roughly bell-shaped.
  float value() { return (half() + half() + half()) / 3.0f; }

  std::vector<float> values(int64_t count, float scale = 1.0f) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = scale * value();
    return out;
  }

 private:
  float half() { return static_cast<float>(bits() >> 8) * 0x1p-23f - 1.0f; }

  uint64_t state_;
};

/// Counts cases and prints the failed ones.
class Report {
 public:
  /// One case: |actual - expected| <= bound for every value (a bound per value). NaN matches only NaN.
  __attribute__((format(printf, 5, 6))) void compare(const std::vector<float>& actual,
                                                     const std::vector<double>& expected,
                                                     const std::vector<double>& bounds, const char* format, ...) {
    size_t at = 0;
    bool good = actual.size() == expected.size() && bounds.size() == expected.size();
    for (; good && at < actual.size(); at++) {
      if (std::isnan(expected[at]) ? !std::isnan(actual[at])
                                   : !(std::fabs(actual[at] - expected[at]) <= bounds[at])) {
        good = false;
        break;
      }
    }
    if (good) {
      passed++;
      return;
    }
    failed++;
    va_list arguments;
    va_start(arguments, format);
    std::vprintf(format, arguments);
    va_end(arguments);
    if (at < actual.size()) {
      std::printf(": value %zu: expected %.9g, got %.9g, allowed distance %.3g\n", at, expected[at],
                  static_cast<double>(actual[at]), bounds[at]);
    } else {
      std::printf(": %zu values, expected %zu\n", actual.size(), expected.size());
    }
  }

  int passed = 0, failed = 0;
};

void testProducts(Report& report);
void testOps(Report& report);

}  // namespace ds4
