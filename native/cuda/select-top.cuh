// The largest of many keys, exactly, by one block: radix select over unsigned keys, then compaction in ascending order of the
// indices. Up to five passes over the keys; the first eight of each lane stay in registers.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace ds4::cuda {

constexpr int kSelectThreads = 1024, kSelectWarps = kSelectThreads / 32, kSelectBins = 2048;
constexpr int kHeldKeys = 8;  // keys of a lane that stay in registers

struct SelectRoom {
  int bins[kSelectBins];
  int sums[kSelectWarps], above[kSelectWarps], equal[kSelectWarps];
  int bin, inBin, left;
};

/// Of the keys counted in room.bins, the bin that holds the `want`-th largest, how many it holds and how many of them are
/// wanted. Leaves zeros in the bins.
__device__ inline void findBin(SelectRoom& room, int bins, int want) {
  static_assert(kSelectBins == 2 * kSelectThreads);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // Thread t looks after two bins, from the top.
  const int top = bins - 1 - 2 * static_cast<int>(threadIdx.x);
  int counts[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    counts[i] = top - i >= 0 ? room.bins[top - i] : 0;
    if (top - i >= 0) room.bins[top - i] = 0;
  }
  const int own = counts[0] + counts[1];
  int through = own;  // inclusive sum over the threads before and this
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, through, step);
    if (lane >= step) through += other;
  }
  if (lane == 31) room.sums[warp] = through;
  __syncthreads();
  const int before = through - own + __reduce_add_sync(0xffffffffu, lane < warp ? room.sums[lane] : 0);
  if (before < want && before + own >= want) {
    const int second = before + counts[0] < want ? 1 : 0;
    room.bin = top - second;
    room.inBin = second ? counts[1] : counts[0];
    room.left = want - before - (second ? counts[0] : 0);
  }
  __syncthreads();
}

/// Calls emit(place, i) for the `keep` largest of key(0 .. count - 1), places ascending with i; equal keys: lower i first.
/// All threads of the block; count > keep > 0. Each warp owns a run of indices, whose first keys its lanes hold.
template <class Key, class Emit>
__device__ void selectTop(SelectRoom& room, int count, int keep, Key key, Emit emit) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int run = (count + kSelectThreads - 1) / kSelectThreads * 32;
  const int first = warp * run, end = min(count, first + run);
  uint32_t held[kHeldKeys];
#pragma unroll
  for (int k = 0; k < kHeldKeys; k++) held[k] = first + 32 * k + lane < end ? key(first + 32 * k + lane) : 0;
  // visit(base, inside, key) of the warp's indices, 32 at a time.
  const auto forKeys = [&](auto visit) {
#pragma unroll
    for (int k = 0; k < kHeldKeys; k++) {
      const int base = first + 32 * k;
      if (base < end) visit(base, base + lane < end, held[k]);
    }
    for (int base = first + 32 * kHeldKeys; base < end; base += 32) {
      const bool inside = base + lane < end;
      visit(base, inside, inside ? key(base + lane) : 0);
    }
  };
  for (int i = threadIdx.x; i < kSelectBins; i += kSelectThreads) room.bins[i] = 0;
  __syncthreads();
  uint32_t prefix = 0, mask = 0;
  int want = keep, shift = 32;
#pragma unroll 1
  for (int pass = 0; pass < 3; pass++) {
    const int width = pass < 2 ? 11 : 10, bins = 1 << width;
    shift -= width;
    forKeys([&](int, bool inside, uint32_t value) {
      if (inside && (value & mask) == prefix) atomicAdd(&room.bins[value >> shift & (bins - 1)], 1);
    });
    __syncthreads();
    findBin(room, bins, want);
    prefix |= static_cast<uint32_t>(room.bin) << shift;
    mask |= static_cast<uint32_t>(bins - 1) << shift;
    want = room.left;
    if (want == room.inBin) break;  // the bin's keys are all wanted: no need to tell them apart
  }
  // What counts of the smallest chosen key is `prefix`, `want` how many equal to it are chosen.
  int above = 0, equal = 0;
  forKeys([&](int, bool inside, uint32_t value) {
    above += inside && (value & mask) > prefix;
    equal += inside && (value & mask) == prefix;
  });
  above = __reduce_add_sync(0xffffffffu, above);
  equal = __reduce_add_sync(0xffffffffu, equal);
  if (lane == 0) {
    room.above[warp] = above;
    room.equal[warp] = equal;
  }
  __syncthreads();
  above = __reduce_add_sync(0xffffffffu, lane < warp ? room.above[lane] : 0);
  equal = __reduce_add_sync(0xffffffffu, lane < warp ? room.equal[lane] : 0);
  const uint32_t earlier = (1u << lane) - 1;
  forKeys([&](int base, bool inside, uint32_t whole) {
    const uint32_t value = whole & mask;
    const uint32_t aboveLanes = __ballot_sync(0xffffffffu, inside && value > prefix);
    const uint32_t equalLanes = __ballot_sync(0xffffffffu, inside && value == prefix);
    const int equalBefore = equal + __popc(equalLanes & earlier);
    const int place = above + __popc(aboveLanes & earlier) + min(equalBefore, want);
    if (inside && (value > prefix || (value == prefix && equalBefore < want))) emit(place, base + lane);
    above += __popc(aboveLanes);
    equal += __popc(equalLanes);
  });
}

}  // namespace ds4::cuda
