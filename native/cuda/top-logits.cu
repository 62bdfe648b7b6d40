// What sampling needs of a row of logits: its 256 largest with their ids, in order, and the sum of exp over all. Blocks take
// 4,096 logits each and leave their own largest, one block per row merges those: 4 bytes per logit and 1 KiB per block come
// from L2, 2 KiB go out. Not measured yet.
#include "cuda/float-order.cuh"
#include "cuda/overlap.cuh"
#include "cuda/select-top.cuh"
#include "reductions.cuh"

namespace {

using ds4::cuda::SelectRoom;
using ds4::cuda::selectTop;

constexpr int kThreads = ds4::cuda::kSelectThreads, kWarps = kThreads / 32;
constexpr int kTop = 256;
constexpr int kChunk = 4096;

// Larger logit, larger key; NaN above all, both zeros alike.
__device__ uint32_t logitKey(float logit) {
  if (isnan(logit)) return 0xffffffffu;
  return ds4::cuda::orderOf(logit + 0.0f);
}

// The largest value of the block in every thread. `room` [kWarps] is shared and may be used again after the call.
__device__ float blockMax(float value, float* room) {
  const float own = warpMax(value);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = own;
  __syncthreads();
  const float most = warpMax(room[threadIdx.x % kWarps]);
  __syncthreads();
  return most;
}

}  // namespace

/// What comes back to the host of one row; 2,064 bytes.
struct TopLogits {
  double sum;  // of exp(logit - max) over the row
  float max;   // without NaN
  int32_t count;
  int32_t ids[kTop];  // logits descending, equal ones by id; the first `count` are valid
  float logits[kTop];
};

/// Grid (chunks of kChunk, rows) over logits [rows, vocab]: the ids of each chunk's kTop largest, ascending, to candidates
/// [rows, chunks, kTop]; its largest logit and the sum of exp(logit - that) to sums [rows, chunks].
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    top_logits_chunks(const float* logits, int vocab, int32_t* candidates, float2* sums) {
  __shared__ SelectRoom room;
  __shared__ float shares[kWarps];
  ds4::cuda::letNextStart();
  ds4::cuda::waitForPrevious();
  const int first = blockIdx.x * kChunk, count = min(kChunk, vocab - first);
  const float* part = logits + static_cast<int64_t>(blockIdx.y) * vocab + first;
  const int64_t place = static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  int32_t* best = candidates + place * kTop;
  if (count <= kTop) {
    for (int i = threadIdx.x; i < count; i += kThreads) best[i] = first + i;
  } else {
    selectTop(
        room, count, kTop, [&](int i) { return logitKey(part[i]); }, [&](int at, int i) { best[at] = first + i; });
  }
  float most = -INFINITY;
  for (int i = threadIdx.x; i < count; i += kThreads) most = fmaxf(most, part[i]);
  most = blockMax(most, shares);
  float sum = 0;
  for (int i = threadIdx.x; i < count; i += kThreads) sum += most == -INFINITY ? 0.0f : expf(part[i] - most);
  sum = blockSum(sum, shares);
  if (threadIdx.x == 0) sums[place] = make_float2(most, sum);
}

/// A block per row: `chunks` chunks' candidates and sums to out [rows].
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    top_logits_merged(const float* logits, int vocab, int chunks, const int32_t* candidates, const float2* sums,
                      TopLogits* out) {
  __shared__ SelectRoom room;
  __shared__ int32_t ids[kTop];
  __shared__ uint32_t keys[kTop];
  ds4::cuda::waitForPrevious();
  ds4::cuda::letNextStart();
  const float* row = logits + static_cast<int64_t>(blockIdx.x) * vocab;
  const int32_t* best = candidates + static_cast<int64_t>(blockIdx.x) * chunks * kTop;
  TopLogits& result = out[blockIdx.x];
  // All chunks but the last have kTop.
  const int count = (chunks - 1) * kTop + min(kTop, vocab - (chunks - 1) * kChunk), kept = min(kTop, count);
  if (count <= kTop) {
    for (int i = threadIdx.x; i < count; i += kThreads) ids[i] = best[i];
  } else {
    selectTop(
        room, count, kTop, [&](int i) { return logitKey(row[best[i]]); }, [&](int at, int i) { ids[at] = best[i]; });
  }
  __syncthreads();
  if (threadIdx.x < kept) keys[threadIdx.x] = logitKey(row[ids[threadIdx.x]]);
  __syncthreads();
  // Ids ascend, so a candidate's place is the number of larger ones and of equal ones before it: four threads count each.
  constexpr int kCounters = kThreads / kTop;
  const int own = threadIdx.x / kCounters, counter = threadIdx.x % kCounters;
  int before = 0;
  if (own < kept) {
    for (int i = counter; i < kept; i += kCounters) before += keys[i] > keys[own] || (keys[i] == keys[own] && i < own);
  }
  for (int step = 1; step < kCounters; step *= 2) before += __shfl_xor_sync(0xffffffffu, before, step);
  if (own < kept && counter == 0) {
    result.ids[before] = ids[own];
    result.logits[before] = row[ids[own]];
  }
  if (threadIdx.x != 0) return;
  const float2* shares = sums + static_cast<int64_t>(blockIdx.x) * chunks;
  float most = -INFINITY;
  for (int i = 0; i < chunks; i++) most = fmaxf(most, shares[i].x);
  double sum = 0;
  for (int i = 0; i < chunks; i++) {
    if (shares[i].x > -INFINITY) sum += static_cast<double>(shares[i].y) * static_cast<double>(expf(shares[i].x - most));
  }
  result.sum = sum;
  result.max = most;
  result.count = kept;
}
