// Exact top-k of the indexer's scores: radix select over order-preserving keys, then ascending compaction. Up to five
// passes over 4 bytes per entry, in registers up to 8,192 entries, then the first from L2, the rest from L1 up to about 40,000: limited by one block's share of
// shared-memory atomics and loads (a few microseconds at 25,000 entries). Longer rows are cut into chunks whose own best
// are found by one block each (`select_chunks`), then merged (`select_merged`): chunks are in order, so ties stay exact.
#include "cuda/overlap.cuh"
#include "decode_state.cuh"
#include "reductions.cuh"

namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32, kBins = 2048;
constexpr int kHeld = 8;  // keys of a lane that stay in registers

struct Room {
  int bins[kBins];
  int sums[kWarps], above[kWarps], equal[kWarps];
  int bin, inBin, left;
};

// Larger score, larger key; NaN as -infinity, both zeros alike.
__device__ uint32_t orderedKey(float score) {
  const uint32_t bits = __float_as_uint(isnan(score) ? -INFINITY : score + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Of the keys counted in room.bins, the bin that holds the `want`-th largest, how many it holds and how many of them are
// wanted. Leaves zeros in the bins.
__device__ void findBin(Room& room, int bins, int want) {
  static_assert(kBins == 2 * kThreads);
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

// Calls emit(place, i) for the `keep` largest of key(0 .. count - 1), places ascending with i; equal keys: lower i first.
// All threads of the block; count > keep > 0. Each warp owns a run of indices, whose first keys its lanes hold.
template <class Key, class Emit>
__device__ void selectTop(Room& room, int count, int keep, Key key, Emit emit) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int run = (count + kThreads - 1) / kThreads * 32;
  const int first = warp * run, end = min(count, first + run);
  uint32_t held[kHeld];
#pragma unroll
  for (int k = 0; k < kHeld; k++) held[k] = first + 32 * k + lane < end ? key(first + 32 * k + lane) : 0;
  // visit(base, inside, key) of the warp's indices, 32 at a time.
  const auto forKeys = [&](auto visit) {
#pragma unroll
    for (int k = 0; k < kHeld; k++) {
      const int base = first + 32 * k;
      if (base < end) visit(base, base + lane < end, held[k]);
    }
    for (int base = first + 32 * kHeld; base < end; base += 32) {
      const bool inside = base + lane < end;
      visit(base, inside, inside ? key(base + lane) : 0);
    }
  };
  for (int i = threadIdx.x; i < kBins; i += kThreads) room.bins[i] = 0;
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

__device__ void selectAll(int visible, int32_t* selected) {
  for (int i = threadIdx.x; i < visible; i += kThreads) selected[i] = i;
}

}  // namespace

/// A block per token of this launch (firstToken + blockIdx.x of the sequence): selected [count, topK] ascending,
/// counts [count]; scores of token i of the launch at scores + i * scoreStride.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    select_entries(const DecodeState* state, int firstToken, const float* scores,
                   int64_t scoreStride, int ratio, int topK, int32_t* selected, int32_t* counts) {
  __shared__ Room room;
  ds4::cuda::waitForPrevious();
  ds4::cuda::letNextStart();
  const int token = firstToken + blockIdx.x;
  if (token >= state->count) return;
  const int visible = (state->start + token + 1) / ratio;
  int32_t* chosen = selected + static_cast<int64_t>(token) * topK;
  if (threadIdx.x == 0) counts[token] = min(visible, topK);
  if (visible <= topK) {
    selectAll(visible, chosen);
    return;
  }
  const float* row = scores + blockIdx.x * scoreStride;
  selectTop(
      room, visible, topK, [&](int i) { return orderedKey(row[i]); }, [&](int place, int i) { chosen[place] = i; });
}

/// Grid (chunks, tokens of the launch): the topK best of each chunk of `chunk` entries (more than topK) go to
/// candidates [tokens of the launch, chunks, topK].
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    select_chunks(const DecodeState* state, int firstToken, const float* scores,
                  int64_t scoreStride, int ratio, int topK, int chunk, int32_t* candidates) {
  __shared__ Room room;
  ds4::cuda::letNextStart();
  ds4::cuda::waitForPrevious();
  const int token = firstToken + blockIdx.y;
  if (token >= state->count) return;
  const int visible = (state->start + token + 1) / ratio;
  const int first = blockIdx.x * chunk, count = min(chunk, visible - first);
  if (visible <= topK || count <= 0) return;
  int32_t* best = candidates + (static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * topK;
  const float* row = scores + blockIdx.y * scoreStride + first;
  if (count <= topK) {
    for (int i = threadIdx.x; i < count; i += kThreads) best[i] = first + i;
    return;
  }
  selectTop(
      room, count, topK, [&](int i) { return orderedKey(row[i]); }, [&](int place, int i) { best[place] = first + i; });
}

/// A block per token: as select_entries, of the candidates that select_chunks left with `chunks` blocks per token.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    select_merged(const DecodeState* state, int firstToken, const float* scores,
                  int64_t scoreStride, int ratio, int topK, int chunk, int chunks, const int32_t* candidates,
                  int32_t* selected, int32_t* counts) {
  __shared__ Room room;
  ds4::cuda::waitForPrevious();
  ds4::cuda::letNextStart();
  const int token = firstToken + blockIdx.x;
  if (token >= state->count) return;
  const int visible = (state->start + token + 1) / ratio;
  int32_t* chosen = selected + static_cast<int64_t>(token) * topK;
  if (threadIdx.x == 0) counts[token] = min(visible, topK);
  if (visible <= topK) {
    selectAll(visible, chosen);
    return;
  }
  const float* row = scores + blockIdx.x * scoreStride;
  const int32_t* best = candidates + static_cast<int64_t>(blockIdx.x) * chunks * topK;
  const int full = visible / chunk, count = full * topK + min(topK, visible - full * chunk);
  if (count <= topK) {
    for (int i = threadIdx.x; i < count; i += kThreads) chosen[i] = best[i];
    return;
  }
  selectTop(
      room, count, topK, [&](int i) { return orderedKey(row[best[i]]); },
      [&](int place, int i) { chosen[place] = best[i]; });
}
