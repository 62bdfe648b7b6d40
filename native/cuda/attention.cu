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
#include "cuda/intrinsics.cuh"
#include "cuda/overlap.cuh"
#include "cuda/staged-rows.cuh"

namespace {

constexpr int kCombineGroups = 4, kCombineAhead = 8;  // a lane has the weight of one share of each round
constexpr int kCombineThreads = kCombineGroups * kMostDim / 4;
static_assert(kCombineGroups * kCombineAhead == 32);

template <int HEADS, int MGROUPS, int NGROUPS, int PARTS, int BUFFERS>
__device__ __forceinline__ void attendShare(const Attention& a) {
  using Work = Share<HEADS, MGROUPS, NGROUPS, PARTS, BUFFERS>;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ const __half* rowPointers[2][kTileKeys];
  __shared__ float rescale[HEADS];
  Work work(a, memory, rescale, rowPointers);
  ds4::cuda::letNextStart();

  const int token = blockIdx.z, share = blockIdx.x, shares = gridDim.x;
  if (token >= a.state->count) {
    ds4::cuda::waitForPrevious();
    return;
  }
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, ownDim = warp * kWarpDims;
  const int position = a.state->start + token;
  const int windowRows = min(a.window, position + 1);
  const int visible = a.ratio > 0 ? (position + 1) / a.ratio : 0;
  const int keys = work.keys = windowRows + (a.selected ? min(visible, a.topK) : visible);
  const int tiles = (keys + kTileKeys - 1) / kTileKeys, tilesPerShare = (tiles + shares - 1) / shares;
  const int firstTile = share * tilesPerShare, endTile = min(tiles, firstTile + tilesPerShare);
  float2* stats = shares > 1 ? a.stats + (static_cast<int64_t>(token) * shares + share) * a.heads : nullptr;
  // The kernel that chose entries let this one start when the ones before it had ended: the queries are there already.
  const bool early = Work::kHeld && a.selected != nullptr && firstTile < endTile;
  typename Work::Held held;
  if constexpr (Work::kHeld) {
    if (early) work.holdQueries(held, warp / (MGROUPS * NGROUPS), lane);
  }
  ds4::cuda::waitForPrevious();
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
  if constexpr (Work::kHeld) {
    if (!early) work.holdQueries(held, warp / (MGROUPS * NGROUPS), lane);
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
      if (changed && tile > firstTile) work.shrink(sums, lane);
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
      const float *sinks, float *out, float *parts, float2 *stats, const float *cosines,       \
      const float *sines, int heads, int dim, int window, int ringRows, int ratio, int topK, int pairs, float scale
#define DS4_ATTENTION                                                                                            \
  Attention{state, queries, ring, entries, selected, sinks, out, parts, stats, cosines, sines, heads, dim, \
            window, ringRows, ratio, topK, pairs, scale}

/// Grid (shares, blocks of heads, tokens), 256 threads. ratio 0: no entries; selected null: all visible ones, else as many of
/// them as topK allows, by a kernel that waits before it lets the next one start. dim is a
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

/// Grid (heads, tokens), 512 threads: joins the shares of a head, adds the sink, turns back. Groups of threads take the shares
/// in turn, each thread four dims; their sums meet in order. quantized (null: not written; of one token, dim a multiple of 128): the
/// int8 form of the heads, `groupHeads` of them a row.
extern "C" __global__ void __launch_bounds__(kCombineThreads, 1)
    attend_combine(const DecodeState* state, const float* parts, const float2* stats, const float* sinks, float* out,
                   const float* cosines, const float* sines, uint8_t* quantized, int dim, int shares, int pairs,
                   int groupHeads) {
  ds4::cuda::letNextStart();
  __shared__ float4 sums[kCombineGroups][kMostDim / 4];
  const int head = blockIdx.x, heads = gridDim.x, token = blockIdx.y, lane = threadIdx.x % 32;
  const int group = threadIdx.x / (kMostDim / 4), column = threadIdx.x % (kMostDim / 4), d = 4 * column;
  const float sink = ds4::cuda::loadConstant<float>(sinks + head) * kLogOfTwo;
  ds4::cuda::waitForPrevious();
  if (token >= state->count) return;
  const float2* stat = stats + static_cast<int64_t>(token) * shares * heads + head;
  const float* from = parts + (static_cast<int64_t>(token) * shares * heads + head) * dim + d;
  const auto statOf = [&](int share) { return share < shares ? stat[share * heads] : make_float2(kNoMaximum, 0.0f); };
  float4 some[kCombineAhead];
  const auto loadParts = [&](int first) {
#pragma unroll
    for (int i = 0; i < kCombineAhead; i++) {
      const int share = first + i * kCombineGroups + group;
      some[i] = make_float4(0, 0, 0, 0);
      if (d < dim && share < shares) {
        some[i] = *reinterpret_cast<const float4*>(from + static_cast<int64_t>(share) * heads * dim);
      }
    }
  };
  // The first parts and the angles are under way while the weights are found.
  float2 own = statOf(lane);
  loadParts(0);
  const int tail = dim - 2 * pairs;
  const bool turns = cosines != nullptr && group == 0 && d < dim;
  const bool left = turns && d >= tail, right = turns && d + 2 >= tail;
  const int64_t pair = static_cast<int64_t>(token) * pairs + (d - tail) / 2;
  float2 leftAngle = make_float2(1, 0), rightAngle = make_float2(1, 0);
  if (left) leftAngle = make_float2(cosines[pair], sines[pair]);
  if (right) rightAngle = make_float2(cosines[pair + 1], sines[pair + 1]);

  float most = fmaxf(sink, own.x);
  for (int s = lane + 32; s < shares; s += 32) most = fmaxf(most, stat[s * heads].x);
  most = warpMax(most);
  float total = own.y * exp2f(own.x - most);
  for (int s = lane + 32; s < shares; s += 32) total += stat[s * heads].y * exp2f(stat[s * heads].x - most);
  const float inverse = 1.0f / (warpSum(total) + exp2f(sink - most));
  float4 sum = make_float4(0, 0, 0, 0);
  for (int first = 0; first < shares; first += kCombineGroups * kCombineAhead) {
    if (first > 0) {
      own = statOf(first + lane);
      loadParts(first);
    }
    const float weight = own.y == 0.0f ? 0.0f : exp2f(own.x - most) * inverse;
#pragma unroll
    for (int i = 0; i < kCombineAhead; i++) {
      const float factor = __shfl_sync(0xffffffffu, weight, i * kCombineGroups + group);
      if (factor == 0.0f) continue;  // nothing was written
      sum.x += factor * some[i].x;
      sum.y += factor * some[i].y;
      sum.z += factor * some[i].z;
      sum.w += factor * some[i].w;
    }
  }
  sums[group][column] = sum;
  __syncthreads();
  if (group != 0 || d >= dim) return;
#pragma unroll
  for (int g = 1; g < kCombineGroups; g++) {
    const float4 other = sums[g][column];
    sum.x += other.x;
    sum.y += other.y;
    sum.z += other.z;
    sum.w += other.w;
  }
  if (left) turnBack(sum.x, sum.y, leftAngle.x, leftAngle.y);
  if (right) turnBack(sum.z, sum.w, rightAngle.x, rightAngle.y);
  *reinterpret_cast<float4*>(out + (static_cast<int64_t>(token) * heads + head) * dim + d) = sum;
  if (quantized == nullptr) return;
  const int row = head / groupHeads, cols = groupHeads * dim;
  const auto rows = ds4::cuda::stagedRows(quantized + row * ds4::cuda::quantizedBytes(cols), 1, cols, true);
  ds4::cuda::quantizeFour(sum, rows, (head - row * groupHeads) * dim + d, lane);
}
