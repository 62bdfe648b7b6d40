// Atomic operations and fences: blocks run side by side, so they are real ones.
#pragma once
#include <atomic>

#include "emulation/block.h"

template <class Value>
inline Value atomicAdd(Value* to, Value value) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}

inline int atomicCAS(int* to, int expected, int value) {
  __atomic_compare_exchange_n(to, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}

/// Adds 1; 0 follows `last`.
inline unsigned int atomicInc(unsigned int* to, unsigned int last) {
  unsigned int before = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(to, &before, before >= last ? 0 : before + 1, true, __ATOMIC_SEQ_CST,
                                      __ATOMIC_RELAXED)) {
  }
  return before;
}

inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() {}

template <class Value>
inline Value __ldg(const Value* from) {
  return *from;
}

template <class Value>
inline Value __ldcg(const Value* from) {
  return *from;
}

template <class Value>
inline void __stcg(Value* to, Value value) {
  *to = value;
}
