// What a block of attention does: scores, softmax and sums of its heads over its share of the keys. See attention.cu.
#pragma once
#include "decode_state.cuh"
#include "kv-rows.cuh"
#include "reductions.cuh"

namespace {

constexpr int kThreads = 256, kWarps = 8, kTileKeys = 32;
constexpr int kWarpDims = 64;          // dims whose sums a warp holds
constexpr int kMostDim = kWarps * kWarpDims;
constexpr int kScoreStride = 36;       // floats: rows of scores and of weights lie in different banks
constexpr int kPadHalves = 8;          // the same for rows of queries and keys
constexpr float kLogOfTwo = 1.44269504088896340736f;
constexpr float kNoMaximum = -1.0e30f;

struct Attention {
  const DecodeState* state;
  const float* queries;     // [count, heads, dim]
  const __half* ring;       // [ringRows, parts * dim]: see kv-rows.cuh
  const __half* entries;    // [*, parts * dim]
  const int32_t* selected;  // [count, topK], or null: all visible entries
  const float* sinks;       // [heads]
  float* out;               // [count, heads, dim]
  float* parts;             // [count, shares, heads, dim], where there are shares
  float2* stats;            // [count, shares, heads]: maximum (base 2), sum of weights
  const float* cosines;     // [count, pairs]: the output is turned back by these angles; null: it is not
  const float* sines;
  int heads, dim, window, ringRows, ratio, topK, pairs;
  float scale;
};

template <int PARTS>
__device__ const __half* keyRow(const Attention& a, int token, int position, int windowRows, int key) {
  if (key < windowRows) {
    return a.ring + static_cast<int64_t>((position - windowRows + 1 + key) % a.ringRows) * a.dim * PARTS;
  }
  const int index = key - windowRows;
  const int entry = a.selected ? a.selected[static_cast<int64_t>(token) * a.topK + index] : index;
  return a.entries + static_cast<int64_t>(entry) * a.dim * PARTS;
}

// Turns (x, y) back by the angle of a pair.
__device__ void turnBack(float& x, float& y, float cosine, float sine) {
  const float before = x;
  x = before * cosine + y * sine;
  y = y * cosine - before * sine;
}

// One block's work: HEADS heads of a token, one share of its keys. MGROUPS x NGROUPS warps share a tile's scores by heads
// and keys, the rest by dims (partial sums meet in the softmax). PARTS halves make up a value of rows, queries and weights;
// products of two low parts are left out. Sixteen heads' queries stay in registers.
template <int HEADS, int MGROUPS, int NGROUPS, int PARTS, int BUFFERS>
struct Share {
  static constexpr int kSlices = kWarps / MGROUPS / NGROUPS, kSteps = kMostDim / 16 / kSlices;
  static constexpr int kHeadTiles = HEADS / 16, kOwnHeadTiles = kHeadTiles / MGROUPS, kOwnKeyPairs = 2 / NGROUPS;
  static constexpr int kThreadsPerRow = kThreads / HEADS, kOwnKeys = kTileKeys / kThreadsPerRow;
  static constexpr bool kHeld = HEADS == 16;

  using Sums = float[kHeadTiles][kWarpDims / 8][4];
  using Matches = float[kOwnHeadTiles][2 * kOwnKeyPairs][4];
  using Held = uint32_t[kHeld ? kSteps : 1][PARTS][4];

  const Attention& a;
  const __half* (*rowPointers)[kTileKeys];  // [2]
  float* rescale;                           // [HEADS]
  __half* queryRows;                        // [PARTS, HEADS, stride]
  __half* keyTiles;                         // [BUFFERS, PARTS, kTileKeys, stride]
  float* scores;                            // [slices, HEADS, kScoreStride]
  int stride, firstHead, token, keys;
  float maximum = kNoMaximum, total = 0;

  __device__ __forceinline__ Share(const Attention& attention, unsigned char* memory, float* rescaleRoom,
                                   const __half* (*pointers)[kTileKeys])
      : a(attention), rowPointers(pointers), rescale(rescaleRoom) {
    stride = a.dim + kPadHalves;
    queryRows = reinterpret_cast<__half*>(memory);
    keyTiles = queryRows + (kHeld ? 0 : PARTS * HEADS * stride);
    scores = reinterpret_cast<float*>(keyTiles + BUFFERS * PARTS * kTileKeys * stride);
    token = blockIdx.z;
    firstHead = blockIdx.y * HEADS;
  }

  __device__ __forceinline__ __half* keyTile(int tile, int part) const {
    return keyTiles + (tile % BUFFERS * PARTS + part) * kTileKeys * stride;
  }

  __device__ __forceinline__ void loadTile(int tile) const {
    const int chunks = a.dim / 8;  // of 16 bytes
    for (int i = threadIdx.x; i < kTileKeys * PARTS * chunks; i += kThreads) {
      const int key = i / (PARTS * chunks), chunk = i % (PARTS * chunks), part = chunk >= chunks ? 1 : 0;
      const __half* row = rowPointers[tile & 1][key];
      __half* to = keyTile(tile, part) + key * stride + (chunk - part * chunks) * 8;
      ds4::cuda::copyOrZero16(to, (row ? row : a.ring) + chunk * 8, row != nullptr);
    }
  }

  // Queries to shared memory.
  __device__ __forceinline__ void storeQueries() const {
    const float* queries = a.queries + (static_cast<int64_t>(token) * a.heads + firstHead) * a.dim;
    for (int i = threadIdx.x; i < HEADS * a.dim / 4; i += kThreads) {
      const int head = i / (a.dim / 4), column = i % (a.dim / 4) * 4;
      float4 q = make_float4(0, 0, 0, 0);
      if (firstHead + head < a.heads) q = *reinterpret_cast<const float4*>(queries + head * a.dim + column);
      uint32_t left[PARTS], right[PARTS];
      ds4::cuda::splitPair(left, q.x, q.y);
      ds4::cuda::splitPair(right, q.z, q.w);
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
        __half* to = queryRows + (part * HEADS + head) * stride + column;
        *reinterpret_cast<uint2*>(to) = make_uint2(left[part], right[part]);
      }
    }
  }

  // This lane's queries of its warp's dims.
  __device__ __forceinline__ void holdQueries(Held& held, int slice, int lane) const {
    const float* queries = a.queries + (static_cast<int64_t>(token) * a.heads + firstHead) * a.dim;
#pragma unroll
    for (int step = 0; step < kSteps; step++) {
      const int d = (step * kSlices + slice) * 16;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int head = lane / 4 + i % 2 * 8, column = d + lane % 4 * 2 + i / 2 * 8;
        float2 q = make_float2(0, 0);
        if (d < a.dim && firstHead + head < a.heads) {
          q = *reinterpret_cast<const float2*>(queries + head * a.dim + column);
        }
        uint32_t split[PARTS];
        ds4::cuda::splitPair(split, q.x, q.y);
#pragma unroll
        for (int part = 0; part < PARTS; part++) held[step][part][i] = split[part];
      }
    }
  }

  // Scores of this warp's heads, keys and dims.
  __device__ __forceinline__ void matchKeys(Matches& matches, const Held& held, int tile, int warp, int lane) const {
    const int slice = warp / (MGROUPS * NGROUPS), headGroup = warp / NGROUPS % MGROUPS, keyGroup = warp % NGROUPS;
#pragma unroll(kHeld ? kSteps : 2)
    for (int step = 0; step < kSteps; step++) {
      const int d = (step * kSlices + slice) * 16;
      if (d >= a.dim) break;
      uint32_t query[PARTS][kOwnHeadTiles][4];
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
#pragma unroll
        for (int m = 0; m < kOwnHeadTiles; m++) {
          if constexpr (kHeld) {
#pragma unroll
            for (int i = 0; i < 4; i++) query[part][m][i] = held[step][part][i];
          } else {
            const int row = part * HEADS + (headGroup * kOwnHeadTiles + m) * 16 + lane % 16;
            ds4::cuda::loadTiles(query[part][m], queryRows + row * stride + d + lane / 16 * 8);
          }
        }
      }
#pragma unroll
      for (int n = 0; n < kOwnKeyPairs; n++) {
        const int row = (keyGroup * kOwnKeyPairs + n) * 16 + lane % 8 + lane / 16 * 8;
#pragma unroll
        for (int part = PARTS - 1; part >= 0; part--) {
          uint32_t key[4];
          ds4::cuda::loadTiles(key, keyTile(tile, part) + row * stride + d + lane / 8 % 2 * 8);
#pragma unroll
          for (int other = PARTS - 1 - part; other >= 0; other--) {
#pragma unroll
            for (int m = 0; m < kOwnHeadTiles; m++) {
              const uint32_t(&q)[4] = query[other][m];
              ds4::cuda::multiplyHalf(matches[m][2 * n], q[0], q[1], q[2], q[3], key[0], key[1]);
              ds4::cuda::multiplyHalf(matches[m][2 * n + 1], q[0], q[1], q[2], q[3], key[2], key[3]);
            }
          }
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
  }

  // Online softmax: a few threads per head. Weights (halves, part after part) replace the head's own scores. Returns by
  // how much sums so far shrink.
  __device__ __forceinline__ float weigh(int tile) {
    const int row = threadIdx.x / kThreadsPerRow, firstKey = threadIdx.x % kThreadsPerRow * kOwnKeys;
    const float scale = a.scale * kLogOfTwo;
    float own[kOwnKeys];
    float largest = maximum;
#pragma unroll
    for (int k = 0; k < kOwnKeys; k += 2) {
      float2 match = make_float2(0, 0);
#pragma unroll
      for (int s = 0; s < kSlices; s++) {
        const float2 part = *reinterpret_cast<const float2*>(scores + (s * HEADS + row) * kScoreStride + firstKey + k);
        match.x += part.x;
        match.y += part.y;
      }
      const int key = tile * kTileKeys + firstKey + k;
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
    uint32_t* weights = reinterpret_cast<uint32_t*>(scores + row * kScoreStride);
#pragma unroll
    for (int k = 0; k < kOwnKeys; k += 2) {
      uint32_t split[PARTS];
      ds4::cuda::splitPair(split, own[k], own[k + 1]);
#pragma unroll
      for (int part = 0; part < PARTS; part++) weights[(part * kTileKeys + firstKey + k) / 2] = split[part];
    }
    const float keep = exp2f(maximum - largest);
    total = total * keep + added;
    maximum = largest;
    if (threadIdx.x % kThreadsPerRow == 0) rescale[row] = keep;
    return keep;
  }

  __device__ __forceinline__ void shrink(Sums& sums, int lane) const {
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

  // Weights x values: all heads, the warp's dims.
  __device__ __forceinline__ void addValues(Sums& sums, int tile, int ownDim, int lane) const {
#pragma unroll
    for (int k = 0; k < kTileKeys; k += 16) {
      uint32_t weight[PARTS][kHeadTiles][4];
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
#pragma unroll
        for (int m = 0; m < kHeadTiles; m++) {
          const __half* row = reinterpret_cast<const __half*>(scores + (m * 16 + lane % 16) * kScoreStride);
          ds4::cuda::loadTiles(weight[part][m], row + part * kTileKeys + k + lane / 16 * 8);
        }
      }
#pragma unroll
      for (int n = 0; n < kWarpDims / 16; n++) {
        if (ownDim + n * 16 >= a.dim) break;
#pragma unroll
        for (int part = PARTS - 1; part >= 0; part--) {
          const __half* from = keyTile(tile, part) + (k + lane % 16) * stride + ownDim + n * 16 + lane / 16 * 8;
          uint32_t value[4];
          ds4::cuda::loadTilesTransposed(value, from);
#pragma unroll
          for (int other = PARTS - 1 - part; other >= 0; other--) {
#pragma unroll
            for (int m = 0; m < kHeadTiles; m++) {
              const uint32_t(&w)[4] = weight[other][m];
              ds4::cuda::multiplyHalf(sums[m][2 * n], w[0], w[1], w[2], w[3], value[0], value[1]);
              ds4::cuda::multiplyHalf(sums[m][2 * n + 1], w[0], w[1], w[2], w[3], value[2], value[3]);
            }
          }
        }
      }
    }
  }

  // One share: the sink joins and the sums are final. Several: the sums go out as they are.
  __device__ __forceinline__ void finish(const Sums& sums, float2* stats, int shares, int ownDim, int lane) const {
    const int ownRow = threadIdx.x / kThreadsPerRow, ownHead = firstHead + ownRow;
    const bool owns = threadIdx.x % kThreadsPerRow == 0;
    if (shares > 1) {
      if (owns && ownHead < a.heads) stats[ownHead] = make_float2(maximum, total);
    } else {
      __syncthreads();  // the last products still read `rescale`
      if (owns) {
        const float sink = ownHead < a.heads ? a.sinks[ownHead] * kLogOfTwo : 0.0f, most = fmaxf(maximum, sink);
        const float weight = exp2f(maximum - most);
        rescale[ownRow] = weight / (total * weight + exp2f(sink - most));
      }
      __syncthreads();
    }
    float* out = shares > 1 ? a.parts + (static_cast<int64_t>(token) * shares + blockIdx.x) * a.heads * a.dim
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
          const float factor = shares > 1 ? 1.0f : rescale[row];
          float x = sums[m][n][2 * side] * factor, y = sums[m][n][2 * side + 1] * factor;
          if (turns && d >= tail) turnBack(x, y, cosine, sine);
          *reinterpret_cast<float2*>(out + static_cast<int64_t>(head) * a.dim + d) = make_float2(x, y);
        }
      }
    }
  }
};

}  // namespace
