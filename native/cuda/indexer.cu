// Scores of the indexer: sum over heads of weight * relu(query . entry). Entries are one or two halves per value (see
// kv-rows.cuh), queries two after a power-of-two scale per head: tensor-core products keep the entries' precision.
// Bytes: 2 * parts * dim per entry and token, 32 KiB of queries per block (8192 multiply-adds per entry of 64 x 128):
// limited by the tensor cores from 1,000 entries on (two products each, three with two parts), below that by latency: a few
// tokens have a cut of their own (index-few.cuh). Prefill reads entries from L2.
#include "cuda/index-few.cuh"
#include "cuda/overlap.cuh"
#include "reductions.cuh"

namespace {

constexpr int kEntriesPerWarp = 32;

template <int PARTS>
__device__ __forceinline__ void indexScores(const DecodeState* state, int firstToken, const float* queries,
                                            const float* headWeights, const __half* entries, float* scores,
                                            int64_t scoreStride, int heads, int dim, int ratio, int topK,
                                            float scale) {
  extern __shared__ __align__(16) unsigned char memory[];
  uint4* fragments = reinterpret_cast<uint4*>(memory);  // [head tiles, slabs, 2, lane]
  __shared__ float weights[kMaxHeads], up[kMaxHeads];
  ds4::cuda::letNextStart();
  ds4::cuda::waitForPrevious();
  const int token = firstToken + blockIdx.y;
  if (token >= state->count) return;
  const int visible = (state->start + token + 1) / ratio;
  const int perBlock = blockDim.x / 32 * kEntriesPerWarp;
  if (visible <= topK || static_cast<int>(blockIdx.x) * perBlock >= visible) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int headTiles = (heads + 7) / 8, slabs = dim / 32;
  const float* query = queries + static_cast<int64_t>(token) * heads * dim;
  for (int head = warp; head < headTiles * 8; head += warps) {
    float largest = 0;
    for (int d = lane; head < heads && d < dim; d += 32) largest = fmaxf(largest, fabsf(query[head * dim + d]));
    largest = warpMax(largest);
    const int exponent = scaleExponent(largest);
    if (lane == 0) {
      up[head] = ldexpf(1.0f, -exponent);
      const float weight = head < heads ? headWeights[static_cast<int64_t>(token) * heads + head] : 0.0f;
      weights[head] = weight * ldexpf(1.0f, exponent);
    }
  }
  __syncthreads();
  // The inner dimension is taken in the order in which entries are loaded: 8 neighbours per lane and slab.
  for (int item = threadIdx.x; item < headTiles * slabs * 64; item += blockDim.x) {
    const int owner = item % 32, step = item / 32 % 2, slab = item / 64 % slabs, tile = item / 64 / slabs;
    const int head = tile * 8 + owner / 4;
    float4 q = make_float4(0, 0, 0, 0);
    if (head < heads) {
      q = *reinterpret_cast<const float4*>(query + head * dim + slab * 32 + owner % 4 * 8 + step * 4);
      q = make_float4(q.x * up[head], q.y * up[head], q.z * up[head], q.w * up[head]);
    }
    uint32_t left[2], right[2];
    ds4::cuda::splitPair(left, q.x, q.y);
    ds4::cuda::splitPair(right, q.z, q.w);
    fragments[item] = make_uint4(left[0], right[0], left[1], right[1]);
  }
  __syncthreads();
  for (int base = (blockIdx.x * warps + warp) * kEntriesPerWarp; base < visible; base += gridDim.x * perBlock) {
    uint4 rows[PARTS][4][kMaxSlabs];  // of entries base + lane / 4 + 8 * i
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int entry = base + lane / 4 + 8 * i;
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
        const __half* row = entries + (static_cast<int64_t>(entry) * PARTS + part) * dim;
        const uint4* from = reinterpret_cast<const uint4*>(row) + lane % 4;
#pragma unroll
        for (int slab = 0; slab < kMaxSlabs; slab++) {
          rows[part][i][slab] = entry < visible && slab < slabs ? from[4 * slab] : make_uint4(0, 0, 0, 0);
        }
      }
    }
    float totals[4] = {};
    for (int tile = 0; tile < headTiles; tile++) {
      float matches[2][4] = {};
#pragma unroll
      for (int slab = 0; slab < kMaxSlabs; slab++) {
        if (slab >= slabs) break;
#pragma unroll
        for (int step = 0; step < 2; step++) {
          const uint4 q = fragments[((tile * slabs + slab) * 2 + step) * 32 + lane];
#pragma unroll
          for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int part = PARTS - 1; part >= 0; part--) {
              const uint4 above = rows[part][2 * m][slab], below = rows[part][2 * m + 1][slab];
              const uint32_t a0 = step ? above.z : above.x, a2 = step ? above.w : above.y;
              const uint32_t a1 = step ? below.z : below.x, a3 = step ? below.w : below.y;
              if (part == 0) ds4::cuda::multiplyHalf(matches[m], a0, a1, a2, a3, q.z, q.w);
              ds4::cuda::multiplyHalf(matches[m], a0, a1, a2, a3, q.x, q.y);
            }
          }
        }
      }
      const float left = weights[tile * 8 + lane % 4 * 2], right = weights[tile * 8 + lane % 4 * 2 + 1];
#pragma unroll
      for (int m = 0; m < 2; m++) {
        totals[2 * m] += counted(matches[m][0], left) + counted(matches[m][1], right);
        totals[2 * m + 1] += counted(matches[m][2], left) + counted(matches[m][3], right);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float total = totals[i];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const int entry = base + lane / 4 + 8 * i;
      if (lane % 4 == 0 && entry < visible) scores[blockIdx.y * scoreStride + entry] = total * scale;
    }
  }
}

}  // namespace

#define DS4_SCORE_PARAMETERS                                                                                      \
  const DecodeState *state, int firstToken, const float *queries, const float *headWeights, const __half *entries, \
      float *scores, int64_t scoreStride, int heads, int dim, int ratio, int topK, float scale
#define DS4_SCORE_ARGUMENTS \
  state, firstToken, queries, headWeights, entries, scores, scoreStride, heads, dim, ratio, topK, scale

/// Grid (blocks, tokens of this launch), 128 threads; blocks take 128 entries in turn. Token i is row firstToken + i of the
/// sequence's queries [count, heads, dim] and headWeights [count, heads]; its scores go to scores + i * scoreStride.
/// Tokens that see at most topK entries are left out: nothing is chosen there. dim: 32, 64, 96 or 128; heads at most 128. The
/// name ends in parts per value of the entries.
/// Shared: (heads rounded up to 8) * dim * 4 bytes.
extern "C" __global__ void __launch_bounds__(128) index_scores_x1(DS4_SCORE_PARAMETERS) {
  indexScores<1>(DS4_SCORE_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128) index_scores_x2(DS4_SCORE_PARAMETERS) {
  indexScores<2>(DS4_SCORE_ARGUMENTS);
}

/// The same of few tokens: grid (blocks, tokens of this launch), a warp per eight heads; blocks take 16 entries in turn.
extern "C" __global__ void __launch_bounds__(kFewThreads) index_few_x1(DS4_SCORE_PARAMETERS) {
  indexFew<1>(DS4_SCORE_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(kFewThreads) index_few_x2(DS4_SCORE_PARAMETERS) {
  indexFew<2>(DS4_SCORE_ARGUMENTS);
}
