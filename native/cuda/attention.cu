// Attention of one sequence: window ring and compressed entries (float16), one row is key and value of all heads.
// A block takes a token, HEADS heads and a share of the keys: tiles of 32 rows go through shared memory twice buffered,
// Q x K and P x V run on the tensor cores with float32 sums, the softmax is online and in float32.
// Bytes: a token reads its rows once per block of heads, 1 KiB each (640 rows: 655 KB). Prefill runs `attend_64` (or _32
// where shared memory is less), once over the rows: limited by shared-memory reads of the Q x K fragments, then by the
// tensor cores. Decode runs `attend_16` in many shares, whose sums (2 KiB per head and share) `attend_combine` joins in
// order: limited by latency at 640 rows.
// Float16 queries and weights cost about 2e-4 relative against float32 (queries are normed: no overflow).
#include "decode_state.cuh"
#include "reductions.cuh"
#include "tensor_core.cuh"

namespace {

constexpr int kThreads = 256, kWarps = 8, kTileKeys = 32;
constexpr int kWarpDims = 64;          // dims whose sums a warp holds: dim is at most 512
constexpr int kScoreStride = 36;       // floats: rows of scores and of weights lie in different banks
constexpr int kPadHalves = 8;          // the same for rows of queries and keys
constexpr float kLogOfTwo = 1.44269504088896340736f;
constexpr float kNoMaximum = -1.0e30f;

struct Attention {
  const DecodeState* state;
  const float* queries;     // [count, heads, dim]
  const __half* ring;       // [ringRows, dim]
  const __half* entries;    // [*, dim]
  const int32_t* selected;  // [count, topK], or null: all visible entries
  const int32_t* counts;    // [count]
  const float* sinks;       // [heads]
  float* out;               // [count, heads, dim]
  float* parts;             // [count, shares, heads, dim], where there are shares
  float2* stats;            // [count, shares, heads]: maximum (base 2), sum of weights
  const float* cosines;     // [count, pairs]: the output is turned back by these angles; null: it is not
  const float* sines;
  int heads, dim, window, ringRows, ratio, topK, pairs;
  float scale;
};

__device__ const __half* keyRow(const Attention& a, int token, int position, int windowRows, int key) {
  if (key < windowRows) {
    return a.ring + static_cast<int64_t>((position - windowRows + 1 + key) % a.ringRows) * a.dim;
  }
  const int index = key - windowRows;
  const int entry = a.selected ? a.selected[static_cast<int64_t>(token) * a.topK + index] : index;
  return a.entries + static_cast<int64_t>(entry) * a.dim;
}

// Turns (x, y) back by the angle of a pair.
__device__ void turnBack(float& x, float& y, float cosine, float sine) {
  const float before = x;
  x = before * cosine + y * sine;
  y = y * cosine - before * sine;
}

// MGROUPS x NGROUPS warps share a tile's scores by heads and keys, the rest by dims (partial sums meet in the softmax).
template <int HEADS, int MGROUPS, int NGROUPS>
__device__ void attendShare(const Attention& a) {
  constexpr int kSlices = kWarps / MGROUPS / NGROUPS;
  constexpr int kHeadTiles = HEADS / 16, kOwnHeadTiles = kHeadTiles / MGROUPS, kOwnKeyPairs = 2 / NGROUPS;
  constexpr int kThreadsPerRow = kThreads / HEADS, kOwnKeys = kTileKeys / kThreadsPerRow;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ const __half* rowPointers[2][kTileKeys];
  __shared__ float rescale[HEADS];
  const int stride = a.dim + kPadHalves;
  __half* queryRows = reinterpret_cast<__half*>(memory);
  __half* keyTiles = queryRows + HEADS * stride;  // [2, kTileKeys, stride]
  float* scores = reinterpret_cast<float*>(queryRows + (HEADS + 2 * kTileKeys) * stride);  // [slices, HEADS, stride]

  const int token = blockIdx.z, firstHead = blockIdx.y * HEADS, share = blockIdx.x, shares = gridDim.x;
  if (token >= a.state->count) return;
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int position = a.state->start + token;
  const int windowRows = min(a.window, position + 1);
  const int visible = a.ratio > 0 ? (position + 1) / a.ratio : 0;
  const int keys = windowRows + (a.selected ? a.counts[token] : visible);
  const int tiles = (keys + kTileKeys - 1) / kTileKeys, tilesPerShare = (tiles + shares - 1) / shares;
  const int firstTile = share * tilesPerShare, endTile = min(tiles, firstTile + tilesPerShare);
  float2* stats = shares > 1 ? a.stats + (static_cast<int64_t>(token) * shares + share) * a.heads : nullptr;
  if (firstTile >= endTile) {
    if (tid < HEADS && firstHead + tid < a.heads) stats[firstHead + tid] = make_float2(kNoMaximum, 0.0f);
    return;
  }

  const auto pointerOf = [&](int tile) {
    const int key = tile * kTileKeys + lane;
    return tile < endTile && key < keys ? keyRow(a, token, position, windowRows, key) : nullptr;
  };
  const auto loadTile = [&](int tile) {
    const int chunks = a.dim / 8;  // of 16 bytes
    const __half* const* rows = rowPointers[tile & 1];
    __half* to = keyTiles + (tile & 1) * kTileKeys * stride;
    for (int i = tid; i < kTileKeys * chunks; i += kThreads) {
      const int key = i / chunks, chunk = i % chunks;
      const __half* row = rows[key];
      ds4::cuda::copyOrZero16(to + key * stride + chunk * 8, (row ? row : a.ring) + chunk * 8, row != nullptr);
    }
  };
  if (warp == 0) {
    rowPointers[firstTile & 1][lane] = pointerOf(firstTile);
    rowPointers[(firstTile + 1) & 1][lane] = pointerOf(firstTile + 1);
  }
  __syncthreads();
  loadTile(firstTile);
  const float* queries = a.queries + (static_cast<int64_t>(token) * a.heads + firstHead) * a.dim;
  for (int i = tid; i < HEADS * a.dim / 4; i += kThreads) {
    const int head = i / (a.dim / 4), column = i % (a.dim / 4) * 4;
    float4 q = make_float4(0, 0, 0, 0);
    if (firstHead + head < a.heads) q = *reinterpret_cast<const float4*>(queries + head * a.dim + column);
    const uint2 packed = make_uint2(ds4::cuda::packHalves(q.x, q.y), ds4::cuda::packHalves(q.z, q.w));
    *reinterpret_cast<uint2*>(queryRows + head * stride + column) = packed;
  }

  const int slice = warp / (MGROUPS * NGROUPS), headGroup = warp / NGROUPS % MGROUPS, keyGroup = warp % NGROUPS;
  const int softRow = tid / kThreadsPerRow, softKey = tid % kThreadsPerRow * kOwnKeys;
  const int ownDim = warp * kWarpDims;
  const float scale = a.scale * kLogOfTwo;
  float maximum = kNoMaximum, total = 0;
  float sums[kHeadTiles][kWarpDims / 8][4] = {};

  for (int tile = firstTile; tile < endTile; tile++) {
    ds4::cuda::waitForCopies();
    __syncthreads();
    if (tile + 1 < endTile) loadTile(tile + 1);
    const __half* nextPointer = warp == 0 ? pointerOf(tile + 2) : nullptr;
    const __half* keyTile = keyTiles + (tile & 1) * kTileKeys * stride;

    // Scores of this warp's heads, keys and dims.
    float matches[kOwnHeadTiles][2 * kOwnKeyPairs][4] = {};
    for (int d = slice * 16; d < a.dim; d += kSlices * 16) {
      uint32_t query[kOwnHeadTiles][4];
#pragma unroll
      for (int m = 0; m < kOwnHeadTiles; m++) {
        const int row = (headGroup * kOwnHeadTiles + m) * 16 + lane % 16;
        ds4::cuda::loadTiles(query[m], queryRows + row * stride + d + lane / 16 * 8);
      }
#pragma unroll
      for (int n = 0; n < kOwnKeyPairs; n++) {
        uint32_t key[4];
        const int row = (keyGroup * kOwnKeyPairs + n) * 16 + lane % 8 + lane / 16 * 8;
        ds4::cuda::loadTiles(key, keyTile + row * stride + d + lane / 8 % 2 * 8);
#pragma unroll
        for (int m = 0; m < kOwnHeadTiles; m++) {
          ds4::cuda::multiplyHalf(matches[m][2 * n], query[m][0], query[m][1], query[m][2], query[m][3], key[0], key[1]);
          ds4::cuda::multiplyHalf(matches[m][2 * n + 1], query[m][0], query[m][1], query[m][2], query[m][3], key[2],
                                  key[3]);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kOwnHeadTiles; m++) {
#pragma unroll
      for (int n = 0; n < 2 * kOwnKeyPairs; n++) {
        const int row = (headGroup * kOwnHeadTiles + m) * 16 + lane / 4;
        const int column = (keyGroup * 2 * kOwnKeyPairs + n) * 8 + lane % 4 * 2;
        float* to = scores + (slice * HEADS + row) * kScoreStride + column;
        *reinterpret_cast<float2*>(to) = make_float2(matches[m][n][0], matches[m][n][1]);
        *reinterpret_cast<float2*>(to + 8 * kScoreStride) = make_float2(matches[m][n][2], matches[m][n][3]);
      }
    }
    __syncthreads();

    // Online softmax: a few threads per head. Weights (halves) replace the head's own scores.
    float own[kOwnKeys];
    float largest = maximum;
#pragma unroll
    for (int k = 0; k < kOwnKeys; k += 2) {
      float2 match = make_float2(0, 0);
#pragma unroll
      for (int s = 0; s < kSlices; s++) {
        const float2 part =
            *reinterpret_cast<const float2*>(scores + (s * HEADS + softRow) * kScoreStride + softKey + k);
        match.x += part.x;
        match.y += part.y;
      }
      const int key = tile * kTileKeys + softKey + k;
      own[k] = key < keys ? match.x * scale : -INFINITY;
      own[k + 1] = key + 1 < keys ? match.y * scale : -INFINITY;
      largest = fmaxf(largest, fmaxf(own[k], own[k + 1]));
    }
    for (int step = kThreadsPerRow / 2; step > 0; step /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    }
    float added = 0;
#pragma unroll
    for (int k = 0; k < kOwnKeys; k++) {
      own[k] = exp2f(own[k] - largest);
      added += own[k];
    }
    for (int step = kThreadsPerRow / 2; step > 0; step /= 2) added += __shfl_xor_sync(0xffffffffu, added, step);
    __syncwarp();
    uint32_t* weights = reinterpret_cast<uint32_t*>(scores + softRow * kScoreStride);
#pragma unroll
    for (int k = 0; k < kOwnKeys; k += 2) weights[(softKey + k) / 2] = ds4::cuda::packHalves(own[k], own[k + 1]);
    const float keep = exp2f(maximum - largest);
    total = total * keep + added;
    maximum = largest;
    if (tid % kThreadsPerRow == 0) rescale[softRow] = keep;
    if (warp == 0) rowPointers[tile & 1][lane] = nextPointer;
    const bool changed = __syncthreads_or(keep != 1.0f);

    // Weights x values: all heads, this warp's dims.
    if (ownDim >= a.dim) continue;
    if (changed) {
#pragma unroll
      for (int m = 0; m < kHeadTiles; m++) {
        const float upper = rescale[m * 16 + lane / 4], lower = rescale[m * 16 + lane / 4 + 8];
#pragma unroll
        for (int n = 0; n < kWarpDims / 8; n++) {
          sums[m][n][0] *= upper;
          sums[m][n][1] *= upper;
          sums[m][n][2] *= lower;
          sums[m][n][3] *= lower;
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kTileKeys; k += 16) {
      uint32_t weight[kHeadTiles][4];
#pragma unroll
      for (int m = 0; m < kHeadTiles; m++) {
        const __half* row = reinterpret_cast<const __half*>(scores + (m * 16 + lane % 16) * kScoreStride);
        ds4::cuda::loadTiles(weight[m], row + k + lane / 16 * 8);
      }
#pragma unroll
      for (int n = 0; n < kWarpDims / 16; n++) {
        if (ownDim + n * 16 >= a.dim) break;
        uint32_t value[4];
        ds4::cuda::loadTilesTransposed(value, keyTile + (k + lane % 16) * stride + ownDim + n * 16 + lane / 16 * 8);
#pragma unroll
        for (int m = 0; m < kHeadTiles; m++) {
          ds4::cuda::multiplyHalf(sums[m][2 * n], weight[m][0], weight[m][1], weight[m][2], weight[m][3], value[0],
                                  value[1]);
          ds4::cuda::multiplyHalf(sums[m][2 * n + 1], weight[m][0], weight[m][1], weight[m][2], weight[m][3], value[2],
                                  value[3]);
        }
      }
    }
  }

  // One share: the sink joins and the sums are final. Several: the sums go out as they are.
  __syncthreads();  // the last products still read `rescale`
  if (tid % kThreadsPerRow == 0) {
    const int head = firstHead + softRow;
    if (shares > 1) {
      if (head < a.heads) stats[head] = make_float2(maximum, total);
      rescale[softRow] = 1.0f;
    } else {
      const float sink = head < a.heads ? a.sinks[head] * kLogOfTwo : 0.0f, most = fmaxf(maximum, sink);
      const float weight = exp2f(maximum - most);
      rescale[softRow] = weight / (total * weight + exp2f(sink - most));
    }
  }
  __syncthreads();
  float* out = shares > 1 ? a.parts + (static_cast<int64_t>(token) * shares + share) * a.heads * a.dim
                          : a.out + static_cast<int64_t>(token) * a.heads * a.dim;
  const bool turns = shares == 1 && a.cosines != nullptr;
  const int tail = a.dim - 2 * a.pairs;
#pragma unroll
  for (int m = 0; m < kHeadTiles; m++) {
#pragma unroll
    for (int n = 0; n < kWarpDims / 8; n++) {
      const int d = ownDim + n * 8 + lane % 4 * 2;
      float cosine = 1, sine = 0;
      if (turns && d >= tail && d < a.dim) {
        cosine = a.cosines[static_cast<int64_t>(token) * a.pairs + (d - tail) / 2];
        sine = a.sines[static_cast<int64_t>(token) * a.pairs + (d - tail) / 2];
      }
#pragma unroll
      for (int side = 0; side < 2; side++) {
        const int row = m * 16 + lane / 4 + 8 * side, head = firstHead + row;
        if (head >= a.heads || d >= a.dim) continue;
        float x = sums[m][n][2 * side] * rescale[row], y = sums[m][n][2 * side + 1] * rescale[row];
        if (turns && d >= tail) turnBack(x, y, cosine, sine);
        *reinterpret_cast<float2*>(out + static_cast<int64_t>(head) * a.dim + d) = make_float2(x, y);
      }
    }
  }
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
/// with more the shares' sums go to parts and stats for attend_combine.
/// Shared: (HEADS + 64) * (dim + 8) * 2 + slices * HEADS * 144 bytes; slices: 4, 2, 4 for 16, 32, 64 heads.
extern "C" __global__ void __launch_bounds__(kThreads, 1) attend_16(DS4_ATTEND_PARAMETERS) {
  attendShare<16, 1, 2>(DS4_ATTENTION);
}
extern "C" __global__ void __launch_bounds__(kThreads, 2) attend_32(DS4_ATTEND_PARAMETERS) {
  attendShare<32, 2, 2>(DS4_ATTENTION);
}
extern "C" __global__ void __launch_bounds__(kThreads, 1) attend_64(DS4_ATTEND_PARAMETERS) {
  attendShare<64, 2, 1>(DS4_ATTENTION);
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
