// What the lanes of a warp do together. All lanes that have not ended take part; other masks are refused.
#pragma once
#include "emulation/block.h"

namespace emulation {

constexpr uint32_t kAllLanes = 0xffffffffu;

template <class Value>
Lanes<Value> exchangeAll(const char* what, uint32_t mask, Value value) {
  if (mask != kAllLanes) block->fail(kLaunchFailed, "%s with mask %08x: only all lanes are emulated", what, mask);
  return exchange(what, value);
}

/// Folds the values of all lanes, in their order.
template <class Value, class Fold>
Value reduce(const char* what, uint32_t mask, Value value, Fold fold) {
  const Lanes<Value> all = exchangeAll(what, mask, value);
  Value result = value;
  bool first = true;
  for (int lane = 0; lane < kWarpLanes; lane++) {
    if (!all.has(lane)) continue;
    result = first ? all[lane] : fold(result, all[lane]);
    first = false;
  }
  return result;
}

}  // namespace emulation

inline void __syncwarp(uint32_t mask = emulation::kAllLanes) { emulation::exchangeAll("__syncwarp", mask, 0); }

template <class Value>
inline Value __shfl_sync(uint32_t mask, Value value, int from) {
  return emulation::exchangeAll("__shfl_sync", mask, value)[from % emulation::kWarpLanes];
}

template <class Value>
inline Value __shfl_xor_sync(uint32_t mask, Value value, int change) {
  return emulation::exchangeAll("__shfl_xor_sync", mask, value)[emulation::current->lane ^ change];
}

template <class Value>
inline Value __shfl_up_sync(uint32_t mask, Value value, int count) {
  const auto all = emulation::exchangeAll("__shfl_up_sync", mask, value);
  const int from = emulation::current->lane - count;
  return from < 0 ? value : all[from];
}

template <class Value>
inline Value __shfl_down_sync(uint32_t mask, Value value, int count) {
  const auto all = emulation::exchangeAll("__shfl_down_sync", mask, value);
  const int from = emulation::current->lane + count;
  return from >= emulation::kWarpLanes ? value : all[from];
}

inline uint32_t __ballot_sync(uint32_t mask, bool vote) {
  const uint32_t own = vote ? 1u << emulation::current->lane : 0u;
  return emulation::reduce("__ballot_sync", mask, own, [](uint32_t a, uint32_t b) { return a | b; });
}

inline bool __all_sync(uint32_t mask, bool vote) {
  return emulation::reduce("__all_sync", mask, vote, [](bool a, bool b) { return a && b; });
}

inline bool __any_sync(uint32_t mask, bool vote) {
  return emulation::reduce("__any_sync", mask, vote, [](bool a, bool b) { return a || b; });
}

inline uint32_t __match_any_sync(uint32_t mask, int value) {
  const auto all = emulation::exchangeAll("__match_any_sync", mask, value);
  uint32_t same = 0;
  for (int lane = 0; lane < emulation::kWarpLanes; lane++) same |= all.has(lane) && all[lane] == value ? 1u << lane : 0u;
  return same;
}

template <class Value>
inline Value __reduce_add_sync(uint32_t mask, Value value) {
  return emulation::reduce("__reduce_add_sync", mask, value, [](Value a, Value b) { return a + b; });
}

template <class Value>
inline Value __reduce_max_sync(uint32_t mask, Value value) {
  return emulation::reduce("__reduce_max_sync", mask, value, [](Value a, Value b) { return a < b ? b : a; });
}

template <class Value>
inline Value __reduce_min_sync(uint32_t mask, Value value) {
  return emulation::reduce("__reduce_min_sync", mask, value, [](Value a, Value b) { return b < a ? b : a; });
}
