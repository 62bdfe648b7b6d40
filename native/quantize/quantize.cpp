#include "quantize/quantize.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace ds4 {

static constexpr Quantizer kQuantizers[] = {
    {0, 1, 4, quantizeF32},      {1, 1, 2, quantizeF16},       {30, 1, 2, quantizeBf16},  {8, 32, 34, quantizeQ8_0},
    {39, 32, 17, quantizeMxfp4}, {12, 256, 144, quantizeQ4K}, {10, 256, 84, quantizeQ2K},
    {16, 256, 66, quantizeIq2Xxs},
};

const Quantizer* findQuantizer(int32_t typeId) {
  for (const Quantizer& quantizer : kQuantizers) {
    if (quantizer.typeId == typeId) return &quantizer;
  }
  return nullptr;
}

void quantizeRows(const Quantizer& quantizer, const float* values, int64_t rows, int64_t cols,
                  const float* importance, uint8_t* out, int threads) {
  const int64_t blocks = cols / quantizer.blockValues, rowBytes = blocks * quantizer.blockBytes;
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t row; (row = next.fetch_add(1)) < rows;) {
      quantizer.run(values + row * cols, importance, blocks, out + row * rowBytes);
    }
  };
  // Started anew for each call: a call lasts many milliseconds. Too few threads are no error: the work is shared.
  std::vector<std::thread> helpers;
  const int64_t wanted = std::min<int64_t>(threads, rows) - 1;
  for (int64_t i = 0; i < wanted; i++) {
    try {
      helpers.emplace_back(work);
    } catch (const std::system_error&) {
      break;
    }
  }
  work();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace ds4
