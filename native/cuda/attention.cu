// Attention of one sequence: window ring and compressed entries, one row is key and value of all heads. Rows, queries and
// weights are sums of one or two halves (see kv-rows.cuh). A block takes a token, HEADS heads and a share of the keys: tiles
// of 32 rows go through shared memory, Q x K and P x V run on the tensor cores with float32 sums, the softmax is online
// and in float32.
// Bytes: a token reads its rows once per block of heads, 1 KiB a part (640 rows of two: 1.3 MB). Prefill runs as many heads
// per block as shared memory holds, once over the rows: limited by shared-memory reads of the Q x K fragments, then by the
// tensor cores (three products instead of one with two parts). Decode runs 16 in many shares, whose sums (2 KiB per head
// and share) `attend_combine` joins in order: limited by latency at 640 rows.
// One part costs up to 5e-3 of nano's logits (rows 5e-3, queries 1.3e-3, weights 1.2e-3), two parts 1e-5.
#include "attention-share.cuh"

namespace {

template <int HEADS, int MGROUPS, int NGROUPS, int PARTS, int BUFFERS>
__device__ __forceinline__ void attendShare(const Attention& a) {
  using Work = Share<HEADS, MGROUPS, NGROUPS, PARTS, BUFFERS>;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ const __half* rowPointers[2][kTileKeys];
  __shared__ float rescale[HEADS];
  Work work(a, memory, rescale, rowPointers);

  const int token = blockIdx.z, share = blockIdx.x, shares = gridDim.x;
  if (token >= a.state->count) return;
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, ownDim = warp * kWarpDims;
  const int position = a.state->start + token;
  const int windowRows = min(a.window, position + 1);
  const int visible = a.ratio > 0 ? (position + 1) / a.ratio : 0;
  const int keys = work.keys = windowRows + (a.selected ? a.counts[token] : visible);
  const int tiles = (keys + kTileKeys - 1) / kTileKeys, tilesPerShare = (tiles + shares - 1) / shares;
  const int firstTile = share * tilesPerShare, endTile = min(tiles, firstTile + tilesPerShare);
  float2* stats = shares > 1 ? a.stats + (static_cast<int64_t>(token) * shares + share) * a.heads : nullptr;
  if (firstTile >= endTile) {
    if (tid < HEADS && work.firstHead + tid < a.heads) stats[work.firstHead + tid] = make_float2(kNoMaximum, 0.0f);
    return;
  }

  const auto pointerOf = [&](int tile) -> const __half* {
    const int key = tile * kTileKeys + lane;
    return tile < endTile && key < keys ? keyRow<PARTS>(a, token, position, windowRows, key) : nullptr;
  };
  if (warp == 0) {
    rowPointers[firstTile & 1][lane] = pointerOf(firstTile);
    rowPointers[(firstTile + 1) & 1][lane] = pointerOf(firstTile + 1);
  }
  __syncthreads();
  work.loadTile(firstTile);
  typename Work::Held held;
  if constexpr (Work::kHeld) {
    work.holdQueries(held, warp / (MGROUPS * NGROUPS), lane);
  } else {
    work.storeQueries();
  }
  typename Work::Sums sums = {};
  for (int tile = firstTile; tile < endTile; tile++) {
    ds4::cuda::waitForCopies();
    __syncthreads();
    if (BUFFERS == 2 && tile + 1 < endTile) work.loadTile(tile + 1);
    const __half* nextPointer = warp == 0 ? pointerOf(tile + 2) : nullptr;
    typename Work::Matches matches = {};
    work.matchKeys(matches, held, tile, warp, lane);
    __syncthreads();
    const float keep = work.weigh(tile);
    if (warp == 0) rowPointers[tile & 1][lane] = nextPointer;
    const bool changed = __syncthreads_or(keep != 1.0f);
    if (ownDim < a.dim) {
      if (changed) work.shrink(sums, lane);
      work.addValues(sums, tile, ownDim, lane);
    }
    if (BUFFERS == 1 && tile + 1 < endTile) {
      __syncthreads();
      work.loadTile(tile + 1);
    }
  }
  work.finish(sums, stats, shares, ownDim, lane);
}

}  // namespace

#define DS4_ATTEND_PARAMETERS                                                                                        \
  const DecodeState *state, const float *queries, const __half *ring, const __half *entries, const int32_t *selected, \
      const int32_t *counts, const float *sinks, float *out, float *parts, float2 *stats, const float *cosines,       \
      const float *sines, int heads, int dim, int window, int ringRows, int ratio, int topK, int pairs, float scale
#define DS4_ATTENTION                                                                                            \
  Attention{state, queries, ring, entries, selected, counts, sinks, out, parts, stats, cosines, sines, heads, dim, \
            window, ringRows, ratio, topK, pairs, scale}

/// Grid (shares, blocks of heads, tokens), 256 threads. ratio 0: no entries; selected null: all visible ones. dim is a
/// multiple of 16, at most 512. With one share `out` is final (turned back by cosines, sines [count, pairs] unless null),
/// with more the shares' sums go to parts and stats for attend_combine. Names end in heads per block and parts per value.
/// Shared: (heads, none for 16, + buffers * 32) * parts * (dim + 8) * 2 + slices * heads * 144 bytes; slices: 4, 2, 4 for
/// 16, 32, 64 heads; buffers: 1 for attend_16x2, else 2.
extern "C" __global__ void __launch_bounds__(kThreads, 2) attend_16x1(DS4_ATTEND_PARAMETERS) {
  attendShare<16, 1, 2, 1, 2>(DS4_ATTENTION);
}
extern "C" __global__ void __launch_bounds__(kThreads, 1) attend_16x2(DS4_ATTEND_PARAMETERS) {
  attendShare<16, 1, 2, 2, 1>(DS4_ATTENTION);
}
extern "C" __global__ void __launch_bounds__(kThreads, 2) attend_32x1(DS4_ATTEND_PARAMETERS) {
  attendShare<32, 2, 2, 1, 2>(DS4_ATTENTION);
}
extern "C" __global__ void __launch_bounds__(kThreads, 1) attend_32x2(DS4_ATTEND_PARAMETERS) {
  attendShare<32, 2, 2, 2, 2>(DS4_ATTENTION);
}
extern "C" __global__ void __launch_bounds__(kThreads, 1) attend_64x1(DS4_ATTEND_PARAMETERS) {
  attendShare<64, 2, 1, 1, 2>(DS4_ATTENTION);
}

/// Grid (heads, tokens), 128 threads: joins the shares of a head in order, adds the sink, turns back.
extern "C" __global__ void __launch_bounds__(128)
    attend_combine(const DecodeState* __restrict__ state, const float* __restrict__ parts,
                   const float2* __restrict__ stats, const float* __restrict__ sinks, float* out,
                   const float* __restrict__ cosines, const float* __restrict__ sines, int dim, int shares, int pairs) {
  const int head = blockIdx.x, heads = gridDim.x, token = blockIdx.y;
  if (token >= state->count) return;
  const float2* own = stats + static_cast<int64_t>(token) * shares * heads + head;
  const float sink = sinks[head] * kLogOfTwo;
  float most = sink;
  for (int s = 0; s < shares; s++) most = fmaxf(most, own[s * heads].x);
  float total = exp2f(sink - most);
  for (int s = 0; s < shares; s++) total += own[s * heads].y * exp2f(own[s * heads].x - most);
  const float inverse = 1.0f / total;
  const int tail = dim - 2 * pairs;
  for (int d = 4 * threadIdx.x; d < dim; d += 4 * blockDim.x) {
    float4 sum = make_float4(0, 0, 0, 0);
    for (int s = 0; s < shares; s++) {
      const float2 stat = own[s * heads];
      if (stat.y == 0.0f) continue;  // nothing was written
      const float weight = exp2f(stat.x - most) * inverse;
      const float4 part = *reinterpret_cast<const float4*>(
          parts + ((static_cast<int64_t>(token) * shares + s) * heads + head) * dim + d);
      sum.x += weight * part.x;
      sum.y += weight * part.y;
      sum.z += weight * part.z;
      sum.w += weight * part.w;
    }
    if (cosines != nullptr) {
      const float* c = cosines + static_cast<int64_t>(token) * pairs;
      const float* s = sines + static_cast<int64_t>(token) * pairs;
      if (d >= tail) turnBack(sum.x, sum.y, c[(d - tail) / 2], s[(d - tail) / 2]);
      if (d + 2 >= tail) turnBack(sum.z, sum.w, c[(d + 2 - tail) / 2], s[(d + 2 - tail) / 2]);
    }
    *reinterpret_cast<float4*>(out + (static_cast<int64_t>(token) * heads + head) * dim + d) = sum;
  }
}
