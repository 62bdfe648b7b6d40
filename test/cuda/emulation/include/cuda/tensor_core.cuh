// In place of native/cuda/tensor_core.cuh, which says what each of these does.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "pending_copies.h"
#include "tiles.h"

namespace ds4::cuda {

inline void multiplyHalf(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  const auto halfOf = [](uint32_t word, int at) { return halfToFloat(static_cast<uint16_t>(word >> (16 * at))); };
  emulation::multiplyTiles<float, 2, double>("a product of halves", c, {a0, a1, a2, a3}, {b0, b1}, halfOf);
}

inline void loadTiles(uint32_t (&tiles)[4], const __half* row) {
  emulation::checkAlignment(row, 16, "a load of tiles");
  const int lane = emulation::current->lane;
  const auto rows = emulation::exchange("a load of tiles", row);
  for (int i = 0; i < 4; i++) memcpy(&tiles[i], rows[8 * i + lane / 4] + 2 * (lane % 4), sizeof tiles[i]);
}

inline void loadTilesTransposed(uint32_t (&tiles)[4], const __half* row) {
  emulation::checkAlignment(row, 16, "a load of tiles");
  const int lane = emulation::current->lane, column = lane / 4;
  const auto rows = emulation::exchange("a load of transposed tiles", row);
  for (int i = 0; i < 4; i++) {
    const int first = 8 * i + 2 * (lane % 4);
    tiles[i] = rows[first][column].bits | static_cast<uint32_t>(rows[first + 1][column].bits) << 16;
  }
}

inline void copyOrZero16(void* shared, const void* global, bool valid) {
  emulation::checkAlignment(global, 16, "an asynchronous copy");
  emulation::startCopy16(shared, valid ? global : nullptr);
}

inline void waitForCopies() {
  emulation::closeGroup();
  emulation::finishGroups(0);
}

inline uint32_t packHalves(float low, float high) {
  return floatToHalf(low) | static_cast<uint32_t>(floatToHalf(high)) << 16;
}

}  // namespace ds4::cuda
