// In place of native/cuda/intrinsics.cuh, which says what each of these does.
#pragma once
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "pending_copies.h"
#include "tiles.h"

namespace ds4::cuda {

template <class Value>
inline Value loadConstant(const void* from) {
  emulation::checkAlignment(from, sizeof(Value), "a constant load");
  return *static_cast<const Value*>(from);
}

inline uint4 loadStream16(const uint8_t* from) { return loadConstant<uint4>(from); }

inline void multiplyTile(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  const auto byteOf = [](uint32_t word, int at) { return static_cast<int8_t>(word >> (8 * at)); };
  emulation::multiplyTiles<int8_t, 4, int>("a product of bytes", c, {a0, a1, a2, a3}, {b0, b1}, byteOf);
}

inline void multiplyTileAlone(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  for (int& each : c) each = 0;
  multiplyTile(c, a0, a1, a2, a3, b0, b1);
}

/// To the nearest, ties away from zero.
inline uint32_t toTf32(float value) { return (__float_as_uint(value) + 0x1000u) & 0xffffe000u; }

inline void multiplyTf32(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  const auto numberOf = [](uint32_t word, int) { return __uint_as_float(word & 0xffffe000u); };
  emulation::multiplyTiles<float, 1, double>("a product of tf32 numbers", c, {a0, a1, a2, a3}, {b0, b1}, numberOf);
}

inline void copyAsync16(void* shared, const void* global) { emulation::startCopy16(shared, global); }
inline void closeCopyGroup() { emulation::closeGroup(); }

template <int Pending>
inline void waitCopyGroups() {
  emulation::finishGroups(Pending);
}

inline unsigned int countArrival(unsigned int* counter, unsigned int last) { return atomicInc(counter, last); }

inline unsigned int addRelease(unsigned int* counter, unsigned int value) {
  const unsigned int before = __atomic_fetch_add(counter, value, __ATOMIC_RELEASE);
  emulation::block->launch->noteProgress();
  return before;
}

/// Whoever looks at a counter of other blocks may have to wait for them.
inline unsigned int loadAcquire(const unsigned int* counter) {
  emulation::block->waitForOthers();
  return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

inline float halfBits(uint32_t bits) { return halfToFloat(static_cast<uint16_t>(bits)); }

inline uint32_t pickBytes(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  uint32_t picked = 0;
  for (int i = 0; i < 4; i++) {
    picked |= static_cast<uint32_t>(both >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
  }
  return picked;
}

inline uint32_t opaque(uint32_t value) { return value; }
template <class Value>
inline const Value* opaque(const Value* address) {
  return address;
}
inline uint8_t* dynamicShared() { return emulation::block->dynamicMemory(); }

}  // namespace ds4::cuda
