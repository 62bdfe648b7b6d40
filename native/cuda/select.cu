// Exact top-k of the indexer's scores: radix select over order-preserving keys, then ascending compaction. Up to five
// passes over 4 bytes per entry, in registers up to 8,192 entries, then the first from L2, the rest from L1 up to about
// 40,000: limited by one block's share of shared-memory atomics and loads (a few microseconds at 25,000 entries). Longer rows
// are cut into chunks whose own best are found by one block each (`select_chunks`), then merged (`select_merged`): chunks are
// in order, so ties stay exact.
#include "cuda/float-order.cuh"
#include "cuda/overlap.cuh"
#include "cuda/select-top.cuh"
#include "decode_state.cuh"
#include "reductions.cuh"

namespace {

using ds4::cuda::SelectRoom;
using ds4::cuda::selectTop;

constexpr int kThreads = ds4::cuda::kSelectThreads;

// Larger score, larger key; NaN as -infinity, both zeros alike.
__device__ uint32_t orderedKey(float score) {
  return ds4::cuda::orderOf(isnan(score) ? -INFINITY : score + 0.0f);
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
  __shared__ SelectRoom room;
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
  __shared__ SelectRoom room;
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
  __shared__ SelectRoom room;
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
